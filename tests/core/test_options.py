import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

from gsf.core.errors import UserError
from gsf.core.options import (
    Count,
    Incidental,
    Options,
    Range,
    Some,
    above,
    between,
    check,
    from_json,
    inside,
    range_of,
)


@dataclass(frozen=True)
class Config(Options):
    share: Annotated[float, inside(0, 1)] = 0.5
    rate: Incidental[Annotated[float, above(0, 10)]] = 1.0
    count: Count | None = None
    n: Annotated[int, between(0, 3)] = 0
    many: Annotated[tuple[Count, ...], Some()] = (1,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0.0}, "--share must be above 0 and below 1, got 0.0"),
        ({"share": 1.0}, "below 1"),
        ({"share": math.nan}, "got nan"),
        ({"rate": math.inf}, "--rate must be above 0 and at most 10, got inf"),
        ({"rate": "1"}, "--rate must be a number, got '1'"),
        ({"count": 0}, "--count must be between 1 and 1,000,000,000,000, got 0"),
        ({"n": 4}, "--n must be between 0 and 3, got 4"),
        ({"n": 1.0}, "--n must be a whole number, got 1.0"),
        ({"n": True}, "--n must be a whole number, got True"),
        ({"many": ()}, "--many needs at least one value"),
        ({"many": (1, -1)}, "--many must be between 1"),
    ],
)
def test_a_value_out_of_range_is_refused_however_it_comes(options, message):
    with pytest.raises(UserError, match=message):
        Config(**options)
    with pytest.raises(UserError):
        from_json(Config, options)


def test_ends_belong_to_a_range_unless_they_are_open():
    Config(share=1e-9, rate=10, count=None, n=3, many=(10**12,))
    Config(share=np.float64(0.5), n=np.int64(3))
    assert (0 in Range(0, 1), 1 in Range(0, 1, high_open=True)) == (True, False)
    assert str(Range(0, 1, high_open=True)) == "at least 0 and below 1"


def test_options_of_somebody_elses_class_are_checked_under_their_name():
    @dataclass(frozen=True)
    class Own:
        tau: Annotated[float, above(0, 1)] = 2.0

    with pytest.raises(UserError, match=r"--loss\.tau must be above 0 and at most 1, got 2"):
        check(Own(), "loss.")


def test_the_range_of_a_type_is_found_wherever_it_is():
    assert range_of(Incidental[Count | None]) == range_of(Count) == Range(1, 10**12)
    assert range_of(str) is None
