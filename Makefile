# Two commands for a newcomer: `make quickstart` and `make test`. Everything else calls the same environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Torch is not in the lock: whoever has a build for their card keeps it; everybody else gets this one.
TORCH ?= torch==2.13.0
LOCK := requirements/lock.txt

.DEFAULT_GOAL := help
.PHONY: help quickstart test kernels check format bench docs lock clean

help:
	@echo "make quickstart  the whole path on a synthetic set, ending with a page to read"
	@echo "make test        the tests"
	@echo "make kernels     the tests of the GPU kernels, on a processor by Triton's interpreter"
	@echo "make check       format, lint, types, import contracts"
	@echo "make bench       the benchmarks, as tables and JSON"
	@echo "make docs        the documentation as HTML in build/docs"

$(VENV)/.installed: $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("abomed needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...")'
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { echo "a virtual environment could not be made; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@$(BIN)/python -c 'import torch; v = tuple(int(n) for n in torch.__version__.split(".")[:2]); assert v >= (2, 8)' 2>/dev/null || { echo "installing $(TORCH) (once)"; $(BIN)/python -m pip install --quiet $(TORCH); }
	@echo "installing the locked packages (once)"
	@$(BIN)/python -m pip install --quiet --require-hashes -r $(LOCK)
	@$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

quickstart: $(VENV)/.installed
	@$(BIN)/abomed quickstart

test: $(VENV)/.installed
	@$(BIN)/python -m pytest -n auto $(ARGS)

# Triton comes with PyTorch for CUDA, where it must stay as it is; elsewhere it is fetched for its interpreter alone.
kernels: $(VENV)/.installed
	@PYTHONPATH=$(VENV)/triton $(BIN)/python -c 'import triton' 2>/dev/null || $(BIN)/python -m pip install --quiet --no-deps --target $(VENV)/triton triton
	@TRITON_INTERPRET=1 PYTHONPATH=$(VENV)/triton $(BIN)/python -m pytest -m kernel $(ARGS)

check: $(VENV)/.installed
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/.installed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.installed
	@mkdir -p results/benchmarks
	@for name in adapt augment episodes iteration open_pack pack synthetic; do echo "== $$name"; $(BIN)/python -m benchmarks.$$name --out results/benchmarks/$$name.json || exit 1; done

docs: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/lock-docs.txt
	@$(BIN)/mkdocs build --quiet --strict
	@echo "open build/docs/index.html"

# Host names of package registries stay out of the lock: name==version and hashes only.
lock: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv lock --quiet --upgrade
	@$(BIN)/uv export --quiet --extra data --extra dev --prune torch --no-emit-project --no-header --no-annotate -o $(LOCK) > /dev/null
	@$(BIN)/uv export --quiet --extra docs --prune torch --no-emit-project --no-header --no-annotate -o requirements/lock-docs.txt > /dev/null

clean:
	rm -rf $(VENV) build dist quickstart .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
