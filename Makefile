# Two commands on a fresh machine: `make demo`, `make test`. Everything lands in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test chaos soak exam check bench bench-gpu docs coverage clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# torch by plain pip and pinned: it is the user's own, so it stands in no dependency of ours.
$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c "import sys; sys.version_info >= (3, 11) or \
	    sys.exit('the pinned tools need Python 3.11 or later: make PYTHON=python3.11 ...')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: $(STAMP)  ## six examples: claimed, what torch does, the doctor's word, our loader
	$(BIN)/penstock demo

test: $(STAMP)  ## the tests, with a fixed part of the chaos suite
	$(BIN)/python -m pytest

chaos: $(STAMP)  ## every hostile scenario: signals, forks, limits; minutes, on a quiet machine
	$(BIN)/python -m pytest -m "slow or not slow" tests/chaos tests/conformance tests/lab

soak: $(STAMP)  ## half an hour of loaders, epochs, early breaks and kills: does anything grow?
	$(BIN)/python -m tests.chaos.storm soak

exam: $(STAMP)  ## the doctor on a corpus of sick and healthy programs; prints its bars
	$(BIN)/python -m tests.clinic.examine

check: $(STAMP)  ## style, types, rooms, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell src tests bench docs README.md CONTRIBUTING.md
	$(BIN)/python scripts/docs.py --check

coverage: $(STAMP)  ## tests with branch coverage, worker processes included
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine
	$(BIN)/coverage report

bench: $(STAMP) .venv-bench/.installed  ## our loader against torch and its peers; prints tables
	.venv-bench/bin/python -m bench.run
	.venv-bench/bin/python -m bench.other

# The peers live apart: some of them would move torch.
.venv-bench/.installed: bench/requirements.txt
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --no-deps -r bench/requirements.txt
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

bench-gpu:  ## on a GPU host: transfer rate and the side-stream stress test, with the host's own torch
	PYTHONPATH=src python3 -m bench.gpu

docs: $(STAMP)  ## write the generated pages
	$(BIN)/python scripts/docs.py

clean:  ## remove what was built
	rm -rf $(VENV) .venv-bench build dist site .coverage* .pytest_cache .mypy_cache .ruff_cache
