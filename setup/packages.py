"""Installation of the pinned packages: with uv, which takes seconds, or with pip if uv is not available."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from steps import SetupError, Steps

# uv reads neither pip.conf nor PIP_*: pip's mirrors are passed on to it.
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
# Each redirects an installation, an import or a build away from the environment that is being made.
MISLEADING = {
    *("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_CONSTRAINT"),
    *("PIP_REQUIRE_VIRTUALENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"),
    "PYTHONDONTWRITEBYTECODE",  # Set in many images; each start would recompile TensorFlow's Python code (12 s).
}
PIP_INSTALL = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
# The mode adds a folder to sys.path. In the default mode Python would prefer a folder of the same name in the working
# folder: a clone named `labs`, or the folder horovod_keras3 of any clone.
EDITABLE = ["--no-build-isolation", "--no-deps", "--config-settings=editable_mode=compat"]
CONSTRAINTS = "setup/constraints.txt"


def read_pins(root: Path) -> dict[str, str]:
    """Return the version of every package in the file of constraints."""
    return dict(line.split("==") for line in (root / CONSTRAINTS).read_text().split())


def requirements(root: Path, extras: list[str]) -> list[str]:
    """Return the requirements of pyproject.toml, with the given extras."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return project["dependencies"] + [line for extra in extras for line in optional[extra]]


def clean_environment() -> dict[str, str]:
    """Return the environment variables without those that would mislead pip, uv, Python or make."""
    return {name: value for name, value in os.environ.items() if name not in MISLEADING}


def uv_settings(steps: Steps, python: Path, env: dict[str, str]) -> dict[str, str]:
    """Return pip's index, mirrors and certificate as uv's variables; uv's own settings take precedence."""
    listed = steps.run([python, "-m", "pip", "config", "list"], env)
    settings: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # In pip's order: the last one wins.
        for name, value in re.findall(rf"^{section}\.([\w-]+)='(.*)'$", listed, re.MULTILINE):
            if name in UV_NAMES:
                # pip separates list entries with blanks or newlines, and prints a newline as \n.
                settings[UV_NAMES[name]] = " ".join(value.replace("\\n", " ").split())
    if "UV_INDEX" in settings:
        settings["UV_INDEX"] = " ".join(url for url in settings["UV_INDEX"].split() if _exists(url))
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # Like pip: the best version of all indexes.
    return {name: value for name, value in settings.items() if value and name not in env}


def _exists(url: str) -> bool:
    return not url.startswith("file://") or Path(url.removeprefix("file://")).is_dir()


def install(steps: Steps, python: Path, root: Path, wanted: list[str]) -> None:
    """Install the requirements into the environment of `python`, at the pinned versions."""
    env = clean_environment()
    try:
        steps.run([python, *PIP_INSTALL, f"uv=={read_pins(root)['uv']}"], env)
        env |= uv_settings(steps, python, env)
        tool = [python.parent / "uv", "pip", "install", "--python", python]
    except SetupError:
        print(" (uv is not available; pip takes minutes)", end="", flush=True)
        tool = [python, *PIP_INSTALL]
        wanted = [line for line in wanted if line != "uv"]
    steps.run([*tool, "-c", root / CONSTRAINTS, *wanted], env)
    # The kit itself comes last and alone: its build needs the setuptools that was just installed.
    steps.run([*tool, *EDITABLE, "-e", root], env)


def install_layer(steps: Steps, python: Path, root: Path) -> None:
    """Install horovod_keras3, which needs Horovod."""
    steps.run([python, *PIP_INSTALL, *EDITABLE, "-e", root / "horovod_keras3"], clean_environment())
