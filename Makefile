# Both targets start from nothing but Python 3.11, git and make.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: run test torture lint docs wheel browser clean

run: .venv/run
	$(BIN)/gsf run --preset laptop --out results/laptop

test: .venv/dev lint browser
	$(BIN)/python -m pytest -n 2 --dist loadgroup  # one Ray cluster at a time

# All of the attack that `make test` tries a little of (docs/reliability.md).
torture: .venv/dev
	PYTHONPATH=tests $(BIN)/python -m torture

lint: .venv/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation, in build/site; a warning is an error.
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # (--quiet would pass over warnings)

# What others install, in build/wheel. Built anew: setuptools would keep files that are gone.
wheel: .venv/dev
	rm -rf build/lib build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	ls build/wheel

# The report is tested in a real browser.
browser:
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -qq --yes --no-install-recommends chromium) || true

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

.venv/dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	touch $@

.venv/docs: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv build results
