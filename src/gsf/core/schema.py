"""What must be in a file: types, ranges and keys, said as plain values and checked in one place.

A form is a type (a float may be whole, a bool is no int), None, a tuple of forms of which one must
fit, [form] for a list, {str: form} for a mapping, {"key": form} for one that has at least these
keys, or a `Where`: a form and what must also hold.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Form = Any


@dataclass(frozen=True)
class Where:
    form: Form
    words: str  # what must hold, as in "is 3, not {words}"
    holds: Callable[[Any], bool]


def between(low: float, high: float = math.inf, form: Form = int) -> Where:
    words = f"at least {low}" if high == math.inf else f"between {low} and {high}"
    return Where(form, words, lambda x: low <= x <= high)


COUNT, POSITIVE = between(0), between(1)
NUMBER = Where(float, "a finite number", math.isfinite)
DIGEST = Where(str, "16 hex digits", lambda x: len(x) == 16 and set(x) <= set("0123456789abcdef"))
SHAPE = Where([POSITIVE], "height, width and channels", lambda x: len(x) == 3)
LEVELS = Where([(int, str, NUMBER, bool)], "one that has some", bool)


def misfit(found: Any, form: Form, name: str = "it") -> str | None:
    """The first thing that is wrong, as the middle of a sentence; None if nothing is."""
    if isinstance(form, Where):
        wrong = misfit(found, form.form, name)
        return wrong or (
            None if form.holds(found) else f"{name} is {_shown(found)}, not {form.words}"
        )
    if isinstance(form, tuple):
        wrongs = [misfit(found, one, name) for one in form]
        return None if None in wrongs else wrongs[-1]
    if isinstance(form, list):
        if not isinstance(found, list):
            return f"{name} is {_shown(found)}, not a list"
        return _first(misfit(x, form[0], f"{name}[{i}]") for i, x in enumerate(found))
    if isinstance(form, dict):
        if not isinstance(found, Mapping):
            return f"{name} is {_shown(found)}, not a mapping"
        if str in form:
            return _first(_entry(k, x, form[str], name) for k, x in found.items())
        missing = next((key for key in form if key not in found), None)
        if missing is not None:
            return f"{name} lacks {missing!r}"
        return _first(misfit(found[key], one, repr(key)) for key, one in form.items())
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
