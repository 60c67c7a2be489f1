# `run` and `test` start from nothing but Python, git and make.
PYTHON ?= python3
BIN := .venv/bin
CONSTRAINTS ?= constraints.txt  # or tested.txt: the version of everything that the tests are run with
PIP = $(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS)
PYTEST ?= -n 2 --dist loadfile  # what a file's tests share is made once

.PHONY: run test test-all test-slow test-lowest test-numpy2 mutants torture lint docs wheel browser clean

run: .venv/run
	$(BIN)/gsf run --preset laptop --out results/laptop

test: .venv/dev lint browser
	$(BIN)/python -m pytest $(PYTEST)

# And what is slow by nature: a Ray cluster, a sweep from the wheel, a sample of `make torture`.
test-all: test test-slow

test-slow: .venv/dev
	$(BIN)/python -m pytest $(PYTEST) -m slow

# The lowest versions that pyproject.toml allows, in an environment of their own. Torch is that of
# constraints.txt: other versions bring gigabytes of CUDA. CONTRIBUTING.md says what came of it.
test-lowest: BIN := build/lowest/bin
test-lowest:
	$(PYTHON) -m venv --clear build/lowest
	$(PYTHON) tests/requirements.py lowest > build/lowest/pins.txt
	$(PIP) --constraint build/lowest/pins.txt --editable '.[dev,wandb]'
	$(BIN)/python -m pytest $(PYTEST) -m ''

# All that needs no Procgen, without it and with the newest NumPy.
test-numpy2: BIN := build/numpy2/bin
test-numpy2:
	$(PYTHON) -m venv --clear build/numpy2
	$(PYTHON) tests/requirements.py numpy2 > build/numpy2/requirements.txt
	$(PIP) --requirement build/numpy2/requirements.txt
	$(PIP) --no-deps --editable .
	$(BIN)/python -m pytest $(PYTEST) -m ''

# Small wrong changes to gsf: each must be noticed by the test that the table names.
mutants: .venv/dev
	PYTHONPATH=tests $(BIN)/python -m mutants

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

# After `make test` has passed: what it passed with (Linux, Python 3.11).
tested.txt: .venv/dev
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > $@

# The report is tested in a real browser.
browser:
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -qq --yes --no-install-recommends chromium) || true

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing gsf and what it needs into .venv (torch is the largest): a few minutes, once."
	$(PIP) --editable .
	touch $@

.venv/dev: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing gsf, what it needs and what tests it into .venv: a few minutes, once."
	$(PIP) --editable '.[dev]'
	touch $@

.venv/docs: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv build results
