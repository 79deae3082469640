"""Pins: every package is pinned once, with the same version everywhere."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib

import pytest
import yaml
from packages import CONSTRAINTS
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.setup.clone import ROOT, STACK

LINES = {stack: (ROOT / name).read_text().splitlines() for stack, name in CONSTRAINTS.items()}
PINS = {stack: dict(line.split("==") for line in lines) for stack, lines in LINES.items()}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
WANTED = PROJECT["dependencies"] + [line for extra in EXTRAS.values() for line in extra]
*CONDA, PIP = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
CONDA, PIP = dict(entry.split("=") for entry in CONDA), PIP["pip"]
GPU_FILE = next(entry.removeprefix("-c ") for entry in PIP if entry.startswith("-c "))
GPU_PINS = next(PINS[stack] for stack, name in CONSTRAINTS.items() if name == GPU_FILE)


@pytest.mark.parametrize("stack", CONSTRAINTS)
def test_constraints_are_plain_pins(stack):
    lines = LINES[stack]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][\w.]*", line) for line in lines)
    assert len(PINS[stack]) == len(lines)
    assert sorted(lines) == lines


@pytest.mark.parametrize("stack", CONSTRAINTS)
@pytest.mark.parametrize("wanted", WANTED)
def test_every_dependency_is_pinned_within_what_pyproject_asks(wanted, stack):
    requirement = Requirement(wanted)
    assert requirement.specifier.contains(PINS[stack][canonicalize_name(requirement.name)])


def test_the_stacks_are_what_their_names_say():
    assert PINS["default"]["tensorflow"].startswith("2.21.")
    assert PINS["default"]["keras"].startswith("3.")
    assert PINS["default"]["numpy"].startswith("2.")
    assert PINS["classic"]["tensorflow"].startswith("2.15.")
    assert PINS["classic"]["keras"].startswith("2.15.")
    assert PINS["default"]["horovod"] == PINS["classic"]["horovod"]


def test_every_dependency_earns_its_place():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    for wanted in WANTED:
        at = next(number for number, line in enumerate(lines) if f'"{wanted}"' in line)
        assert "# " in lines[at] or lines[at - 1].startswith("# "), wanted


def test_what_is_installed_is_what_is_pinned():
    other = {}
    for result in importlib.metadata.distributions():
        name = canonicalize_name(result.metadata["Name"])
        if result.version != PINS[STACK].get(name, result.version):
            other[name] = f"{result.version}, pinned is {PINS[STACK][name]}"
    assert not other, f"run `make env`: {other}"


def test_the_gpu_environment_has_the_same_versions():
    named = [Requirement(entry) for entry in PIP if "==" in entry]
    assert {requirement.name for requirement in named} > {"tensorflow", "jupyterlab"}
    for requirement in named:
        assert str(requirement.specifier) == f"=={GPU_PINS[requirement.name]}", requirement.name
    for name, version in CONDA.items():
        assert GPU_PINS.get(name, version) == version, name


def test_the_gpu_environment_takes_all_else_from_the_pins():
    kit = next(entry.removeprefix("-e .") for entry in PIP if entry.startswith("-e ."))
    assert Requirement(f"labs{kit}").extras == set(EXTRAS)


def test_the_gpu_environment_has_tensorflows_cuda():
    assert SpecifierSet(PROJECT["requires-python"]).contains(CONDA["python"])
    assert CONDA["cuda-nvcc"] == GPU_PINS["nvidia-cuda-nvcc-cu12"]
    assert CONDA["cuda-cudart-dev"] == CONDA["cuda-cudart-static"] == GPU_PINS["nvidia-cuda-runtime-cu12"]
    assert CONDA["cuda-nvcc"].startswith(CONDA["cuda-version"] + ".")


def test_horovod_is_left_to_make_horovod():
    assert all("horovod" in pins for pins in PINS.values())
    assert not [entry for entry in [*WANTED, *PIP, *CONDA] if "horovod" in entry]
