"""Pins: every package is pinned once, with the same version everywhere."""

import importlib.metadata
import sysconfig
import tomllib

import yaml
from packages import CONSTRAINTS
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.setup.clone import PINS, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
ELSEWHERE = {"frames"}
"""Extras for an environment of their own, without the kit's pins."""
WANTED = PROJECT["dependencies"] + [line for name, extra in EXTRAS.items() if name not in ELSEWHERE for line in extra]


def test_every_dependency_is_pinned_and_installed_at_its_pin():
    for requirement in map(Requirement, WANTED):
        assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)]), requirement
    other = {}
    # Not sys.path: setuptools, once imported, has appended a folder with its own copies of packages.
    for result in importlib.metadata.distributions(path=[sysconfig.get_path("purelib")]):
        name = canonicalize_name(result.metadata["Name"])
        if result.version != PINS.get(name, result.version):
            other[name] = f"{result.version}, pinned is {PINS[name]}"
    assert not other, f"run `make env`: {other}"


def test_the_gpu_environment_has_the_same_versions_and_extras():
    *entries, pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda, pip = dict(entry.split("=", 1) for entry in entries if "=" in entry), pip["pip"]
    assert f"-c {CONSTRAINTS}" in pip
    same = {Requirement(entry).name: Requirement(entry).specifier for entry in pip if "==" in entry}
    assert same.keys() > {"tensorflow", "keras", "jupyterlab"}
    assert not [name for name, specifier in same.items() if str(specifier) != f"=={PINS[name]}"]
    assert not [name for name, version in conda.items() if PINS.get(name, version) != version]
    kit = next(entry.removeprefix("-e ").lstrip(".") for entry in pip if entry.startswith("-e ."))
    others = ELSEWHERE | {"nvcc", "site"}  # conda brings CUDA's compiler; `make site` has an environment of its own.
    assert Requirement(f"labs{kit}").extras == set(EXTRAS) - others
    assert SpecifierSet(PROJECT["requires-python"]).contains(conda["python"])
    assert conda["cuda-nvcc"] == PINS["nvidia-cuda-nvcc-cu12"]
    assert conda["cuda-cudart-dev"] == conda["cuda-cudart-static"] == PINS["nvidia-cuda-runtime-cu12"]
    assert not [entry for entry in [*WANTED, *pip, *conda] if "horovod" in entry], "`make horovod` builds it"
