"""The trees in README and CONTRIBUTING name files that exist, and all packages and top folders of the clone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from labs.run.paths import ROOT

PAGES = ["README.md", "CONTRIBUTING.md"]
CORE = "# The core"


def tree(page: str) -> list[str]:
    """Return the lines of a page's tree: its one block without a language that shows labs/."""
    blocks = (ROOT / page).read_text().split("\n```")
    (block,) = [block for block in blocks if "\nlabs/" in block.partition("\n\n")[0]]
    return block.splitlines()[1:]


def paths(page: str) -> Iterator[str]:
    """Yield the paths of a tree; a line's name is indented by four blanks for each folder that it is in."""
    folders: list[str] = []
    for line in tree(page):
        if line.strip().startswith("#"):
            continue
        depth = (len(line) - len(line.lstrip())) // 4
        folders = [*folders[:depth], line.split()[0]]
        yield "".join(folders)


@pytest.mark.parametrize("page", PAGES)
def test_every_path_of_a_tree_exists(page):
    missing = [path for path in paths(page) if not (ROOT / path).exists()]
    assert not missing, f"{page} shows a path that does not exist"


@pytest.mark.parametrize("page", PAGES)
def test_a_tree_shows_every_package_and_every_folder(page):
    packages = {f"labs/{path.parent.name}/" for path in (ROOT / "labs").glob("*/__init__.py")}
    assert len(packages) > 10
    tracked = subprocess.run(["git", "ls-tree", "-d", "--name-only", "HEAD"], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.split()
    folders = {f"{name}/" for name in tracked if not name.startswith(".")}
    shown = {path for path in paths(page) if path.endswith("/")}
    assert packages - shown == set(), f"{page} lacks a package"
    assert folders - shown == set(), f"{page} lacks a folder"


def test_the_core_has_fifteen_files():
    lines = tree("CONTRIBUTING.md")
    start = next(number for number, line in enumerate(lines) if line.strip().startswith(CORE))
    end = next(number for number, line in enumerate(lines) if number > start and line.strip().startswith("#"))
    assert len([line for line in lines[start:end] if line.split()[0].endswith(".py")]) == 15
    assert "fifteen files" in lines[start]
