"""The parts of the kit stand apart: any tool can be left out, and what only prints loads nothing heavy."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from labs.cli import commands
from labs.run import catalogue, lazy
from labs.run.paths import ROOT
from tests import sizes

TOOLS = sorted(path.name for path in (ROOT / "labs/tools").iterdir() if (path / "command.py").is_file())
FILES, LINES = 66, 8_800
"""Upper limits on the files and lines that a lab may load, with room for a data set of a fork (docs/teach.md)."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the kit's programs."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("labs", "jobs", "docs", "setup"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run(folder, *words: str) -> str:
    return subprocess.run([sys.executable, "-m", "labs", *words], cwd=folder, capture_output=True, text=True,
                          check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_can_be_deleted(copy, tmp_path, tool):
    shutil.move(copy / "labs/tools" / tool, tmp_path / tool)
    try:
        assert re.findall(r"^lab\d\d_\w+", run(copy), re.MULTILINE) == catalogue.lab_names()
        shown = {line.split()[0] for line in run(copy, "--help").splitlines() if line.strip()}
        assert set(commands.summaries()) & shown == set(commands.summaries()) - {tool}
    finally:
        shutil.move(tmp_path / tool, copy / "labs/tools" / tool)


@pytest.mark.everyday
@pytest.mark.workers
def test_a_lab_trains_without_any_tool(copy, tmp_path):
    shutil.move(copy / "labs/tools", tmp_path / "tools")
    try:
        run(copy, "run", "lab02", "--workers", "2", "--oversubscribe", "--results", str(tmp_path / "results"))
    finally:
        shutil.move(tmp_path / "tools", copy / "labs/tools")


@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_a_lab_stands_on_few_files_of_the_core(lab):
    files = sizes.closure(lab)
    rooms = {path.relative_to(ROOT / "labs").parts[0] for path in files}
    assert not rooms & {"pages", "exercises", "tools", "cli"}
    assert len(files) <= FILES
    assert sizes.lines(iter(files)) <= LINES


@pytest.mark.parametrize("part", sizes.PARTS["core"][:-1])
def test_no_public_name_of_the_core_is_defined_outside_it(part):
    """import-linter leaves out imports for type checkers, but `lazy.attach` runs those of a package's `__init__`."""
    homes = lazy.public_names(ROOT / "labs" / part / "__init__.py").values()
    assert not [home for home in homes if home.startswith(("labs.pages", "labs.exercises", "labs.tools", "labs.cli"))]


def test_a_wrong_call_through_a_package_is_refused(tmp_path):
    (tmp_path / "wrong.py").write_text("from labs import training\n\ntraining.fit(1, 2, nonsense=3)\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", tmp_path],
                          capture_output=True, text=True, check=False, cwd=ROOT)
    assert 'Unexpected keyword argument "nonsense" for "fit"' in done.stdout


def test_loading_all_labs_and_packages_loads_no_tensorflow():
    packages = [f"labs.{path.parent.name}" for path in (ROOT / "labs").glob("*/__init__.py")
                if path.parent.name != "exercises"]  # It compares numbers: it loads numpy, as the pages that use it do.
    program = (f"import importlib, sys\nfor name in {[*packages, *(f'labs.{lab}' for lab in catalogue.lab_names())]}:\n"
               "    importlib.import_module(name)\n"
               "print({'tensorflow', 'horovod', 'pandas', 'matplotlib', 'numpy'} & set(sys.modules))")
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "set()"
