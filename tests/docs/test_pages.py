"""README and docs: links work, quoted messages exist in the code, versions and times are current."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from labs.run import catalogue
from labs.run.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TROUBLE = (ROOT / "docs/troubleshooting.md").read_text()
MESSAGE = r"^\| `([^|]+)` \|"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_work(page):
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        name, _, heading = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), f"{page.name} links to {target}"
        assert not heading or unquote(heading) in set(anchors(path)), f"{page.name} links to {target}"


def anchors(page: Path) -> Iterator[str]:
    """Yield the anchors of a page's headings: GitHub's, or those of JupyterLab in a notebook."""
    if page.suffix == ".ipynb":
        cells = json.loads(page.read_text())["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
            yield heading.strip().replace(" ", "-")
        return
    for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE):
        yield re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


LAPTOP = (ROOT / "docs/laptop-cluster.md").read_text()
OF_A_CLUSTER = re.findall(MESSAGE, LAPTOP.partition("## Messages of other programs")[0], re.MULTILINE)
OUR_MESSAGES = OF_A_CLUSTER + re.findall(MESSAGE, TROUBLE.partition("## Messages from other programs")[0], re.MULTILINE)


@pytest.mark.parametrize("message", OUR_MESSAGES)
def test_a_message_exists(message):
    """One file of the kit, or of a test that waits for the message, has all its fragments; `...` is filled in."""
    assert any(says(text, message) for text in TEXTS), "the kit has no such message"


def says(text: str, message: str) -> bool:
    """Return whether a text has all fragments of a message on a page."""
    return all(fragment.strip() in text for fragment in message.removeprefix("labs: error: ").split("..."))


def test_every_error_of_a_cluster_is_on_its_page():
    """Except for those that only repeat another program's message."""
    files = [*(ROOT / "labs/cluster").glob("*.py"), ROOT / "labs/tools/cluster/command.py"]
    raised = {"\n".join(strings(node)) for file in files for node in ast.walk(ast.parse(file.read_text()))
              if isinstance(node, ast.Raise)}
    errors = {text for text in raised if re.search(r"\w \w", text)}
    assert len(errors) > 15
    assert not {text for text in errors if not any(says(text, message) for message in OF_A_CLUSTER)}


def texts(path: Path) -> str:
    """Return all string constants of a program, one per line, without the values of f-strings."""
    if path.suffix == ".sh":
        return re.sub(r"\$\{[^}]*\}|\$\(.*?\)|\$\w+", "", path.read_text())
    return "\n".join(strings(ast.parse(path.read_text())))


def strings(node: ast.AST) -> Iterator[str]:
    """Yield the string constants below a node of a syntax tree, those of f-strings joined."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(each.value if isinstance(each, ast.Constant) else "" for each in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


SPEAKERS = (("labs", "*.py"), ("jobs", "*.sh"), ("tests/slurm", "*.py"))
TEXTS = [texts(path) for folder, kind in SPEAKERS for path in (ROOT / folder).rglob(kind)]
OTHERS = {
    "Slurm": [Path("/usr/lib"), "*/slurm*/libslurmfull.so"],
    "Open MPI": [Path(sys.prefix) / "share/prte", "help-*.txt"],
    "Horovod": [Path(sys.prefix) / "lib", "*/site-packages/horovod/tensorflow/mpi_lib*.so"],
}
"""Where the messages of other programs are, as installed by `make env` and Debian."""


FOREIGN = re.findall(rf"{MESSAGE} ({'|'.join(OTHERS)}) \|", TROUBLE, re.MULTILINE)


@pytest.mark.parametrize(("message", "program"), FOREIGN)
def test_a_message_of_another_program_exists(message, program):
    folder, names = OTHERS[program]
    files = list(folder.glob(names))
    if not files:
        pytest.skip(f"{program} is not installed here")
    assert any(message.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_versions_are_pinned(page):
    pins = [pin for path in ROOT.glob("constraints*.txt") for pin in path.read_text().splitlines()]
    assert not set(re.findall(r"[a-z][\w-]*==[\w.]+", page.read_text())) - set(pins)


def test_course_and_readme_have_the_same_times():
    readme, course = ((ROOT / name).read_text() for name in ("README.md", "docs/course.md"))
    times = re.findall(r"\[notebook\]\(notebooks/(\w+)\.ipynb\), (\d+ s)", readme)
    assert [lab for lab, _ in times] == catalogue.lab_names()
    assert re.findall(r"^\| \d+ \| (\w+) \| [^|]* \| (\d+ s) \|", course, re.MULTILINE) == times


@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_the_picture_of_a_lab_is_from_its_notebook(lab):
    picture = f"docs/pictures/{lab}.png"
    assert f'src="{picture}"' in (ROOT / "README.md").read_text()
    shown = runpy.run_path(str(ROOT / "notebooks/execute.py"))["picture"](lab)
    assert (ROOT / picture).read_bytes() == shown, "`make notebooks` extracts it from the notebook"
