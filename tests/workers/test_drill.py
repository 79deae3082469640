"""Some kills: nothing is lost but the steps since the last checkpoint. `make drill` takes hundreds."""

import re
import subprocess
import sys

import pytest

from labs.run.paths import ROOT

KILLS = 24
ENOUGH = 2
"""Of about 12 kills aimed into a save, this many must hit it, or the drill has shown nothing."""


@pytest.mark.alone
@pytest.mark.timeout(1200)
def test_a_run_that_is_killed_again_and_again_comes_to_the_end_of_an_undisturbed_one():
    drill = [sys.executable, "-m", "tests.drill", "--kills", str(KILLS), "--per-campaign", str(KILLS // 2)]
    done = subprocess.run(drill, cwd=ROOT, capture_output=True, text=True, timeout=1140, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    together = re.search(r"^\| (\d+) \| (\d+) \| (\d+) \|$", done.stdout, re.MULTILINE)
    at_any_moment, aimed, landed = map(int, together.groups())
    assert at_any_moment + aimed == KILLS
    assert landed >= ENOUGH, done.stdout
    assert "campaigns ended like the undisturbed run, bit for bit" in done.stdout
