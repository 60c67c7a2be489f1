"""Methods: from the name a user gives to a base, auxiliary losses on it and a cumulant.

bc  cql                      a base                    my_base.py:Mine
curl                         a loss on `--on`          my_loss.py:Mine
gsf-reward                   a loss on labels of a cumulant
gsf-mine.py:danger           gsf on a cumulant of one's own; in tables `gsf-danger`
gsf-reward+curl              both losses, each with its weight
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
# Names of stages, and of what else a run is made of.
RESERVED = ("materialise", "fit", "label", "train", "evaluate", "dataset", "labels", "encoder")


@dataclass(frozen=True)
class Method:
    """What a name stands for."""

    spec: str  # as the user wrote it
    name: str  # short, in tables and directories
    base: Found[type[Base]]
    losses: tuple[Found[type[AuxiliaryLoss]], ...] = ()
    cumulant: str | None = None  # whose labels a loss needs, as the user wrote it

    @property
    def labels_of(self) -> str | None:
        """The cumulant's own name, which its labels bear."""
        return self.cumulant and self.cumulant.rpartition(":")[2]

    @property
    def parts(self) -> dict[str, Found[Any]]:
        """Base and auxiliary losses, by their names: what has options of its own."""
        parts: tuple[Found[Any], ...] = (self.base, *self.losses)
        return {part.name: part for part in parts}

    def identity(self) -> dict[str, str]:
        """Digests of the user's code in it."""
        return {name: part.code for name, part in self.parts.items() if part.code}


def find(spec: str, on: str | None = None) -> Method:
    """The method a user calls `spec`, losses being added to the base `on`.

    The cumulant is only named: whoever has its labels needs no code of it.
    """
    found = [_split(word) for word in _words(spec)]
    for thing, cumulant in found:
        if bases.owns(thing):
            if len(found) > 1:
                raise UserError(
                    f"method {spec!r}: {thing} is a base; name losses, and --on {thing}."
                )
            if cumulant is not None:
                raise UserError(f"method {spec!r}: {thing} is a base and takes no cumulant.")
            if on not in (None, thing):
                raise UserError(f"method {spec} is a base itself; leave --on {on} out.")
            return Method(spec, _usable(bases.find(thing)).name, bases.find(thing))
    base, parts = _usable(bases.find(on or ON)), [losses.find(thing) for thing, _ in found]
    for i, loss in enumerate(parts):
        if _usable(loss).name in (base.name, *bases.names()):
            raise UserError(
                f"method {spec!r}: {loss.name} is a base, too; give the loss another name."
            )
        if loss.name in (other.name for other in parts[:i]):
            raise UserError(f"method {spec!r}: {loss.name} is there twice.")
    names = [_name(spec, loss, cumulant) for loss, (_, cumulant) in zip(parts, found, strict=True)]
    asked = {cumulant: None for _, cumulant in found if cumulant is not None}
    if len(asked) > 1:
        raise UserError(
            f"method {spec!r}: a run has labels of one cumulant, not {' and '.join(asked)}."
        )
    return Method(spec, "+".join(names), base, tuple(parts), next(iter(asked), None))


def _usable(part: Found[Any]) -> Found[Any]:
    """Its name stands before those of its options."""
    if not part.name.isidentifier() or part.name in RESERVED:
        raise UserError(
            f"{part.spec}: its name, {part.name!r}, cannot stand before options; change it."
        )
    return part


def _name(spec: str, loss: Found[type[AuxiliaryLoss]], cumulant: str | None) -> str:
    """A loss's, with its cumulant if it has one."""
    if "labels" not in loss.value.needs:
        if cumulant is not None:
            raise UserError(
                f"method {spec!r}: {loss.spec} needs no labels, so it takes no cumulant."
            )
        return loss.name
    if not cumulant:
        some = f"{loss.spec}-{cumulants.names()[0]}"
        raise UserError(f"method {spec!r} needs labels: say of which cumulant, as in {some}.")
    return f"{loss.name}-{cumulant.rpartition(':')[2]}"


def _words(spec: str) -> list[str]:
    """The losses of gsf-reward+curl. What begins like none is a file's name: a+b.py:Mine."""
    words, begun = [], ""
    for piece in spec.split("+"):
        begun += piece
        if _known(begun) or _FILE.fullmatch(begun):
            words.append(begun)
            begun = ""
        else:
            begun += "+"
    return [*words, begun[:-1]] if begun else words


def find_all(specs: Sequence[str], on: str | None = None) -> list[Method]:
    """Methods to compare, cumulants too; `all` for every one. Two of one name are refused."""
    found: dict[str, Method] = {}
    for spec in all_methods() if tuple(specs) == ("all",) else specs:
        [thing, _], *others = (_split(word) for word in _words(spec))
        method = find(spec, None if not others and bases.owns(thing) else on)
        if method.cumulant is not None:
            cumulants.find(method.cumulant)
        known = found.setdefault(method.name, method)
        if known.spec != spec:
            raise UserError(f"{known.spec} and {spec} are both called {method.name}; rename one.")
    return list(found.values())


def _split(spec: str) -> tuple[str, str | None]:
    """(base or loss, cumulant) as they are written; one sentence if there is no such thing."""
    if name := _known(spec):
        return name, spec[len(name) + 1 :] if spec != name else None
    if match := _FILE.fullmatch(spec):
        return match["thing"], match["cumulant"]
    meant = did_you_mean(spec, [*all_methods(), *losses.names()])
    raise UserError(
        f"unknown method {spec!r}; {meant}There are {', '.join(method_names())}, or your own as "
        "file.py:Name."
    )


def _known(word: str) -> str | None:
    """The base or loss of gsf's, or of an installed package, that a word begins with."""
    known = sorted([*bases.names(), *losses.names()], key=len, reverse=True)
    return next((x for x in known if word == x or word.startswith(f"{x}-")), None)


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
