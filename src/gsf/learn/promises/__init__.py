"""What gsf relies on in somebody's own code: a function each, whose docstring is the promise."""


class BrokenError(Exception):
    """A promise that is not kept; says how."""


def require(kept: bool, otherwise: str) -> None:
    if not kept:
        raise BrokenError(otherwise)
