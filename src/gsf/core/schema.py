"""What must be in a file: types, ranges and keys, said as plain values and checked in one place.

A form is a type (a float may be whole, a bool is no int), None, a tuple of forms of which one must
fit, [form] for a list, {str: form} for a mapping, {"key": form} for one that has at least these
keys, a key's `Maybe` if it may be missing, or a `Where`: a form and what must also hold. Files may
be a stranger's: `parse_json` reads all JSON, and forms say how large a number or a list may be.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Form = Any
MOST_ITEMS = 1_000_000  # of a list in a file
MOST_ACTIONS = 10_000  # each has an output of its own
MOST_BYTES = 1 << 27  # of a JSON text
_DEEPEST = 50  # brackets inside brackets


def parse_json(text: bytes | str) -> Any:
    """What a JSON text says; a ValueError if it is none, or longer or deeper than gsf's are."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    try:
        found = json.loads(text)
        if _is_deeper(found, _DEEPEST):
            raise RecursionError
    except RecursionError:
        raise ValueError(f"its brackets are more than {_DEEPEST} deep") from None
    return found


def _is_deeper(found: Any, depth: int) -> bool:
    if not isinstance(found, dict | list):
        return False
    inside = found.values() if isinstance(found, dict) else found
    nested = (x for x in inside if isinstance(x, dict | list))
    return depth == 0 or any(_is_deeper(x, depth - 1) for x in nested)


@dataclass(frozen=True)
class Where:
    form: Form
    words: str  # what must hold, as in "is 3, not {words}"
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Maybe:
    """Of a key: it may be missing."""

    form: Form


def between(low: float, high: float = math.inf, form: Form = int) -> Where:
    """An infinite `high` is the largest number of 64 bits."""
    words = f"at least {low}" if high == math.inf else f"between {low:,} and {high:,}"
    return Where(form, words, lambda x: low <= x <= min(high, 2**63 - 1))


def _is_text(text: str) -> bool:
    """Whether it can be written: half of a surrogate pair fits in no file and on no terminal."""
    return text.isascii() or text.encode(errors="ignore").decode() == text


def _is_level(level: Any) -> bool:
    if isinstance(level, str):
        return _is_text(level)
    if isinstance(level, int):
        return -(2**63) <= level < 2**63
    return isinstance(level, float) and math.isfinite(level)


COUNT, POSITIVE = between(0), between(1)
SEED = between(0, 2**31 - 1)
NUMBER = Where(float, "a finite number", lambda x: abs(x) <= sys.float_info.max)
TEXT = Where(str, "a text that can be written", _is_text)
DIGEST = Where(str, "16 hex digits", lambda x: len(x) == 16 and set(x) <= set("0123456789abcdef"))
SHAPE = Where([between(1, 2**16)], "height, width and channels", lambda x: len(x) == 3)
_LEVEL = Where(object, "a text or a finite number of 64 bits", _is_level)
LEVELS = Where([_LEVEL], "one that has some", bool)
N_ACTIONS = between(1, MOST_ACTIONS)
ACTIONS = Where(
    [between(0, MOST_ACTIONS)], "a list of ids that differ", lambda x: len({*x}) == len(x) > 0
)


def misfit(found: Any, form: Form, name: str = "it") -> str | None:
    """The first thing that is wrong, as the middle of a sentence; None if nothing is."""
    if isinstance(form, Where):
        wrong = misfit(found, form.form, name)
        return wrong or (
            None if form.holds(found) else f"{name} is {_shown(found)}, not {form.words}"
        )
    if isinstance(form, Maybe):
        return misfit(found, form.form, name)
    if isinstance(form, tuple):
        wrong = None
        for one in form:
            if (wrong := misfit(found, one, name)) is None:
                break
        return wrong
    if isinstance(form, list):
        if not isinstance(found, list):
            return f"{name} is {_shown(found)}, not a list"
        if len(found) > MOST_ITEMS:
            return f"{name} is a list of {len(found):,}, not of at most {MOST_ITEMS:,}"
        wrongs = (i for i, x in enumerate(found) if misfit(x, form[0]))
        return _first(misfit(found[i], form[0], f"{name}[{i}]") for i in wrongs)
    if isinstance(form, dict):
        if not isinstance(found, Mapping):
            return f"{name} is {_shown(found)}, not a mapping"
        if str in form:
            return _first(_entry(k, x, form[str], name) for k, x in found.items())
        for key, one in form.items():
            if key not in found and not isinstance(one, Maybe):
                return f"{name} lacks {key!r}"
        return _first(misfit(found[key], form[key], repr(key)) for key in form if key in found)
    fits = found is None if form is None else _is_a(found, form)
    return None if fits else f"{name} is {_shown(found)}, not {_word(form)}"


def _entry(key: Any, found: Any, form: Form, name: str) -> str | None:
    if not isinstance(key, str):
        return f"{name} has the key {_shown(key)}, not a text"
    return misfit(found, form, repr(key))


def _is_a(found: Any, kind: type) -> bool:
    if kind in (int, float):
        return isinstance(found, (int, kind)) and not isinstance(found, bool)
    return isinstance(found, kind)


def _first(wrongs: Any) -> str | None:
    return next((wrong for wrong in wrongs if wrong is not None), None)


def _word(form: Form) -> str:
    words: dict[Any, str] = {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "true or false",
    }
    words |= {dict: "a mapping", list: "a list", None: "nothing"}
    return words.get(form) or f"a {form.__name__}"


def _shown(found: Any) -> str:
    text = repr(found) if isinstance(found, (int, float, str, bool, type(None))) else ""
    return text if 0 < len(text) <= 60 else _word(type(found))
