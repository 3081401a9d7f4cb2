# `make demo` and `make test` are all you need to start; each sets up .venv the first time.

PYTHON ?= python3
BIN := .venv/bin
# requirements.lock pins every version; each target installs only the extras it needs.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock

.PHONY: help demo test test-all coverage soak check dist format bench screenshot docs lock clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

# Another seed, or the 60 rounds of the documentation: make demo SEED=7 ROUNDS=60
SEED ?= 0
ROUNDS ?= 20
demo: .venv/ready-demo ## train six methods on bundled data, print the table, write the report
	$(BIN)/e2fl compare demo --seeds $(SEED) --set rounds=$(ROUNDS) \
	  --algorithms local,fedavg,fedavg_by_group,fedavg_finetuned,e2fl,e2fl_steady

PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
# TESTS are the files or folders to test; default: all.
TESTS ?=
test: .venv/ready-dev ## run the tests, or some: TESTS=tests/rankings; slow ones are left to test-all
	$(PYTEST) -m "not slow" $(TESTS)

test-all: .venv/ready-all ## run all tests: browsers, Flower's processes, notebooks, the site, the soak
	$(PYTEST)
	$(MAKE) docs soak

coverage: .venv/ready-dev ## run the fast tests and show which lines they do not reach
	$(PYTEST) -m "not slow" --cov --cov-report=term-missing:skip-covered

# How long `make soak` runs.
SECONDS ?= 60
soak: .venv/ready-dev ## kill runs and mutate files and messages for SECONDS, and print the counts
	$(BIN)/python -m benchmarks.soak --seconds $(SECONDS)

check: .venv/ready-dev dist ## formatting, lint, types, and the distributions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The environment has what builds need, so that none is made for each distribution.
dist: .venv/ready-dev ## build the distributions into dist/ and check them
	rm -rf dist
	for project in . $(wildcard packages/*); do \
	  $(BIN)/python -m build --no-isolation --outdir dist $$project > /dev/null || exit 1; done
	$(BIN)/python -m twine check --strict dist/*

format: .venv/ready-dev ## format the code, and store the reference of all settings
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m e2fl.config.listing

bench: .venv/ready-dev ## measure the speed of this machine, as ratios
	$(BIN)/python -m benchmarks

# REPORT is the page to take a screenshot of.
REPORT ?= runs/demo-compare-1/report.html
screenshot: ## take a screenshot of the demo's report for the README; needs chromium
	chromium --headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update \
	  --disable-sync --no-first-run --hide-scrollbars --user-data-dir=$$(mktemp -d) --window-size=1120,1400 \
	  --virtual-time-budget=20000 --screenshot=docs/report.png file://$(abspath $(REPORT))

docs: .venv/ready-docs ## build the documentation site into site/; warnings are errors
	$(BIN)/python docs/generate.py build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lock: ## pin the newest versions that pyproject.toml allows
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet 'torch==2.13.0'
	.venv-lock/bin/python -m pip install --quiet $(wildcard packages/*) '.[$(EXTRAS),ray,track]'
	{ sed -n '/^#/p' requirements.lock; \
	  .venv-lock/bin/python -m pip freeze --exclude e2fl --exclude e2fl-audit | sed 's/+cpu$$//'; } \
	  > .venv-lock/pins
	mv .venv-lock/pins requirements.lock && rm -rf .venv-lock

clean: ## remove what these targets made, except runs/
	rm -rf .venv .venv-lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build dist site
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "e2fl needs Python 3.11 or later; choose one with: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv

.venv/ready-demo: pyproject.toml packages/audit/pyproject.toml requirements.lock | .venv/bin/python
	@echo "installing e2fl and what the demo needs into .venv; this takes a minute or two"
	$(PIP) --editable . --editable packages/audit
	@touch $@

# What `make check` and `make test` need. Ray and the trackers are large, and only slow tests use them.
EXTRAS := flower,tune,dev,docs
.venv/ready-dev: pyproject.toml packages/audit/pyproject.toml requirements.lock | .venv/bin/python
	@echo "installing e2fl and what its tests need into .venv; this takes a few minutes"
	$(PIP) --editable '.[$(EXTRAS)]' --editable packages/audit
	@touch $@ .venv/ready-demo .venv/ready-docs

.venv/ready-all: pyproject.toml packages/audit/pyproject.toml requirements.lock | .venv/bin/python
	@echo "installing e2fl and what all of its tests need into .venv; this takes a few minutes"
	$(PIP) --editable '.[$(EXTRAS),ray,track]' --editable packages/audit
	@touch $@ .venv/ready-dev .venv/ready-demo .venv/ready-docs

.venv/ready-docs: pyproject.toml packages/audit/pyproject.toml requirements.lock | .venv/bin/python
	@echo "installing e2fl and what its documentation needs into .venv; this takes a minute or two"
	$(PIP) --editable '.[docs]' --editable packages/audit
	@touch $@ .venv/ready-demo
