"""README's own script, saved and started as README says: it trains on two workers, and its output is quiet."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from labs.run.paths import ROOT

SECTION = (ROOT / "README.md").read_text().partition("## Your own script\n")[2].partition("\n## ")[0]


@pytest.mark.everyday
@pytest.mark.workers
def test_a_script_of_ones_own_trains_on_two_workers_from_readme_alone(tmp_path):
    (script,), (commands,) = (re.findall(f"```{kind}\n(.*?)```", SECTION, re.DOTALL) for kind in ("python", "shell"))
    (tmp_path / "train.py").write_text(script)
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    activate, *started = [line.partition(" #")[0].strip() for line in commands.splitlines()]
    assert (activate, [line.split()[0] for line in started]) == ("source .venv/bin/activate", ["labs", "horovodrun"])
    for line in started:
        done = subprocess.run(line.split(), cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        accuracies = [float(number) for number in re.findall(r"- accuracy: (\S+)", done.stdout)]
        assert len(accuracies) == 5, "one worker prints"
        assert accuracies[-1] > 0.85
        assert line.startswith("horovodrun") or not done.stderr
        assert (tmp_path / "digits.keras").exists()
        (tmp_path / "digits.keras").unlink()
