"""README and docs: links work, and times and pictures are those of the notebooks."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from labs.run import catalogue
from labs.run.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


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
