"""What gsf relies on in somebody's own code: a function each, whose docstring is the promise."""

import contextlib
import io
from collections.abc import Iterator

from gsf.core.logs import console


class BrokenError(Exception):
    """A promise that is not kept; says how."""


def require(kept: bool, otherwise: str) -> None:
    if not kept:
        raise BrokenError(otherwise)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    quiet, console.quiet = console.quiet, True
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        console.quiet = quiet
