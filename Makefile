# `make` alone checks everything; `make help` lists the rest.
# Every target sets up what it needs: Python 3.11 or later and make are enough.

PYTHON ?= python3
JOBS ?= auto
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
MODEL_VENV := .venv-model
MODEL_INSTALLED := $(MODEL_VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := check
.DELETE_ON_ERROR:
.PHONY: help check demo test cov bench style lint types contracts fix lock install local-model \
	record-demo key-stability soak oracles

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | sort \
		| while IFS='|' read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done
	@echo
	@echo '  PYTHON=python3.12 picks the interpreter, JOBS=1 the number of test processes;'
	@echo '  demo, test, cov and bench hand ARGS="..." on.'

check: style lint types contracts test ## Format, lint, types, import contracts, tests (the default)

demo: $(INSTALLED) ## Run the main job on the committed snapshot, offline, without a key
	@$(BIN)/backtester demo $(ARGS)

test: $(INSTALLED) ## Run the tests
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

cov: $(INSTALLED) ## Run the tests and print line and branch coverage
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --cov --cov-report term:skip-covered $(ARGS)

bench: $(INSTALLED) ## Measure speed against its floors, and name the machine
	@$(BIN)/python -m benchmarks.run $(ARGS)

style: $(INSTALLED) ## Check the formatting
	@$(BIN)/ruff format --check .

lint: $(INSTALLED) ## Check the lint rules
	@$(BIN)/ruff check .

types: $(INSTALLED) ## Check the types
	@$(BIN)/mypy

contracts: $(INSTALLED) ## Check that imports point down
	@$(BIN)/lint-imports

fix: $(INSTALLED) ## Format, and mend what the linter can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: $(INSTALLED) ## Pin every dependency anew (needs a package index; UPGRADE=1 takes newer ones)
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe \
		--strip-extras --all-extras --annotation-style=line $(if $(UPGRADE),--upgrade) \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--constraint=requirements.constraints --output-file=requirements.lock pyproject.toml

install: $(INSTALLED) ## Set up .venv and nothing else

local-model: $(MODEL_INSTALLED) ## Set up a real language model of 135 million parameters (220 MB)

key-stability: $(INSTALLED) ## Derive known keys under two versions of the client (needs a package index)
	@$(BIN)/python scripts/key_stability.py

soak: $(INSTALLED) ## Simulate thousands of histories without an effect, and write the table of levels
	@$(BIN)/python -m benchmarks.soak --into docs/statistics.md --date $$(date +%F) $(ARGS)

oracles: $(INSTALLED) ## Hold the statistics against two more libraries, in an environment of their own
	@$(BIN)/python scripts/oracles.py $(ARGS)

record-demo: $(INSTALLED) $(MODEL_INSTALLED) ## Record the real-model demo anew (half an hour)
	@$(BIN)/python scripts/record_real_model.py --model-python $(MODEL_VENV)/bin/python $(ARGS)

$(MODEL_INSTALLED): scripts/local_model.lock
	@echo "Setting up $(MODEL_VENV) ..."
	@test -x $(MODEL_VENV)/bin/pip || $(PYTHON) -m venv --clear $(MODEL_VENV)
	@$(MODEL_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --quiet --no-deps \
		--require-hashes -r scripts/local_model.lock
	@touch $@

# The stamp is written last: an install that was interrupted is done again.
$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, this is " \
		+ sys.version.split()[0] + ": make PYTHON=/path/to/python3.11" \
		if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV) ..."
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --quiet --quiet --require-hashes -r requirements.lock
	@$(PIP) install --quiet --quiet --no-deps --no-build-isolation --editable .
	@touch $@
