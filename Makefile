# TensorFlow, Keras and Horovod on several workers. `make` lists the targets.
# `make lab10` and `make test` each work on a fresh clone, without any other step.

SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c
BIN := .venv/bin
# Where Open MPI comes from: `own` (the Python registry's, inside .venv) or `system` (mpicxx and mpirun on PATH).
# Without MPI=, an existing environment keeps its choice.
MPI ?= $(or $(patsubst .venv/.ready-%,%,$(firstword $(wildcard .venv/.ready-*))),own)
STAMP := .venv/.ready-$(MPI)
# Two tests at a time, where there are two cores. tests/conftest.py says which.
PYTEST = $(BIN)/python -m pytest $(if $(filter-out 1,$(shell nproc)),-n 2 --no-loadscope-reorder)

# Many container images set it; then every worker of every run compiles TensorFlow's Python code again, for 12 seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help lab10 test test-fast env horovod notebook notebooks notebook-run lab slurm drill bench pins clean FORCE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

lab10: env ## Train on two workers with a validation split: the first thing to run (a minute, after `make env`)
	@$(BIN)/labs run lab10_caltech --workers 2

test: env ## Check style, types and imports, run all tests, execute the notebooks
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(PYTEST)
	@if compgen -G 'notebooks/*.ipynb' >/dev/null; then \
	    $(BIN)/python -m pytest --nbval --nbval-sanitize-with tests/notebooks/sanitize.cfg notebooks; fi

test-fast: env ## Check style, types and imports, run the tests that take less than a few seconds each (3 minutes)
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(PYTEST) -m 'not (workers or slurm or notebooks or network or slow)'

env: $(STAMP) ## Install TensorFlow, Open MPI and Horovod into .venv, and test them (MPI=system: the site's MPI)

# The search for Python 3.11 is here because an older Python could not even parse the program that needs it.
CANDIDATES := $(or $(PYTHON),python3.11 python3 python)
NO_PYTHON := env: error: no Python 3.11 from 3.11.4 on (looked at: $(CANDIDATES)), which TensorFlow 2.15 needs; \
    install it with its venv module, or give its path: make env PYTHON=/path/to/python3.11
NO_ACTIVE := horovod: error: the active Python ($(or $(PYTHON),python)) is not 3.11.4 or a newer 3.11; \
    conda env create -f environment.yml, and activate it
define make_env
@for python in $(1); do \
    "$$python" -c 'import sys; sys.exit(not (3, 11, 4) <= sys.version_info < (3, 12))' 2>/dev/null \
        && exec "$$python" setup/make_env.py $(2); \
done; echo '$(3)' >&2; exit 1
endef

# The stamp contains the folder that it was made in, because an environment cannot be moved. If site-packages is newer,
# something was installed or removed since, and the smoke test has to run again.
MOVED := $(if $(wildcard $(STAMP)),$(filter-out $(CURDIR),$(file <$(STAMP))))
$(STAMP): pyproject.toml constraints.txt $(wildcard setup/*.py setup/*.cmake) \
          $(wildcard .venv/lib/python3.11/site-packages) $(if $(MOVED),FORCE)
	$(call make_env,$(CANDIDATES),env --mpi $(MPI),$(NO_PYTHON))

horovod: ## Build Horovod with NCCL into the active environment, for a GPU node (docs/gpu-environment.md)
	$(call make_env,$(or $(PYTHON),python),horovod,$(NO_ACTIVE))

notebook: env ## Open the notebooks in JupyterLab
	@$(BIN)/labs notebook

notebooks: env ## Execute all notebooks, save their outputs and README's pictures (13 minutes)
	@$(BIN)/python notebooks/execute.py

notebook-run: env ## Execute one notebook: make notebook-run LAB=lab05
	@$(BIN)/python notebooks/execute.py '$(or $(LAB),$(error name the lab: make notebook-run LAB=lab05))'

lab: env ## Make a new lab that trains and passes all tests: make lab NAME=lab13_compression
	@$(BIN)/python -m scaffold.make_lab '$(or $(NAME),$(error name the lab: make lab NAME=lab13_compression))'
	@touch $(STAMP)  # The new row in pyproject.toml installs nothing.

slurm: env ## Run the Slurm tests; they start their own Slurm daemons
	@$(BIN)/python -m pytest -m slurm

drill: env ## Kill a training run 1,000 times, at random times and during saves; nothing may be lost (an hour)
	@$(BIN)/python -m tests.drill --kills 1000 --keep results/drill.json

bench: env ## Compare the speed of the kit with its alternatives (an hour on an idle machine)
	@$(BIN)/python -m benchmarks

pins: env ## Update constraints.txt: the newest compatible versions of what pyproject.toml names
	@{ $(BIN)/uv pip compile -q --upgrade --all-extras --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
	    --no-header --no-annotate --no-emit-index-url pyproject.toml; grep '^horovod==' constraints.txt; } \
	    | sort > constraints.new && mv constraints.new constraints.txt

clean: ## Remove the environment and caches; keep data and results
	rm -rf .venv .env-* .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis *.egg-info
