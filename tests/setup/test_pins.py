"""Pins: every package is pinned once, with the same version everywhere."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.setup.clone import ROOT

LINES = (ROOT / "constraints.txt").read_text().splitlines()
PINS = dict(line.split("==") for line in LINES)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
WANTED = PROJECT["dependencies"] + [line for extra in EXTRAS.values() for line in extra]
*CONDA, PIP = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
CONDA, PIP = dict(entry.split("=") for entry in CONDA), PIP["pip"]


def test_constraints_are_plain_pins():
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][\w.]*", line) for line in LINES)
    assert len(PINS) == len(LINES)
    assert sorted(LINES) == LINES


@pytest.mark.parametrize("wanted", WANTED)
def test_every_dependency_is_pinned_within_what_pyproject_asks(wanted):
    requirement = Requirement(wanted)
    assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)])


def test_every_dependency_earns_its_place():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    for wanted in WANTED:
        at = next(number for number, line in enumerate(lines) if f'"{wanted}"' in line)
        assert "# " in lines[at] or lines[at - 1].startswith("# "), wanted


def test_what_is_installed_is_what_is_pinned():
    other = {}
    for result in importlib.metadata.distributions():
        name = canonicalize_name(result.metadata["Name"])
        if result.version != PINS.get(name, result.version):
            other[name] = f"{result.version}, pinned is {PINS[name]}"
    assert not other, f"run `make env`: {other}"


def test_the_gpu_environment_has_the_same_versions():
    named = [Requirement(entry) for entry in PIP if "==" in entry]
    assert {requirement.name for requirement in named} > {"tensorflow", "jupyterlab"}
    for requirement in named:
        assert str(requirement.specifier) == f"=={PINS[requirement.name]}", requirement.name
    for name, version in CONDA.items():
        assert PINS.get(name, version) == version, name


def test_the_gpu_environment_takes_all_else_from_the_pins():
    assert "-c constraints.txt" in PIP
    kit = next(entry.removeprefix("-e .") for entry in PIP if entry.startswith("-e ."))
    assert Requirement(f"labs{kit}").extras == set(EXTRAS)


def test_the_gpu_environment_has_tensorflows_cuda():
    assert SpecifierSet(PROJECT["requires-python"]).contains(CONDA["python"])
    assert CONDA["cuda-nvcc"] == PINS["nvidia-cuda-nvcc-cu12"]
    assert CONDA["cuda-cudart-dev"] == CONDA["cuda-cudart-static"] == PINS["nvidia-cuda-runtime-cu12"]
    assert CONDA["cuda-nvcc"].startswith(CONDA["cuda-version"] + ".")


def test_horovod_is_left_to_make_horovod():
    assert "horovod" in PINS
    assert not [entry for entry in [*WANTED, *PIP, *CONDA] if "horovod" in entry]
