"""Lines of each part of the kit, what each lab may load, and the words of each page: `make sizes`."""

import ast
import functools
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import nbformat

from labs.run import catalogue, public_names
from labs.run.paths import ROOT

PARTS = {
    "core": ("datasets", "measure", "models", "results", "run", "training", "*.py"),
    "pages": ("pages", "exercises", "lint"), "tools": ("tools",), "command": ("cli",),
}
"""The folders of each part of labs/."""


def sums() -> dict[str, int]:
    """Return the figures that CONTRIBUTING bounds, by name."""
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "solutions").glob("exams.md")]
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return {
        "labs/, lines": lines((ROOT / "labs").rglob("*.py")),
        "tests, lines": lines((ROOT / "tests").rglob("*.py")) + lines((ROOT / "horovod_keras3/tests").rglob("*.py")),
        "docs, words": sum(len(page.read_text(encoding="utf-8").split()) for page in pages),
        "committed files": len(files.splitlines()),
        "dependencies": len(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]),
    }


def lines(paths: Iterator[Path]) -> int:
    """Return the lines of some files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def parts() -> dict[str, int]:
    """Return the lines of Python in each part of labs/ and in the folders beside it; horovod_keras3 has its tests."""
    sizes = {part: lines(path for folder in folders for path in
                         ((ROOT / "labs").glob(folder) if "*" in folder else (ROOT / "labs" / folder).rglob("*.py")))
             for part, folders in PARTS.items()}
    others = ("horovod_keras3", "examples")
    return sizes | {folder: lines((ROOT / folder).rglob("*.py")) for folder in others}


def closure(lab: str) -> set[Path]:
    """Return the files of the kit that a lab may load: what it imports, what that imports, and so on."""
    found: set[str] = set()
    open_ = {f"labs.{lab}"}
    while open_:
        found.add(module := open_.pop())
        open_ |= set(_imports(module)) - found
    return {_path(module) for module in found}


def words(lab: str) -> int:
    """Return the words of a page up to "Closer look": its Markdown, and what its cells show as Markdown.

    Formulas on lines of their own and blocks of code are no words.
    """
    texts = []
    for cell in nbformat.read(ROOT / "notebooks" / f"{lab}.ipynb", 4).cells:
        if cell.cell_type == "markdown":
            texts.append(re.split("(?m)^## (?:Closer look|Questions)$", cell.source)[0])
            if texts[-1] != cell.source:
                break
        else:
            texts += [output.get("data", {}).get("text/markdown", "") for output in cell.outputs]
    plain = re.sub(r"(?s)\$\$.*?\$\$|```.*?```", " ", "\n".join(texts))
    return sum(bool(re.search(r"\w", word)) for word in plain.split())


def _path(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _is_module(name: str) -> bool:
    return _path(name).is_file()


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_path(module).read_text(encoding="utf-8"))


@functools.cache
def _homes(package: str) -> dict[str, str]:
    """Return the public names of a package, each with its module."""
    path = _path(package)
    if path.name != "__init__.py":
        return {}
    return {name: f"{package}.{name}" if module == package else module
            for name, module in public_names(path).items()}


def _imports(module: str) -> Iterator[str]:
    """Yield the modules of the kit that a module imports anywhere; of a package, those whose names it uses."""
    tree = _tree(module)
    if _path(module).name == "__init__.py":  # Its public names are loaded where they are used.
        tree = ast.Module([node for node in tree.body if not isinstance(node, ast.If)], [])
    packages = {}
    for node in _running(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "labs":
            yield node.module
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                home = name if _is_module(name) else _homes(node.module).get(alias.name)
                if home:
                    yield _resolved(home, alias.name)
                if _is_module(name):
                    packages[alias.asname or alias.name] = name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in packages:
            home = _homes(packages[node.value.id]).get(node.attr)
            if home:
                yield home


def _resolved(home: str, name: str) -> str:
    """Return the module of a name that one package takes from another."""
    return _homes(home).get(name, home)


def _running(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of a module without what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from _running(node)  # type: ignore[arg-type]


def main() -> None:
    """Print the sums, the size of each part, what each lab may load, and how long its page is."""
    rows = [f"{name:16} {figure:7,}" for name, figure in sums().items()]
    rows += [f"{part:16} {count:7,} lines" for part, count in parts().items()]
    for lab in catalogue.lab_names():
        files = closure(lab)
        rows.append(f"{lab:16} {len(files):3} files, {lines(iter(files)):6,} lines, {words(lab):5,} words")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
