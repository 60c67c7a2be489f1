"""What tyro could not read, in one sentence.

tyro says what went wrong in a private module alone: its public way is a box of text and an exit.
Only this file knows that module. With a tyro that has changed it, users see tyro's own box.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from gsf.core.errors import did_you_mean

try:
    _events: Any = importlib.import_module("tyro._errors")
except ImportError:
    _events = None


@contextlib.contextmanager
def heard(verb: str, argv: list[str], refuse: Callable[[str], NoReturn]) -> Iterator[None]:
    """Inside, what tyro cannot read of a verb's words goes to `refuse`, as a sentence."""
    hook = getattr(_events, "on_parse_error", None)
    if hook is None:
        yield
        return
    with hook(lambda event: refuse(_sentence(event, verb, argv))):
        yield


def _sentence(event: Any, verb: str, argv: list[str]) -> str:
    more = f"`gsf {verb} --help` explains all options."
    match type(event).__name__:
        case "UnrecognizedArgs":
            word = event.tokens[0]
            of = [
                x.partition("=")[0] for x in argv if x.startswith("--") and x.endswith(f"={word}")
            ]
            if of:
                return f"{of[0]} takes no value, but {word!r} was given; {more}"
            return f"{word!r} is one word too many; {more}"
        case "MissingArgs":
            missing = [_name(x.arg) for x in event.missing_arguments]
            return f"gsf {verb} needs {' and '.join(missing)}; {more}"
        case "InvalidChoice":
            meant = did_you_mean(event.value, event.choices)
            known = ", ".join(event.choices)
            return f"{_name(event.argument)} {event.value!r}: {meant}choose one of {known}."
        case "BadValue":
            return f"{_name(event.argument)} needs a value; {more}"
        case "InstantiationFailure":
            who = "" if event.argument is None else f"{_name(event.argument)} "
            for kind, wanted in (("int()", "a whole number"), ("to float", "a number")):
                if kind in event.message:
                    return f"{who}must be {wanted}, got {event.message.partition(': ')[2]}."
            return f"{who}cannot be read: {' '.join(event.message.split())}; {more}"
    return f"these options of gsf {verb} cannot be read ({type(event).__name__}); {more}"


def _name(argument: Any) -> str:
    """As a user writes it: --lr, or DATASET for one without dashes."""
    name = str(argument.lowered.name_or_flags[0])
    return name.upper() if argument.is_positional() else name
