# On a machine with python3 and make: `make demo` shows what bigbatch does, `make test` proves that it does it.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-js test-browser test-realdata test-slow test-papers fuzz test-faults horovod test-horovod bench-optim golden format clean

demo: .venv/installed
	$(BIN)/bigbatch demo

test: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

# Checks the types of the viewer's page (JSDoc). TypeScript goes into a folder that nothing else sees.
TYPESCRIPT := typescript@5.9.3
test-js:
	npm install --no-save --no-package-lock --no-audit --no-fund --loglevel error --prefix .node $(TYPESCRIPT)
	.node/node_modules/.bin/tsc --project tsconfig.json

test-realdata: .venv/installed-dev
	$(BIN)/python -m pytest -m "realdata and not slow"

# needs a Chromium on the machine (Debian: apt-get install chromium)
test-browser: .venv/installed-dev
	$(BIN)/python -m pytest -m browser

test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m slow

# processes killed, pipes and terminals closed, disks filled: each promise of docs/reliability.md
test-faults: .venv/installed-dev
	$(BIN)/python -m pytest -m "faults and not horovod"

# damaged input for every reader of files; the default tests run the first 60 of them
fuzz: .venv/installed-dev
	FUZZ_INPUTS=100000 $(BIN)/python -m pytest tests/fuzz

# every table and figure of the papers at the smoke scale
test-papers: .venv/installed-dev
	$(BIN)/python -m pytest -m papers

# builds Horovod where there is no wheel of it for this Python and torch; needs cmake, make and g++
horovod: .venv/installed
	tools/horovod.sh

test-horovod: .venv/installed-dev horovod
	$(BIN)/python -m pytest -m horovod

# The peers come without what they depend on (torch is there), into a folder that nothing else sees.
bench-optim: .venv/installed
	$(BIN)/pip install --quiet --no-deps --upgrade --target .bench-peers -r benchmarks/requirements.txt
	PYTHONPATH=.bench-peers $(BIN)/python benchmarks/optim_step.py

# after a change that is meant to change results: tests/test_golden.py compares with what this records
golden: .venv/installed-dev
	$(BIN)/python tests/helpers/golden.py record

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .bench-peers .node build *.egg-info .pytest_cache .mypy_cache .ruff_cache

# Stamps, so that an unchanged project is not installed again. torch comes first and alone: named by another package
# before it is there, it would be taken in a build with gigabytes for GPUs.
.venv/torch: constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch
	touch $@

.venv/installed: .venv/torch pyproject.toml
	$(PIP) --editable '.[filter,plot]'
	touch $@

.venv/installed-dev: .venv/torch pyproject.toml
	$(PIP) --editable '.[dev]'
	touch $@ .venv/installed
