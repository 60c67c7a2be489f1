"""Names of variants: a method and, behind plus signs, settings that are its own.

gsf-reward+label.n_bins=3 is gsf-reward with three bins (sweep/variants.py runs it).
"""

import re

_PLUS = re.compile(r"\+(?=\w+\.\w+=)")  # no other: a file may be called a+b.py, a number be 1e+3


def split_variant(name: str) -> tuple[str, tuple[str, ...]]:
    """The method and the settings."""
    method, *settings = _PLUS.split(name)
    return method, tuple(settings)
