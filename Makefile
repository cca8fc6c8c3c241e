# Every target does the set-up it needs: a virtual environment in .venv with the versions locked in requirements/.
# PYTHON chooses the interpreter, ARGS goes to pytest.

PYTHON ?= python3
ARGS ?=
BENCHES = startup trace schedulers control_routes detectors diagnosis timeline logs
LONG_BENCHES = promo_rush faults forecast soak control
UV = 0.13.8
# torch is apart from the lock. If pip's configuration offers the CPU build with a known hash, that one is installed;
# otherwise the one of the package index, on Linux with CUDA.
TORCH := $(shell sed -n 's/.*"\(torch==[^"]*\)".*/\1/p' pyproject.toml)
TORCH_AND_ITS_OWN = torch filelock fsspec mpmath networkx sympy
PYTRITON = nvidia-pytriton==0.7.0

VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/dev.txt
# The name of the stamp holds what the environment is made from, so a changed lock is a missing stamp. The interpreter's
# own words are in it too; of pyproject.toml only the entry points matter, and they too are cheap to install again.
KEY := $(shell { cat $(LOCK) requirements/torch*.txt pyproject.toml; $(PYTHON) --version; } 2>&1 | cksum | cut -d ' ' -f 1)
READY := $(VENV)/.set-up-$(KEY)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help venv demo test lint types layers check bench bench-long lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "latdoctor needs Python 3.11 or later, and $(PYTHON) is not: try make PYTHON=python3.12"; exit 1; }
	@echo "Setting up $(VENV): the versions locked in $(LOCK), then latdoctor itself; the first time takes a minute or two."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement $(LOCK)
	@if $(BIN)/python -m pip install --quiet --dry-run --no-deps --require-hashes \
	    --requirement requirements/torch-cpu-wheels.txt 2> /dev/null; \
	  then file=torch-cpu; else echo "No $(TORCH)+cpu with a known hash is offered: this may take gigabytes."; file=torch; fi; \
	  $(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/$$file.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/.set-up-*
	@touch $@

venv: $(READY) ## set up the environment in .venv, and no more

demo: ## play a real incident live, diagnose it while it happens and mend it (four minutes; FORCE=1 on a busy machine)
	@test -n "$(FORCE)" || ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  PYTHONPATH=src $(PYTHON) -m latdoctor.load.machine_state
	@$(MAKE) --no-print-directory $(READY)
	@$(BIN)/latdoctor demo $(if $(FORCE),--force)

test: $(READY) ## run the tests (ARGS="-n 0 tests/test_units.py" for some of them, one after another)
	$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

lint: $(READY) ## ruff: rules and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY) ## mypy, strict
	$(BIN)/mypy

layers: $(READY) ## import-linter: no module imports upward
	$(BIN)/lint-imports

check: test lint types layers ## everything that CI checks

bench: $(READY) ## run the short benchmarks in bench/ (a minute or two)
	@set -e; for name in $(BENCHES); do echo "bench.$$name"; $(BIN)/python -m "bench.$$name"; done

bench-long: $(READY) ## run the long ones (an hour and a half, on a machine that does nothing else)
	@set -e; for name in $(LONG_BENCHES); do echo "bench.$$name"; $(BIN)/python -m "bench.$$name"; done
	@echo bench/peers; $(BIN)/python -m bench.peers

lock: ## choose versions anew within pyproject.toml's ranges, and write requirements/
	@grep -q '^$(TORCH)+cpu ' requirements/torch-cpu-wheels.txt || \
	  { echo "Write the hashes of $(TORCH)+cpu into requirements/torch-cpu-wheels.txt first."; exit 1; }
	@$(PYTHON) -m venv .cache/lock
	@.cache/lock/bin/python -m pip install --quiet uv==$(UV)
	@set -e; compile() { .cache/lock/bin/uv pip compile --universal --python-version 3.11 --generate-hashes \
	  --upgrade --quiet --no-annotate --custom-compile-command "make lock" "$$@"; }; \
	  compile pyproject.toml --output-file requirements/base.txt; \
	  echo "torch; sys_platform == 'never'" > .cache/lock/without-torch.txt; \
	  compile pyproject.toml --extra dev --extra kubernetes --extra lab --extra plan --extra tables --override .cache/lock/without-torch.txt \
	    --output-file requirements/dev.txt $(TORCH_AND_ITS_OWN:%=--no-emit-package %); \
	  echo "$(TORCH)" > .cache/lock/torch.in; \
	  compile .cache/lock/torch.in --constraint requirements/dev.txt --output-file requirements/torch.txt; \
	  { cat requirements/torch-cpu-wheels.txt; \
	    awk '/^[a-z]/ { kept = !/^(torch=|triton=|nvidia-|cuda-)/ } kept' requirements/torch.txt; \
	  } > requirements/torch-cpu.txt; \
	  echo "$(PYTRITON)" > .cache/lock/pytriton.in; \
	  compile .cache/lock/pytriton.in --output-file requirements/pytriton.txt; \
  compile pyproject.toml --extra locust --constraint requirements/dev.txt --output-file requirements/locust.txt
	@echo "Wrote requirements/: base.txt (what latdoctor runs with), dev.txt (and what checks it), torch*.txt, pytriton.txt and locust.txt."

clean: ## remove the environment and every cache
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
