"""docs/own-script.md: both sides of its diffs train, the first with Horovod by each command that the page names."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from labs.run.paths import ROOT

PAGE = (ROOT / "docs/own-script.md").read_text()
(DIFF, SECOND), (COMMANDS,) = (re.findall(f"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("diff", "shell"))
COMMANDS = [line.partition(" #")[0].strip() for line in COMMANDS.splitlines()]
EXAMPLE = "examples/lab02_horovod.py"


def side(sign: str, diff: str = DIFF) -> str:
    """Return the script before ("-") or after ("+") the change."""
    return "".join(line[1:] or "\n" for line in diff.splitlines(keepends=True) if line[0] in f" \n{sign}")


@pytest.mark.everyday
@pytest.mark.workers
def test_a_script_of_ones_own_trains_on_two_workers_from_the_page_alone(tmp_path):
    (tmp_path / "plain.py").write_text(side("-"))
    (tmp_path / "train.py").write_text(side("+"))
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    started = [line.replace(EXAMPLE, "train.py") for line in COMMANDS[1:] if not line.startswith("sbatch")]
    assert [line.split()[0] for line in started] == ["python", "horovodrun", "mpirun", "labs"]
    for line in ["python plain.py", *started]:
        done = subprocess.run(line.split(), cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        accuracies = [float(number) for number in re.findall(r"- accuracy: (\S+)", done.stdout)]
        assert len(accuracies) == 5, "one worker prints"
        assert accuracies[-1] > 0.85
        steps = {int(number) for number in re.findall(r"(\d+)/\d+ - ", done.stdout)}
        assert steps == ({57} if line.startswith("python") else {29}), "two workers share the images"
        assert not line.startswith("labs") or not done.stderr
        assert (tmp_path / "digits.keras").exists()
        (tmp_path / "digits.keras").unlink()


@pytest.mark.workers
@pytest.mark.parametrize(("sign", "replaced", "command"), [
    ("-", "model.fit(", [sys.executable]), ("+", "callbacks = [", [sys.executable, "-m", "labs", "launch", "2"])])
def test_callbacks_validation_and_files(tmp_path, sign, replaced, command):
    """Two workers stop after the same epoch, or the launch would not end; one of them writes and prints."""
    (tmp_path / "train.py").write_text(side(sign).partition(replaced)[0] + side(sign, SECOND))
    done = subprocess.run([*command, "train.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True,
                          capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    with (tmp_path / "log.csv").open() as file:
        log = list(csv.DictReader(file))
    assert [int(number) for number in re.findall(r"epoch (\d+): gap", done.stdout)] == list(range(1, len(log) + 1))
    assert max(float(epoch["val_accuracy"]) for epoch in log) > 0.9
    assert float(log[-1]["learning_rate"]) < float(log[0]["learning_rate"])
    assert len(log) < 40
    assert (tmp_path / "best.keras").exists()
