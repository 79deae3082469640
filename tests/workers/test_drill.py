"""Some kills: nothing is lost but the steps since the last checkpoint. `make drill` takes hundreds."""

import re
import subprocess
import sys

import pytest

from labs.run.paths import ROOT


@pytest.mark.alone
@pytest.mark.timeout(1200)
def test_a_run_that_is_killed_again_and_again_comes_to_the_end_of_an_undisturbed_one():
    drill = [sys.executable, "-m", "tests.drill", "--kills", "24", "--per-campaign", "12"]
    done = subprocess.run(drill, cwd=ROOT, capture_output=True, text=True, timeout=1140, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    _, aimed, landed = map(int, re.search(r"(?m)^\| (\d+) \| (\d+) \| (\d+) \|$", done.stdout).groups())
    assert aimed >= landed >= 2, "of about 12 kills aimed into a save, some must hit it"
    assert "campaigns ended like the undisturbed run, bit for bit" in done.stdout
