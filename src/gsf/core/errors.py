"""The one kind of error a user is meant to see, and what they may have meant."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input or a bad request: the message says what was wrong and what to do about it."""


class FoundWrongError(Exception):
    """A check found something wrong and has said what: exit code 1, without another word."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "did you mean NAME? ", or "" if no known word is close."""
    words, word = list(known), word.lower()
    slips = [other for other in words if len(word) > 2 and _is_slip(word, other.lower())]
    close = difflib.get_close_matches(word, slips or words, n=1, cutoff=0 if slips else 0.6)
    return f"did you mean {close[0]}? " if close else ""


def _is_slip(word: str, meant: str) -> bool:
    """One letter too many, too few or wrong, or two in each other's place."""
    both = enumerate(zip(word, meant, strict=False))
    start = next((i for i, (x, y) in both if x != y), min(len(word), len(meant)))
    a, b = word[start:], meant[start:]
    swapped = a[:2] == b[:2][::-1] and a[2:] == b[2:]
    return swapped or a[1:] == b or a == b[1:] or a[1:] == b[1:]


def is_out_of_memory(error: BaseException) -> bool:
    """Python's own error, torch's on a GPU, or its RuntimeError on a CPU; without loading torch."""
    torchs = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and torchs)


def is_closed_pipe(error: BaseException) -> bool:
    """Whether whoever read our output (`| head`) has ended; rich makes a SystemExit of that."""
    return BrokenPipeError in (type(error), type(error.__context__))
