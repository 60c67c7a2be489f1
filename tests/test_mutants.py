"""The table of `make mutants` does not rot: what it changes is there."""

from mutants import SOURCES, TABLE, read


def test_every_change_fits_the_sources_as_they_are():
    mutants = read(TABLE.read_text())
    assert not [x.fault for x in mutants if x.fault]
    assert len({x.name for x in mutants}) == len(mutants) >= 69
    assert {x.file for x in mutants} <= {str(x.relative_to(SOURCES)) for x in SOURCES.rglob("*.py")}
