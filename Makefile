# Each target makes .venv and installs the tested versions when needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo demo-short demo-real test test-fast check bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	DS_BUILD_OPS=0 $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	mkdir -p $(VENV)/types && ln -sfn "$(CURDIR)" $(VENV)/types/ropewalk
	touch $(READY)

demo: $(READY)
	$(BIN)/ropewalk demo

demo-short: $(READY)
	$(BIN)/ropewalk demo --short --out out/demo-short

demo-real: $(READY)
	$(BIN)/ropewalk demo-real

test: $(READY)
	$(BIN)/python -m pytest

test-fast: $(READY)
	$(BIN)/python -m pytest -m "not slow"

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m pytest tests/test_imports.py
	$(BIN)/ropewalk check recipes/*.yaml

bench: $(READY)
	@for script in $(filter-out bench/common.py,$(wildcard bench/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) build *.egg-info
