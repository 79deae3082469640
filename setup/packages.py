"""Installs pinned packages: with uv, which takes seconds, or with pip where uv cannot be had."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from steps import SetupError, Steps

# uv reads neither pip.conf nor PIP_*: on a machine whose pip knows a mirror, uv is told the same.
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
# Each sends an installation, an import or a build somewhere else than to the environment that is being made.
MISLEADING = {
    *("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_CONSTRAINT"),
    *("PIP_REQUIRE_VIRTUALENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"),
    "PYTHONDONTWRITEBYTECODE",  # Set in many images; every start would compile TensorFlow's Python, for 12 s.
}
PIP_INSTALL = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]


def read_pins(root: Path) -> dict[str, str]:
    """Return the version of every package named in constraints.txt."""
    return dict(line.split("==") for line in (root / "constraints.txt").read_text().split())


def requirements(root: Path, extras: list[str]) -> list[str]:
    """Return what pyproject.toml asks for, with the given extras."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return project["dependencies"] + [line for extra in extras for line in optional[extra]]


def clean_environment() -> dict[str, str]:
    """Return this process' environment without what would mislead pip, uv, Python or make."""
    return {name: value for name, value in os.environ.items() if name not in MISLEADING}


def uv_settings(steps: Steps, python: Path, env: dict[str, str]) -> dict[str, str]:
    """Return pip's index, mirrors and certificate as uv's variables; what is set for uv already stays."""
    told = steps.run([python, "-m", "pip", "config", "list"], env)
    settings: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # In pip's order: a later one wins.
        for name, value in re.findall(rf"^{section}\.([\w-]+)='(.*)'$", told, re.MULTILINE):
            if name in UV_NAMES:
                # pip takes a list with blanks or line ends between its entries, and shows the latter as \n.
                settings[UV_NAMES[name]] = " ".join(value.replace("\\n", " ").split())
    if "UV_INDEX" in settings:
        settings["UV_INDEX"] = " ".join(url for url in settings["UV_INDEX"].split() if _exists(url))
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # As pip does: the best version of all indexes.
    return {name: value for name, value in settings.items() if value and name not in env}


def _exists(url: str) -> bool:
    return not url.startswith("file://") or Path(url.removeprefix("file://")).is_dir()


def install(steps: Steps, python: Path, root: Path, wanted: list[str]) -> None:
    """Install requirements at the versions of constraints.txt into the environment of `python`."""
    env = clean_environment()
    try:
        steps.run([python, *PIP_INSTALL, f"uv=={read_pins(root)['uv']}"], env)
        env |= uv_settings(steps, python, env)
        tool = [python.parent / "uv", "pip", "install", "--python", python]
    except SetupError:
        print(" (uv cannot be had: pip, minutes)", end="", flush=True)
        tool = [python, *PIP_INSTALL]
        wanted = [line for line in wanted if line != "uv"]
    steps.run([*tool, "-c", root / "constraints.txt", *wanted], env)
    # The kit itself last and alone: its build needs the setuptools that has just come, and nothing else.
    steps.run([*tool, "--no-build-isolation", "--no-deps", "-e", root], env)
