import pytest

from gsf.core.schema import COUNT, DIGEST, LEVELS, NUMBER, POSITIVE, SHAPE, misfit

FORM = {"n": POSITIVE, "name": str, "files": {str: DIGEST}, "share": (None, NUMBER)}
GOOD = {"n": 1, "name": "a", "files": {"x": "0" * 16}, "share": None, "more": object()}


def test_what_fits_has_nothing_wrong():
    assert misfit(GOOD, FORM) is None
    assert misfit(GOOD | {"share": 3}, FORM) is None
    assert misfit([64, 64, 3], SHAPE) is None
    assert misfit([1, "a", 0.5, True], LEVELS) is None


@pytest.mark.parametrize(
    ("found", "form", "said"),
    [
        ([], FORM, "it is a list, not a mapping"),
        ({"n": 1}, FORM, "it lacks 'name'"),
        (GOOD | {"n": True}, FORM, "'n' is True, not a whole number"),
        (GOOD | {"n": 0}, FORM, "'n' is 0, not at least 1"),
        (GOOD | {"n": 2.0}, FORM, "'n' is 2.0, not a whole number"),
        (GOOD | {"name": None}, FORM, "'name' is None, not a text"),
        (GOOD | {"files": {"x": "../etc"}}, FORM, "'x' is '../etc', not 16 hex digits"),
        (GOOD | {"files": {3: "0" * 16}}, FORM, "'files' has the key 3, not a text"),
        (GOOD | {"share": float("nan")}, FORM, "'share' is nan, not a finite number"),
        (GOOD | {"share": "half"}, FORM, "'share' is 'half', not a number"),
        ([64, 64], SHAPE, "it is a list, not height, width and channels"),
        ([64, -1, 3], SHAPE, "it[1] is -1, not between 1 and 65,536"),
        ([], LEVELS, "it is a list, not one that has some"),
        ("x" * 100, COUNT, "it is a text, not a whole number"),
    ],
)
def test_the_first_thing_wrong_is_said(found, form, said):
    assert misfit(found, form) == said
