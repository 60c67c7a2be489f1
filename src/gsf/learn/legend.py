"""How a method looks in every table and figure: its place, its colour and its marker.

A base or a loss says its `colour` in its own file, which is read and not run: reports load no
torch. Whatever says none gets one that follows from its name. So there is no list of methods, and
each looks the same whatever else is shown.
"""

from collections.abc import Iterable
from pathlib import Path

from gsf.core.drawing import GREY
from gsf.core.files import digest
from gsf.core.naming import by_number
from gsf.core.registry import facts_in, files_in

HOME = Path(__file__).parent
REFERENCES = ("random", "behaviour")  # not trained: no seeds to expect, no last step to reach
BASES, LOSSES = facts_in(HOME / "bases"), facts_in(HOME / "losses")
CUMULANTS = files_in(HOME.parent / "gvf" / "cumulants")
ON_LABELS = [name for name, facts in LOSSES.items() if "labels" in facts.get("needs", ())]
AUXILIARY = [  # methods that add a loss to a base
    *(name for name in LOSSES if name not in ON_LABELS),
    *(f"{name}-{cumulant}" for name in ON_LABELS for cumulant in CUMULANTS),
]
COLOURS = {name: facts["colour"] for name, facts in (BASES | LOSSES).items() if "colour" in facts}
COLOURS |= {  # of a loss on labels: one for each cumulant it names
    f"{name}-{cumulant}": colour
    for name in ON_LABELS
    for cumulant, colour in COLOURS.pop(name, {}).items()
}
COLOURS |= zip(REFERENCES, (GREY, "#000000"), strict=True)
_SPARE = (
    *("#2e7d5b", "#e8a0b8", "#6b7f1e", "#1f5f8b", "#f0b27a", "#b3273b"),
    *("#7fb2a8", "#8c6d46", "#5b6bb5", "#c77fd6", "#404b52"),
)
_MARKERS = "os^vDPX*<>phd8H"


def colour(method: str) -> str:
    return COLOURS.get(method) or _SPARE[_number(method) % len(_SPARE)]


def marker(method: str) -> str:
    return _MARKERS[_number(method) // len(_SPARE) % len(_MARKERS)]


def _number(name: str) -> int:
    return int(digest(name), 16)


def learns_from_labels(method: str) -> bool:
    """As GSF does, of whatever cumulant: gsf-reward, gsf-mine, gsf-reward+curl."""
    return any(method.startswith(f"{name}-") for name in ON_LABELS)


def in_order(methods: Iterable[str]) -> list[str]:
    """References, bases, losses, methods of no file here, and last what learns from labels.

    Each kind by name, a variant behind its method.
    """
    kinds = [*({name} for name in REFERENCES), BASES, LOSSES]

    def rank(method: str) -> tuple[object, ...]:
        first = method.partition("+")[0]
        kind = next((i for i, names in enumerate(kinds) if first in names), len(kinds))
        return kind + learns_from_labels(method), by_number(method)

    return sorted(set(methods), key=rank)
