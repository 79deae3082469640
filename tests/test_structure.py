"""The parts of the kit stand apart: any tool can be left out, and what only prints loads nothing heavy."""

import re
import shutil
import subprocess
import sys

import pytest

from labs.cli import commands
from labs.run import catalogue
from labs.run.paths import ROOT
from tests import sizes

TOOLS = sorted(path.name for path in (ROOT / "labs/tools").iterdir() if (path / "command.py").is_file())
FILES, LINES = 62, 7_200
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


@pytest.mark.everyday
@pytest.mark.workers
def test_tools_can_be_deleted_and_a_lab_trains_without_any(copy, tmp_path):
    for tool in TOOLS:
        shutil.move(copy / "labs/tools" / tool, tmp_path / tool)
    assert re.findall(r"^lab\d\d_\w+", run(copy), re.MULTILINE) == catalogue.lab_names()
    printed = {line.split()[0] for line in run(copy, "--help").splitlines() if line.strip()}
    assert set(commands.summaries()) & printed == set(commands.summaries()) - set(TOOLS)
    run(copy, "run", "lab02", "--workers", "2", "--oversubscribe", "--results", str(tmp_path / "results"))


def test_a_lab_stands_on_few_files_of_the_core():
    for lab in catalogue.lab_names():
        files = sizes.closure(lab)
        rooms = {path.relative_to(ROOT / "labs").parts[0] for path in files}
        assert not rooms & {"pages", "exercises", "tools", "cli"}
        assert len(files) <= FILES, lab
        assert sizes.lines(iter(files)) <= LINES, lab


def test_loading_all_labs_and_packages_loads_no_tensorflow():
    packages = [f"labs.{path.parent.name}" for path in (ROOT / "labs").glob("*/__init__.py")
                if path.parent.name != "exercises"]  # It compares numbers: it loads numpy, as the pages that use it do.
    program = (f"import importlib, sys\nfor name in {[*packages, *(f'labs.{lab}' for lab in catalogue.lab_names())]}:\n"
               "    importlib.import_module(name)\n"
               "print({'tensorflow', 'horovod', 'pandas', 'matplotlib', 'numpy'} & set(sys.modules))")
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "set()"
