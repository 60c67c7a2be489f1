"""Variants: a method with settings of its own, swept and reported like any other method.

gsf-reward+label.n_bins=3                  as written in --methods, and called so in tables
gsf-reward+fit.estimator=td+gsf.tau=0.1    several settings
all+train.lr=1e-3                          every method with it
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gsf.core.errors import UserError
from gsf.core.naming import LONGEST, directory_name, split_variant
from gsf.learn import methods
from gsf.learn.methods import Method
from gsf.sweep.settings import STAGES, check, parse


@dataclass(frozen=True)
class Variant:
    method: Method
    settings: tuple[str, ...] = ()  # owner.option=value, for it alone; mostly none

    @property
    def spec(self) -> str:
        """As a user writes it."""
        return "+".join((self.method.spec, *self.settings))

    @property
    def name(self) -> str:
        """In tables and directories."""
        return "+".join((self.method.name, *map(directory_name, self.settings)))

    @property
    def owners(self) -> dict[str, Any]:
        """Stages and parts of the method whose options its settings may be, by name."""
        stages = ("train",) if self.method.cumulant is None else ("fit", "label", "train")
        parts = {part.name: part.value.Config for part in self.method.parts.values()}
        return {stage: STAGES[stage] for stage in stages} | parts

    def ending(self, owner: str) -> str:
        """What the output of a stage has behind its name, where the settings make it another."""
        words = (word for word in self.settings if word.startswith(f"{owner}."))
        return "".join(f"+{directory_name(word)}" for word in words)


def find_all(specs: Sequence[str], on: Any) -> list[Variant]:
    """Methods and variants to compare, each once; `on`: the base of losses that name no other."""
    found: dict[str, Variant] = {}
    called: dict[str, str] = {}  # name -> spec, of methods and of variants
    for spec in specs:
        plain, words = split_variant(spec)
        if "=" in plain.rpartition("+")[2]:
            form = "+owner.option=value, as in gsf-reward+label.n_bins=3"
            raise UserError(f"--methods {spec}: a setting is {form}.")
        for method in methods.find_all([plain], _base(words, on)):
            variant = Variant(method, words)
            _check_settings(variant)
            for name, its in ((method.name, method.spec), (variant.name, variant.spec)):
                if called.setdefault(name, its) != its:
                    raise UserError(f"{called[name]} and {its} are both called {name}; rename one.")
            found[variant.name] = variant
    return list(found.values())


def _base(words: Sequence[str], on: Any) -> str | None:
    """What a loss is added to: the variant's own `train.on`, else that of all methods."""
    on = dict(map(parse, words)).get("train.on", on)
    if not isinstance(on, str | None):
        raise UserError(f"train.on={on} is not the name of a base.")
    return on


def _check_settings(variant: Variant) -> None:
    where = f"--methods {variant.spec}"
    for word in variant.settings:
        name, _ = parse(word)
        check(name, where, variant.owners)
        if name == "train.grad_steps":
            why = "runs are compared at the same step, so --train.grad-steps says it for all"
            raise UserError(f"{where}: {why}; train.keep keeps networks of earlier steps.")
        if name == "train.on" and not variant.method.losses:
            raise UserError(f"{where}: {variant.method.name} is a base itself; leave train.on out.")
    if len(variant.name) > LONGEST:
        raise UserError(f"{where}: this names a directory; keep it below {LONGEST} characters.")
