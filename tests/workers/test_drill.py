"""Fifty kills: nothing is lost but the steps since the last checkpoint. `make drill` takes a thousand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from labs.run.paths import ROOT, search_path
from tests.tools.cluster.client import missing

KILLS = 50
ENOUGH = 5
"""Of about 25 kills aimed into a save, this many must hit it, or the drill has shown nothing."""


def in_private_network(command: list[str]) -> list[str]:
    """Wrap a command so that it runs in a private network namespace, where Linux allows it.

    Gloo assumes that the first connection to its port is the other worker. A stray connection from any local program
    makes a start fail; a Jupyter client, for example, tries the port of a dead kernel again and again.
    """
    if missing():
        return command
    user = ["--user", "--map-root-user"] if os.geteuid() else []
    script = f'{shutil.which("ip", path=search_path())} link set lo up && exec "$@"'
    return ["unshare", *user, "--net", "sh", "-c", script, "sh", *command]


@pytest.mark.alone
@pytest.mark.timeout(900)
def test_a_run_that_is_killed_fifty_times_comes_to_the_end_of_an_undisturbed_one():
    drill = [sys.executable, "-m", "tests.drill", "--kills", str(KILLS), "--per-campaign", str(KILLS // 2),
             "--every", "20"]
    done = subprocess.run(in_private_network(drill), cwd=ROOT, capture_output=True, text=True, timeout=840,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print(done.stdout)
    together = re.search(r"^\| together \| (\d+) \| (\d+) \| (\d+) \|$", done.stdout, re.MULTILINE)
    at_any_moment, aimed, landed = map(int, together.groups())
    assert at_any_moment + aimed == KILLS
    assert landed >= ENOUGH, done.stdout
    assert "campaigns ended like the undisturbed run, bit for bit" in done.stdout
