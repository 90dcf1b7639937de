# Everything needed to work on perdure. Requires only Python 3.11+ and a package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=

# Folders that hold our Python; those that do not exist yet are left out.
CODE   := $(wildcard src tests examples benchmarks)

.PHONY: all .venv check format test soak demo bench clean

all: test

.venv: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(STAMP)

check: $(STAMP)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

test: check
	$(BIN)/pytest -q $(ARGS)

soak: $(STAMP)
	$(BIN)/pytest -q -m soak $(ARGS)

demo: $(STAMP)
	$(BIN)/python examples/demo.py $(ARGS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
