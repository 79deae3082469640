"""The course as web pages, in build/site: `make site`.

Pages are copied into build/site-pages, in the repository's layout, so that their relative links still work. A link to
any other file leads to a page that shows it. Sphinx makes build/site of them, with the settings of conf.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
import venv
from pathlib import Path
from urllib.parse import unquote

import vendor

from labs.run.errors import ERROR_PREFIX, LabError
from labs.run.paths import ROOT

BUILD = ROOT / "build"
PAGES, SITE = BUILD / "site-pages", BUILD / "site"
ENVIRONMENT = ROOT / ".venv-site"
COPIED = {".png", ".svg", ".jpg", ".gif", ".pdf"}
SECRET = "solutions/"
"""A folder that stays out of the site."""
LANGUAGES = {".py": "python", ".sh": "bash", ".cmake": "cmake", ".cc": "cpp", ".toml": "toml", ".yml": "yaml"}
CODE = re.compile(r"(^ *(`{3,}|~{3,}).*?^ *\2 *$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"""(?P<before>\]\(|(?:src|href)=")(?P<target>[^)\s"]+)(?=[)"])""")


class Tree:
    """The pages that Sphinx reads, and those that they link to."""

    def __init__(self) -> None:
        self.todo = [Path(name) for name in ("README.md", "CONTRIBUTING.md")]
        for pattern in ("docs/*.md", "notebooks/*.ipynb"):
            self.todo += sorted(path.relative_to(ROOT) for path in ROOT.glob(pattern))
        self.done: set[Path] = set()

    def write(self) -> None:
        """Write all pages; following their links adds pages."""
        _save(PAGES / "index.md", self.linked(landing(), Path("index.md")))
        while self.todo:
            page = self.todo.pop()
            if page in self.done:
                continue
            self.done.add(page)
            if page.suffix == ".ipynb":
                _save(PAGES / page, self._notebook(page))
            elif is_page(page):
                _save(PAGES / page, self.linked((ROOT / page).read_text(encoding="utf-8"), page))
            elif page.suffix in COPIED:
                (PAGES / page).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / page, PAGES / page)
            else:
                _save(PAGES / page_path(page), file_page(page))

    def linked(self, text: str, page: Path) -> str:
        """Return a page's Markdown with links that work in the site, and note what they lead to.

        Args:
            text: The Markdown.
            page: The page's path in the repository.

        Raises:
            LabError: A link leads nowhere.
        """
        parts = CODE.split(text)  # Text, a block of code, its fence, text, ...
        parts[::3] = [LINK.sub(lambda link: link["before"] + self._target(link["target"], page), part)
                      for part in parts[::3]]
        del parts[2::3]
        return "".join(parts)

    def _target(self, target: str, page: Path) -> str:
        if re.match(r"[a-z]+:", target):
            return target
        name, _, anchor = target.partition("#")
        path = Path(os.path.normpath(page.parent / unquote(name))) if name else page
        if not (ROOT / path).exists() and not str(path).startswith(SECRET):
            raise LabError(f"{page} links to {target}, which does not exist; correct the link")
        if path != page:
            self.todo.append(path)
        if name and not is_page(path) and path.suffix not in COPIED:
            return os.path.relpath(page_path(path), page.parent)
        return name + (f"#{slug(unquote(anchor)) if path.suffix == '.ipynb' else anchor}" if anchor else "")

    def _notebook(self, page: Path) -> str:
        notebook = json.loads((ROOT / page).read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = self.linked("".join(cell["source"]), page)
            for data in (output.get("data", {}) for output in cell.get("outputs", ())):
                if "text/markdown" in data:
                    data["text/markdown"] = self.linked("".join(data["text/markdown"]), page)
        return json.dumps(notebook)


def slug(heading: str) -> str:
    """Return the anchor that GitHub, and so MyST, gives to a heading, or to JupyterLab's anchor of it."""
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


def is_page(path: Path) -> bool:
    """Return whether a file of the repository is a page itself."""
    return path.suffix in {".md", ".ipynb"} and not str(path).startswith(SECRET)


def page_path(path: Path) -> Path:
    """Return the page that shows a file of the repository, or the names in a folder."""
    return Path("source") / f"{path}.md"


def file_page(path: Path) -> str:
    """Return the Markdown of a page that shows a file, or the names in a folder."""
    file = ROOT / path
    if str(path).startswith(SECRET):
        return f"# {path}\n\nThis file is for instructors. It is in their clone, not in these pages.\n"
    text = file.read_text(encoding="utf-8") if file.is_file() else "\n".join(sorted(os.listdir(file)))
    return f"# {path}\n\n``````{LANGUAGES.get(path.suffix, 'text')}\n{text}\n``````\n"


def landing() -> str:
    """Return the first page: index.md, with README's table of the labs.

    Raises:
        LabError: README has no such table.
    """
    section = re.search(r"^## The labs$(.*?)^## ", (ROOT / "README.md").read_text(encoding="utf-8"),
                        re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\|.*$", section[1], re.MULTILINE) if section else []
    if not rows:
        raise LabError("README.md has no table under the heading 'The labs', which the site's first page shows")
    rest = sorted(f"docs/{path.stem}" for path in (ROOT / "docs").glob("*.md"))
    text = (ROOT / "site/index.md").read_text(encoding="utf-8")
    return text.replace("LABS", "\n".join(rows), 1).replace(
        "REST", "\n".join(name for name in rest if f"\n{name}\n" not in text), 1)


def environment() -> Path:
    """Return the Python of .venv-site, with the packages of pyproject.toml's extra `site` at their pinned versions.

    Raises:
        LabError: The packages cannot be installed.
    """
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["site"]
    pins, python, stamp = ROOT / "setup/constraints.txt", ENVIRONMENT / "bin/python", ENVIRONMENT / ".ready"
    wanted = "\n".join([*needs, pins.read_text()])
    if not stamp.is_file() or stamp.read_text() != wanted:
        print("installing Sphinx into .venv-site (half a minute)", flush=True)
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        if subprocess.run([python, "-m", "pip", "install", "-q", "-c", pins, *needs], check=False).returncode:
            raise LabError("cannot install Sphinx, as shown above")
        stamp.write_text(wanted)
    return python


def mathjax() -> None:
    """Copy what formulas need into the folder of static files: MathJax's program, its extensions and fonts."""
    source, target = vendor.fetch(*vendor.MATHJAX) / "es5", BUILD / "site-static/mathjax"
    shutil.rmtree(target, ignore_errors=True)
    for name in ("input/tex/extensions", "output/chtml/fonts/woff-v2"):
        shutil.copytree(source / name, target / name)
    shutil.copy(source / "tex-mml-chtml.js", target)


def main() -> None:
    """Make the site.

    Raises:
        LabError: A link or a heading is missing, or something to build with.
    """
    if not shutil.which("node"):
        raise LabError("the site needs Node.js: it draws the first state of the figures; install nodejs and npm")
    python = environment()
    shutil.rmtree(PAGES, ignore_errors=True)
    Tree().write()
    mathjax()
    new = BUILD / "site.new"
    shutil.rmtree(new, ignore_errors=True)
    sphinx = [python, "-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-j", "auto", "-b", "html",
              "-c", ROOT / "site", "-d", BUILD / "site-doctrees", PAGES, new]
    if subprocess.run(sphinx, check=False).returncode:
        raise LabError("Sphinx has warnings, as shown above; the site is unchanged")
    # Its download button gives a notebook as it is in the repository, with that repository's links.
    shutil.copytree(ROOT / "notebooks", new / "_sources/notebooks", dirs_exist_ok=True,
                    ignore=lambda _, names: [name for name in names if not name.endswith(".ipynb")])
    old = BUILD / "site.old"
    shutil.rmtree(old, ignore_errors=True)
    if SITE.exists():
        SITE.rename(old)  # To delete it takes long, and Ctrl-C would leave half of it.
    new.rename(SITE)
    shutil.rmtree(old, ignore_errors=True)
    print(f"open {SITE.relative_to(ROOT)}/index.html in a browser; docs/teach.md says how to publish it")


def _save(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except LabError as error:
        raise SystemExit(f"{ERROR_PREFIX}{error}") from None
