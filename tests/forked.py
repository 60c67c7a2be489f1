"""What a test does in a process of its own: forked, as torch takes long to import."""

import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable

CRASHED = 70  # exit code of work that raised an error


def forked(work: Callable[[], int | None]) -> tuple[int, str]:
    """Exit code (that which `work` returns; negative: the signal that killed it), and its words."""
    with tempfile.TemporaryFile() as words:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            child = os.fork()  # Python 3.12 warns of other threads, of which `work` needs none
        if not child:
            code = CRASHED
            try:
                for descriptor in (1, 2):
                    os.dup2(words.fileno(), descriptor)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                code = work() or 0
            except SystemExit as stop:
                code = int(str(stop.code or 0))
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        words.seek(0)
        return os.waitstatus_to_exitcode(status), words.read().decode()
