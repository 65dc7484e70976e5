# The menu.  `make demo` and `make test` work from a fresh clone: each does its own set-up.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test check conformance bench format clean

setup: .venv/.installed  ## create .venv with everything; install kubectl if it is missing and we may

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --editable . --group dev
	@touch $@

format: setup  ## rewrite the sources in the house format
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check --fix --quiet src tests bench

check: setup  ## format, lint, types, import rules, fast tests
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n 2 -m "not slow"

test: setup  ## every test
	$(BIN)/pytest -q -n 2
