"""How variants are called: a method and, behind plus signs, settings that are its own.

gsf-reward+label.n_bins=3 is gsf-reward with three bins (sweep/variants.py runs it).
"""

import re

# No other plus: a file may be called a+b.py, a number be 1e+3.
_PLUS = re.compile(r"\+(?=[\w-]+\.[\w-]+=)")
_UNFIT = re.compile(r"[^\w.=+-]+")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
LONGEST = 150  # a directory's name, with room for what is put around it


def split_variant(name: str) -> tuple[str, tuple[str, ...]]:
    """The method and the settings."""
    method, *settings = _PLUS.split(name)
    return method, tuple(settings)


def directory_name(text: str) -> str:
    """The text as a directory's name: what does not fit in one becomes _."""
    return _UNFIT.sub("_", text)


def by_number(name: str) -> tuple[str | float, ...]:
    """A key that sorts n_bins=3 before n_bins=11."""
    return tuple(float(x) if i % 2 else x for i, x in enumerate(_NUMBER.split(name)))
