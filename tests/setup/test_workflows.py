"""The workflows of GitHub Actions, and the dev container: what they call exists in this clone."""

from __future__ import annotations

import json
import os
import re
import subprocess

import suitable
import yaml

from labs.tools.notebook.jupyter_server import SETTINGS
from tests.setup.clone import ROOT

WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
STEPS = [step for workflow in WORKFLOWS.values() for job in workflow["jobs"].values() for step in job["steps"]]
DEV = json.loads(re.sub(r"^\s*//.*$", "", (ROOT / ".devcontainer/devcontainer.json").read_text(), flags=re.MULTILINE))


def is_target(command: str) -> bool:
    """Return whether make knows the target of a command `make TARGET NAME=value`."""
    listed = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True).stdout
    return f"make {command.split()[1]} " in listed


def test_a_workflow_runs_what_exists():
    commands = [step["run"] for step in STEPS if "run" in step]
    made = [command for command in commands if command.startswith("make ")]
    assert [command.split()[1] for command in made] == ["test-all", "test"], "nightly, and for each change"
    assert all(is_target(command) for command in made)
    scripts = [word for command in commands for word in command.split() if word.startswith(".ci/")]
    assert len(scripts) == len(WORKFLOWS)
    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)


def test_each_change_is_tested_on_the_oldest_and_the_newest_python():
    matrix = WORKFLOWS["test"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert matrix == [f"3.{suitable.OLDEST[1]}", f"3.{suitable.TOO_NEW[1] - 1}"]


def test_the_dev_container_builds_a_stage_of_the_recipe():
    folder = ROOT / ".devcontainer"
    recipe = (folder / DEV["build"]["dockerfile"]).read_text()
    stage = re.search(rf" AS {DEV['build']['target']}\n(.*?)^FROM ", recipe, re.MULTILINE | re.DOTALL)[1]
    assert (folder / DEV["build"]["context"]).resolve() == ROOT
    assert re.search(rf"useradd .* {DEV['remoteUser']}$", stage, re.MULTILINE)
    assert is_target(DEV["postCreateCommand"])
    assert DEV["forwardPorts"] == [SETTINGS["ServerApp.port"]]
    assert SETTINGS["ServerApp.ip"] == "127.0.0.1"
