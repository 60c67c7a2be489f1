"""Methods: from the name a user gives to a base, an auxiliary loss on it and a cumulant.

bc  cql                      a base                    my_base.py:Mine
curl                         a loss on `--on`          my_loss.py:Mine
gsf-reward                   a loss on labels of a cumulant
gsf-mine.py:danger           gsf on a cumulant of one's own; in tables `gsf-danger`
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gsf.core.errors import UserError, did_you_mean
from gsf.core.registry import Found
from gsf.gvf import cumulants
from gsf.learn import bases, losses
from gsf.learn.bases import Base
from gsf.learn.losses import AuxiliaryLoss

ON = "cql"  # what an auxiliary loss is added to
_FILE = re.compile(r"(?P<thing>.+?\.py:\w+)(?:-(?P<cumulant>.*))?")


@dataclass(frozen=True)
class Method:
    """What a name stands for."""

    spec: str  # as the user wrote it
    name: str  # short, in tables and directories
    base: Found[type[Base]]
    loss: Found[type[AuxiliaryLoss]] | None = None
    cumulant: str | None = None  # whose labels the loss needs, as the user wrote it

    @property
    def labels_of(self) -> str | None:
        """The cumulant's own name, which its labels bear."""
        return self.cumulant and self.cumulant.rpartition(":")[2]

    @property
    def parts(self) -> dict[str, Found[Any]]:
        """Base and auxiliary loss, by their names: what has options of its own."""
        return {part.name: part for part in (self.base, self.loss) if part is not None}

    def identity(self) -> dict[str, str]:
        """Digests of the user's code in it."""
        return {name: part.code for name, part in self.parts.items() if part.code}


def find(spec: str, on: str | None = None) -> Method:
    """The method a user calls `spec`, a loss being added to the base `on`.

    The cumulant is only named: whoever has its labels needs no code of it.
    """
    thing, cumulant = _split(spec)
    if bases.owns(thing):
        if cumulant is not None:
            raise UserError(f"method {spec!r}: {thing} is a base and takes no cumulant.")
        if on not in (None, thing):
            raise UserError(f"method {spec} is a base itself; leave --on {on} out.")
        base = bases.find(thing)
        return Method(spec, base.name, base)
    loss = losses.find(thing)
    base = bases.find(on or ON)
    if loss.name in (base.name, *bases.names()):
        raise UserError(f"method {spec!r}: {loss.name} is a base, too; give the loss another name.")
    if "labels" not in loss.value.needs:
        if cumulant is not None:
            raise UserError(f"method {spec!r}: {thing} needs no labels, so it takes no cumulant.")
        return Method(spec, loss.name, base, loss)
    if not cumulant:
        some = f"{thing}-{cumulants.names()[0]}"
        raise UserError(f"method {spec!r} needs labels: say of which cumulant, as in {some}.")
    name = f"{loss.name}-{cumulant.rpartition(':')[2]}"
    return Method(spec, name, base, loss, cumulant)


def find_all(specs: Sequence[str], on: str | None = None) -> list[Method]:
    """Methods to compare, cumulants too; `all` for every one. Two of one name are refused."""
    found: dict[str, Method] = {}
    for spec in all_methods() if tuple(specs) == ("all",) else specs:
        method = find(spec, None if bases.owns(_split(spec)[0]) else on)
        if method.cumulant is not None:
            cumulants.find(method.cumulant)
        known = found.setdefault(method.name, method)
        if known.spec != spec:
            raise UserError(f"{known.spec} and {spec} are both called {method.name}; rename one.")
    return list(found.values())


def _split(spec: str) -> tuple[str, str | None]:
    """(base or loss, cumulant) as they are written; one sentence if there is no such thing."""
    known = [*bases.names(), *losses.names()]
    for name in sorted(known, key=len, reverse=True):
        if spec == name or spec.startswith(f"{name}-"):
            return name, spec[len(name) + 1 :] if spec != name else None
    if match := _FILE.fullmatch(spec):
        return match["thing"], match["cumulant"]
    raise UserError(
        f"unknown method {spec!r}; {did_you_mean(spec, [*all_methods(), *known])}There are "
        f"{', '.join(method_names())}, or your own as file.py:Name."
    )


def method_names() -> list[str]:
    """What users may ask for; a loss on labels has the cumulant's name behind its own."""
    return bases.names() + [f"{x}-<cumulant>" if _labelled(x) else x for x in losses.names()]


def all_methods() -> list[str]:
    """Every method there is, a loss on labels once per cumulant."""
    of_losses = (
        [f"{name}-{c}" for c in cumulants.names()] if _labelled(name) else [name]
        for name in losses.names()
    )
    return [*bases.names(), *(method for methods in of_losses for method in methods)]


def _labelled(loss: str) -> bool:
    return "labels" in losses.find(loss).value.needs
