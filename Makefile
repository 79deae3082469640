# TensorFlow, Keras and Horovod on several workers. `make` lists the targets.
# `make lab10` and `make test` each work on a fresh clone, without any other step.

SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c
# The environment's folder; one clone can hold several.
VENV ?= .venv
BIN := $(VENV)/bin
# Where Open MPI comes from: `own` (the Python registry's, in the environment) or `system` (mpicxx and mpirun on PATH).
# An existing environment's stamp `.ready-default-MPI` says it.
MPI ?= $(or $(patsubst $(VENV)/.ready-default-%,%,$(firstword $(wildcard $(VENV)/.ready-default-*))),own)
STAMP := $(VENV)/.ready-default-$(MPI)
# Two tests at a time, where there are two cores. tests/conftest.py says which.
PYTEST = $(BIN)/python -m pytest $(if $(filter-out 1,$(shell nproc)),-n 2 --no-loadscope-reorder)
# Two notebooks at a time.
BY_FILE = $(PYTEST) $(if $(filter-out 1,$(shell nproc)),--dist loadfile)

# Many container images set it; then every worker of every run compiles TensorFlow's Python code again, for 12 seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help lab10 test test-all test-gpu test-notebooks sizes env horovod notebook notebooks notebook-run site \
    release slurm drill bench pins clean distclean FORCE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

lab10: env ## Train on two workers with a validation split: the first thing to run (20 seconds, after `make env`)
	@$(BIN)/labs run lab10_caltech --workers 2

EVERYDAY := everyday or not (workers or slurm or notebooks or network or slow or gpu)
EVERYDAY_LABS := 01 02 05 10
define check
@$(BIN)/ruff check .
@$(BIN)/mypy
@$(BIN)/lint-imports --no-logo
endef
# Both parts run, whatever fails: $(1) selects tests, $(2) are notebooks.
define tests
@failed=; \
$(PYTEST) $(1) || failed=1; \
$(BY_FILE) --nbval --nbval-sanitize-with tests/notebooks/sanitize.cfg $(2) || failed=1; \
[ -z "$$failed" ]
endef

test: env ## Check style, types and imports; run the everyday tests and four notebooks (nine minutes)
	$(check)
	$(call tests,-m '$(EVERYDAY)',$(foreach lab,$(EVERYDAY_LABS),notebooks/lab$(lab)_*.ipynb))

test-all: env ## Run everything that needs no GPU: all tests, all notebooks (50 minutes)
	$(check)
	$(call tests,-m 'not gpu',notebooks)

test-gpu: ## Train on this node's GPUs, with the active environment (docs/setup.md)
	@nvidia-smi -L
	@$(or $(PYTHON),python) -m pytest -m gpu -s tests/gpu

test-notebooks: env ## Execute the notebooks that `make test` leaves out
	@$(BY_FILE) --nbval --nbval-sanitize-with tests/notebooks/sanitize.cfg \
	    $(filter-out $(wildcard $(foreach lab,$(EVERYDAY_LABS),notebooks/lab$(lab)_*.ipynb)),$(wildcard notebooks/*.ipynb))

sizes: env ## Print the lines of each part, what each lab may load, and the words of each page
	@$(BIN)/python -m tests.sizes

env: $(STAMP) ## Install TensorFlow, Open MPI and Horovod into .venv, and test them; MPI=system, VENV=DIR

# The newest Python first. setup/suitable.py is a separate program because an older Python could not even parse the one
# that needs it. An existing environment is updated by its own Python.
NEWEST := python3.13 python3.12 python3.11 python3 python
CANDIDATES = $(or $(PYTHON),$(if $(REMADE),,$(wildcard $(BIN)/python)) $(NEWEST))
LOOKED_AT := $(or $(PYTHON),$(strip $(NEWEST)))
NO_PYTHON := no Python from 3.11.4 to 3.13 (looked at: $(LOOKED_AT)), which TensorFlow 2.21 needs; \
    install one with its venv module, or give its path: make env PYTHON=/path/to/python3.13
NO_ACTIVE := the active Python ($(or $(PYTHON),python)) is not one from 3.11.4 to 3.13; \
    conda env create -f environment.yml, and activate it
# Runs make_env.py with the words $(1) and the first of the Pythons $(2) that fits them, or prints $(3).
define make_env
@for python in $(2); do \
    if why=$$("$$python" setup/suitable.py $(firstword $(1)) 2>/dev/null); then \
        [ -z "$$unfit" ] || echo "passed over: $$unfit"; \
        exec "$$python" setup/make_env.py $(1); \
    fi; \
    [ -z "$$why" ] || unfit="$${unfit:-$$why}"; \
done; echo "$(firstword $(1)): error: $${unfit:-$(3)}" >&2; exit 1
endef

# The stamp holds the environment's folder and the clone's, because neither can be moved. If site-packages is newer,
# something was installed or removed since, and the smoke test has to run again.
MOVED := $(if $(wildcard $(STAMP)),$(filter-out $(abspath $(VENV)) $(CURDIR),$(file <$(STAMP))))
VERSION := import sys; print('%d.%d' % sys.version_info[:2])
ANOTHER := $(if $(PYTHON),$(if $(wildcard $(VENV)/lib/python$(shell '$(PYTHON)' -c "$(VERSION)" 2>/dev/null)),,FORCE))
REMADE := $(if $(wildcard $(STAMP)),$(MOVED)$(ANOTHER),FORCE)
$(STAMP): pyproject.toml horovod_keras3/pyproject.toml setup/constraints.txt $(wildcard $(addprefix setup/*.,py cmake cc patch)) \
          $(wildcard $(VENV)/lib/python3.*/site-packages) $(if $(REMADE),FORCE)
	$(call make_env,env --mpi '$(MPI)' --venv '$(VENV)',$(CANDIDATES),$(NO_PYTHON))

horovod: ## Build Horovod with NCCL into the active environment, for a GPU node (docs/setup.md)
	$(call make_env,horovod,$(or $(PYTHON),python),$(NO_ACTIVE))

notebook: env ## Open the notebooks in JupyterLab
	@$(BIN)/labs notebook

notebooks: env ## Execute all notebooks, save their outputs, README's pictures and tables of docs (14 minutes)
	@$(BIN)/python notebooks/execute.py && $(BIN)/python notebooks/questions.py && $(BIN)/python notebooks/reports.py

notebook-run: env ## Execute one notebook: make notebook-run LAB=lab05
	@$(BIN)/python notebooks/execute.py '$(or $(LAB),$(error name the lab: make notebook-run LAB=lab05))' && $(BIN)/python notebooks/questions.py && $(BIN)/python notebooks/reports.py

site: env ## Make the course's pages with their outputs in build/site, to read without a network (needs Node.js)
	@$(BIN)/python site/build.py

COMMIT = $(shell git rev-parse --short=8 HEAD)
# Makes the archive for the readers $(1), with the attributes of the file $(2).
archive = git -c tar.umask=0022 -c core.attributesFile=$(2) archive --prefix=labs-$(COMMIT)/ --add-file=dist/RELEASE \
    -o dist/labs-$(COMMIT)-$(1).tar.gz HEAD
release: ## Write the archives for students and instructors into dist/, from the commit, without its history
	@git rev-parse --quiet --git-dir >/dev/null 2>&1 || { echo "$@: error: an archive has no history; run this in a clone" >&2; exit 1; }
	@git diff --quiet HEAD || { echo "$@: error: there are changes that are not committed; git stash, or commit them" >&2; exit 1; }
	@mkdir -p dist && echo release-$(COMMIT) >dist/RELEASE
	@$(call archive,students,setup/students.gitattributes)
	@$(call archive,instructors,/dev/null)
	@ls dist/labs-$(COMMIT)-*

slurm: env ## Run the Slurm tests; they start their own Slurm daemons
	@$(BIN)/python -m pytest -m slurm

drill: env ## Kill a training run 400 times, at random times and during saves; no finished epoch may be lost
	@$(BIN)/python -m tests.drill

bench: env ## Compare the speed of the kit with its alternatives (an hour on an idle machine)
	@$(BIN)/python -m benchmarks

# The pins serve three Pythons. Each package has one version, so the markers can go.
PINS := setup/constraints.txt
pins: env ## Update setup/constraints.txt: the newest compatible versions of what pyproject.toml names
	@{ $(BIN)/uv pip compile -q --upgrade --all-extras --python-version 3.11 --universal --fork-strategy fewest \
	    --no-header --no-annotate --no-emit-index-url pyproject.toml | sed 's/ *;.*//'; grep '^horovod==' $(PINS); } \
	    | LC_ALL=C sort > $(PINS).new && mv $(PINS).new $(PINS)

clean: ## Remove the environments and tool caches; keep work/, data/ and results/
	rm -rf .venv .venv-site build .env-* .pytest_cache .ruff_cache .mypy_cache .import_linter_cache \
	    .hypothesis *.egg-info horovod_keras3/*.egg-info horovod_keras3/build

distclean: clean ## Also remove the kit's caches in data/, the home folder and /tmp; keep work/, results/ and data sets
	rm -rf data/.cache "$${XDG_CACHE_HOME:-$$HOME/.cache}/labs-kit" "$${TMPDIR:-/tmp}"/labs-{"$$(id -u)",keys-*}
