"""README and docs: links work, and times and pictures are those of the notebooks."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from labs.run import catalogue
from labs.run.paths import ROOT

PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md")),
         *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "notebooks").glob("*.ipynb"))], ids=lambda page: page.stem)
def test_links_work(page):
    for target in re.findall(r"\]\((?!https?:|attachment:)([^)\s]+)\)", text(page)):
        name, _, heading = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), f"{page.name} links to {target}"
        assert not heading or unquote(heading) in set(anchors(path)), f"{page.name} links to {target}"


def text(page: Path) -> str:
    """Return a page's Markdown."""
    if page.suffix != ".ipynb":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def anchors(page: Path) -> Iterator[str]:
    """Yield the anchors of a page's headings: GitHub's, or those of JupyterLab in a notebook."""
    for heading in re.findall(r"^#+ (.*)$", text(page), re.MULTILINE):
        yield heading.strip().replace(" ", "-") if page.suffix == ".ipynb" else \
            re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


HOURS = {"an hour": "1 h", "an hour and a quarter": "1¼ h", "an hour and a half": "1½ h", "two hours": "2 h"}
"""What the first cell of a notebook says, and what README has."""


def test_readme_has_the_same_times_as_the_notebooks():
    readme = (ROOT / "README.md").read_text()
    said = []
    for lab in catalogue.lab_names():
        first = "".join(json.loads((ROOT / f"notebooks/{lab}.ipynb").read_text())["cells"][0]["source"])
        said.append((lab, HOURS[re.search(r"allow (.*?)(?: to work through it)?[.,]", first)[1]]))
    assert re.findall(r"^\| (lab\w+) \| [^|]* \| (\S+ h) \| \[notebook\]\(notebooks/\1\.ipynb\)", readme,
                      re.MULTILINE) == said


def test_readme_is_for_the_first_minute():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


def test_the_picture_of_a_step_is_what_its_script_draws():
    script = runpy.run_path(str(ROOT / "notebooks/step_picture.py"))
    assert script["PICTURE"].read_text() == script["picture"](), "`python notebooks/step_picture.py` draws it"
    assert "](docs/pictures/step.svg)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("lab", catalogue.lab_names())
def test_the_picture_of_a_lab_is_from_its_notebook(lab):
    picture = f"docs/pictures/{lab}.png"
    assert f'src="{picture}"' in (ROOT / "README.md").read_text()
    shown = runpy.run_path(str(ROOT / "notebooks/execute.py"))["picture"](lab)
    assert (ROOT / picture).read_bytes() == shown, "`make notebooks` extracts it from the notebook"
