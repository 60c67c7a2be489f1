"""Processes that gsf starts never import from the current folder, whatever lies there."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def starting(**values: str) -> Iterator[None]:
    """What is started inside finds these in its environment. Python, started with -c or -m as
    multiprocessing does, would put the current folder first on its path: here it does not."""
    values |= {"PYTHONSAFEPATH": "1"}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
