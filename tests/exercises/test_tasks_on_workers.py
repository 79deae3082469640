"""Code exercises on two real workers: a train step that a student wrote, and the scripts with a planted bug."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from labs import exercises
from labs.exercises import fresh_process
from labs.run.paths import ROOT
from tests.exercises.solved import repaired_script, solution, with_solutions

pytestmark = [pytest.mark.workers, with_solutions]
BROKEN = ROOT / "debugging"


EXCHANGE = "gradients = [hvd.allreduce(gradient) for gradient in gradients]"
MISTAKES = {
    "no exchange": (EXCHANGE, "pass", "hold different weights"),
    "an error": (EXCHANGE, "gradients = gradients[99]", r"rank \d on \S+: IndexError"),
    "a sum": ("hvd.allreduce(gradient)", "hvd.allreduce(gradient, op=hvd.Sum)", "one worker that trains on all"),
    "another order": (EXCHANGE, "_ = hvd.rank() or hvd.allreduce(loss); hvd.broadcast(loss, root_rank=0)",
                      r"rank \d on \S+: waited at .* for another rank"),
}


@pytest.mark.timeout(600)
def test_the_step_of_the_solution_passes_and_wrong_ones_are_refused(capsys):
    exercises.check("lab02.step", solution("lab02.step"))
    assert "lab02.step: right: after 3 steps on two real workers their weights are equal" in capsys.readouterr().out
    cell = (ROOT / "solutions/lab02_horovod.py").read_text()
    for right, wrong, hint in MISTAKES.values():
        assert right in cell
        with pytest.raises(AssertionError, match=hint):
            fresh_process.grade_step(cell.replace(right, wrong))


# Scripts with a planted bug.

@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """The folders of the scripts with the bugs, and of the repaired ones."""
    folder = tmp_path_factory.mktemp("repaired")
    for script in BROKEN.glob("*.py"):
        (folder / script.name).write_text(repaired_script(script.stem))
    return BROKEN, folder


def launch(folder: Path, lab: str, workers: int, *arguments: object) -> subprocess.CompletedProcess:
    """Run a script as a student does."""
    command = [sys.executable, "-m", "labs", "launch", workers, folder / f"{lab}.py", *arguments]
    return subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def between(low: float, high: float):
    """Return whether all numbers are in a range."""
    return lambda values, alone: bool(values) and all(low <= value <= high for value in values)


def exactly(*right: float):
    return lambda values, alone: values == list(right)


def near_one_worker(values, alone):
    return values[0] == pytest.approx(alone[0], rel=0.01, abs=2e-4)


def far_from_one_worker(values, alone):
    return abs(values[0] - alone[0]) > 0.005


SCRIPTS = {
    "lab01": (r"(\d+) rows for 3 epochs", exactly(6), exactly(3)),
    "lab02": (r"the workers' weights: ([\d.]+)", between(0.1, 99), exactly(0)),
    "lab03": (r"loss after 25 steps: (\S+)", between(1e6, float("inf")), near_one_worker),
    "lab04": (r"epoch \d: (\d+) of 1024 images used", between(700, 830), exactly(1024, 1024, 1024)),
    "lab06": (r"training added (\d+) MiB", between(136, 999), between(10, 135)),  # Activations: 96 or 48 MiB, and more.
    "lab07": (r"loss (\d+\.\d+)", far_from_one_worker, near_one_worker),
    "lab09": (r"(?:test|new photos): \d+ images, accuracy (\S+)", lambda values, alone: values[0] > values[1] + 0.1,
              lambda values, alone: values[0] == pytest.approx(values[1], abs=0.08)),
    "lab10": (r"accuracy (\S+)", between(0.6, 1), between(0.38, 0.62)),  # Coin flips: three standard errors are 0.11.
    "lab12": (r"used twice: \[\s*(\d+)\.?\s+(\d+)\.?\] by epoch", exactly(0, 256), exactly(0, 0)),
    "lab13": (r"loss (\d+\.\d+)", far_from_one_worker, near_one_worker),
}
"""The numbers that a script prints, and what they are with the bug and without it."""


@pytest.mark.parametrize("lab", SCRIPTS)
def test_a_script_shows_the_symptom_of_its_bug_until_it_is_repaired(lab, folders, tmp_path):
    pattern, *expected = SCRIPTS[lab]

    def numbers(folder: Path, workers: int) -> list[float]:
        done = launch(folder, lab, workers, *[tmp_path / folder.name] * (lab == "lab01"))
        assert done.returncode == 0, done.stderr[-3000:]
        return [float(number) for found in re.finditer(pattern, done.stdout) for number in found.groups()]

    alone = numbers(BROKEN, 1) if "one_worker" in str(expected) else []
    for folder, holds in zip(folders, expected, strict=True):
        assert holds(found := numbers(folder, 2), alone), (folder.name, found, alone)


def test_lab05_hangs(folders):
    repaired = launch(folders[1], "lab05", 2).stdout
    assert len(set(re.findall(r"rank \d stops after (\d+) epochs", repaired))) == 1
    last = launch(BROKEN, "lab05", 2).stderr.splitlines()[-1]
    assert re.match(r"labs: error: rank \d on \S+: waited at lab05\.py, line (33|34) for another rank", last), last
