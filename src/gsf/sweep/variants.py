"""Variants: a method with settings of its own, swept and reported like any other method.

gsf-reward+label.n_bins=3                  as written in --methods, and called so in tables
gsf-reward+fit.estimator=td+gsf.tau=0.1    several settings
all+train.lr=1e-3                          every method with it
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gsf.core.errors import UserError
from gsf.core.variants import split_variant
from gsf.learn import methods
from gsf.learn.methods import Method
from gsf.sweep.settings import STAGES, check, parse

_UNFIT = re.compile(r"[^\w.=+-]+")  # for the name of a directory


@dataclass(frozen=True)
class Variant:
    method: Method
    settings: tuple[str, ...] = ()  # --set words that hold for it alone; mostly none

    @property
    def spec(self) -> str:
        """As a user writes it."""
        return "+".join((self.method.spec, *self.settings))

    @property
    def name(self) -> str:
        """In tables and directories."""
        return "+".join((self.method.name, *(_UNFIT.sub("_", word) for word in self.settings)))

    @property
    def owners(self) -> dict[str, Any]:
        """What the settings may be of, with its options: whatever is made for this method alone."""
        stages = ("train",) if self.method.cumulant is None else ("fit", "label", "train")
        parts = {part.name: part.value.Config for part in self.method.parts.values()}
        return {stage: STAGES[stage] for stage in stages} | parts

    def ending(self, owner: str) -> str:
        """What the output of a stage has behind its name, where the settings make it another."""
        words = (word for word in self.settings if parse(word).owner == owner)
        return "".join(f"+{_UNFIT.sub('_', word)}" for word in words)


def find_all(specs: Sequence[str], on: str | None) -> list[Variant]:
    """Methods and variants to compare, each once; `on`: the base of losses that name no other."""
    found: dict[str, Variant] = {}
    for spec in specs:
        plain, words = split_variant(spec)
        own = {x.option: x.value for x in map(parse, words) if x.owner == "train"}
        for method in methods.find_all([plain], own.get("on", on)):
            variant = Variant(method, words)
            for word in words:
                check(word, f"--methods {spec}", variant.owners)
            known = found.setdefault(variant.name, variant)
            if known.spec != variant.spec:
                both = f"{known.spec} and {variant.spec}"
                raise UserError(f"{both} are both called {variant.name}; rename one.")
    return list(found.values())
