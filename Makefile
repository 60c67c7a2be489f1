# Both targets start from nothing but Python 3.11, git and make.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: run test lint clean

run: .venv/run
	$(BIN)/gsf run --preset laptop --out results/laptop

test: .venv/dev lint
	$(BIN)/python -m pytest -n 2

lint: .venv/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

.venv/dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build results
