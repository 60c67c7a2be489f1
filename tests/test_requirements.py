"""What is installed to try other versions is what pyproject.toml asks for."""

import re

from requirements import lowest, numpy2, requirements


def names(lines):
    return {re.match(r"[\w-]+", line)[0] for line in lines}


def test_everything_has_a_lowest_version_that_is_tried():
    assert names(lowest()) == names(requirements()) - {"torch", "procgen-mirror"}
    assert "gymnasium==1.1" in lowest()
    assert "minari==0.5.3" in lowest()  # though it is asked for with an extra


def test_numpy_2_is_tried_with_all_but_procgen_and_its_limits():
    assert names(numpy2()) == names(requirements()) - {"procgen-mirror"}
    assert not any("pyarrow<" in line or ";" in line for line in numpy2())
    assert any(line.startswith("pyarrow<26; ") for line in requirements())
