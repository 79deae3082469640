# TensorFlow, Keras and Horovod on several workers. `make` says what there is.
# `make lab10` and `make test` are enough, each on its own, on a fresh clone.

SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c
BIN := .venv/bin
# Where Open MPI comes from: `own` (the Python registry's, inside .venv) or `system` (mpicxx and mpirun on PATH).
# Said once, it holds: without MPI= an environment stays what it was made with.
MPI ?= $(or $(patsubst .venv/.ready-%,%,$(firstword $(wildcard .venv/.ready-*))),own)
STAMP := .venv/.ready-$(MPI)

# Set in many images; every worker of every run would compile TensorFlow's Python code anew, for 12 seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help lab10 test env horovod notebooks notebook slurm drill bench pins clean FORCE

help: ## Say what there is to make
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

lab10: env ## Train on two workers with a validation split: the first thing to run (a minute, after the environment)
	@$(BIN)/labs run lab10_caltech --workers 2

test: env ## Lint, check types, run all tests, execute the notebooks
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest
	@if compgen -G 'notebooks/*.ipynb' >/dev/null; then \
	    $(BIN)/python -m pytest --nbval --nbval-sanitize-with tests/notebooks/sanitize.cfg notebooks; fi

env: $(STAMP) ## Make the environment in .venv: TensorFlow, Open MPI, Horovod, and a proof (MPI=system: the site's MPI)

# Python 3.11 is looked for here, because an older one could not read the program that needs it.
CANDIDATES := $(or $(PYTHON),python3.11 python3 python)
NO_PYTHON := env: error: no Python 3.11 from 3.11.4 on (looked at: $(CANDIDATES)), which TensorFlow 2.15 needs; \
    install it with its venv module, or name one: make env PYTHON=/path/to/python3.11
NO_ACTIVE := horovod: error: the active Python ($(or $(PYTHON),python)) is not 3.11.4 or a newer 3.11; \
    conda env create -f environment.yml, and activate it
define make_env
@for python in $(1); do \
    "$$python" -c 'import sys; sys.exit(not (3, 11, 4) <= sys.version_info < (3, 12))' 2>/dev/null \
        && exec "$$python" setup/make_env.py $(2); \
done; echo '$(3)' >&2; exit 1
endef

# The stamp names the folder it was made in: an environment does not survive a move. And if site-packages is newer,
# something was installed or removed since: then the proof is due again.
MOVED := $(if $(wildcard $(STAMP)),$(filter-out $(CURDIR),$(file <$(STAMP))))
$(STAMP): pyproject.toml constraints.txt $(wildcard setup/*.py setup/*.cmake) \
          $(wildcard .venv/lib/python3.11/site-packages) $(if $(MOVED),FORCE)
	$(call make_env,$(CANDIDATES),env --mpi $(MPI),$(NO_PYTHON))

horovod: ## Build Horovod with NCCL into the active environment, for a GPU node (docs/gpu-environment.md)
	$(call make_env,$(or $(PYTHON),python),horovod,$(NO_ACTIVE))

notebooks: env ## Execute all notebooks again and keep their outputs, and README's pictures
	@$(BIN)/jupyter nbconvert --to notebook --execute --inplace notebooks/*.ipynb
	@$(BIN)/python docs/pictures/take.py

notebook: env ## Open JupyterLab on the notebooks, for this machine alone, with a token
	@$(BIN)/labs notebook

slurm: env ## Run the Slurm tests, on daemons started for them
	@$(BIN)/python -m pytest -m slurm

drill: env ## Kill a training run 1,000 times, at random moments and inside saves, and see that nothing is lost (an hour)
	@$(BIN)/python -m tests.drill --kills 1000 --keep results/drill.json

bench: env ## Measure the kit against what one would use instead, in turns (an hour on a machine left alone)
	@$(BIN)/python -m benchmarks

pins: env ## Write constraints.txt anew from pyproject.toml: the newest versions that go together
	@{ $(BIN)/uv pip compile -q --upgrade --all-extras --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
	    --no-header --no-annotate --no-emit-index-url pyproject.toml; grep '^horovod==' constraints.txt; } \
	    | sort > constraints.new && mv constraints.new constraints.txt

clean: ## Remove the environment and caches; data and results stay
	rm -rf .venv .env-* .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info
