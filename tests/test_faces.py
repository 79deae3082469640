"""Each package's public names: they exist, load lazily, are documented in one sentence, and clash with no module."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from types import ModuleType

import pytest

from labs.run import catalogue
from labs.run.paths import ROOT

PACKAGES = ["labs", *(f"labs.{path.parent.name}" for path in sorted((ROOT / "labs").glob("*/__init__.py"))
                      if "lazy.attach" in path.read_text())]


def modules(package: str) -> set[str]:
    folder = ROOT / package.replace(".", "/")
    return {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists(package):
    face = importlib.import_module(package)
    assert face.__all__ == dir(face)
    for name in face.__all__:
        assert getattr(face, name) is not None
    assert (face.__doc__ or "").partition("\n")[0].endswith("."), "no sentence on what the package is"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_is_that_of_a_module(package):
    """Importing the module would replace the function of the same name."""
    face = importlib.import_module(package)
    functions = {name for name in face.__all__ if not isinstance(getattr(face, name), ModuleType)}
    assert not functions & modules(package)


@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_a_lab_uses_the_packages_by_their_public_names(lab):
    tree = ast.parse((ROOT / f"labs/{lab}.py").read_text())
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "labs"]
    assert len(imported) == 1, "one line of imports from the kit"
    faces = {alias.name for alias in imported[0].names} & {name.partition(".")[2] for name in PACKAGES}
    assert "training" in faces
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in faces:
            assert node.attr in importlib.import_module(f"labs.{node.value.id}").__all__, ast.unparse(node)


def test_loading_all_labs_and_packages_loads_no_tensorflow():
    program = (f"import importlib, sys\nfor name in {[*PACKAGES, *(f'labs.{lab}' for lab in catalogue.lab_names())]}:\n"
               "    importlib.import_module(name)\n"
               "print({'tensorflow', 'horovod', 'pandas', 'matplotlib', 'numpy'} & set(sys.modules))")
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "set()"
