"""Code exercises on two real workers: a train step that a student wrote, and the scripts with a planted bug."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from labs import exercises
from labs.run.paths import ROOT
from tests.exercises import planted
from tests.exercises.solved import repaired_script, solution, with_solutions
from tests.tools.cluster import client
from tests.waiting import ends

pytestmark = pytest.mark.workers
BROKEN = ROOT / "debugging"


# A train step.

@with_solutions
def test_the_step_of_the_solution_passes(capsys):
    exercises.check("lab02.step", solution("lab02.step"))
    assert "lab02.step: right: after 3 steps on two real workers their weights are equal" in capsys.readouterr().out


BY_HAND = '''
import labs.pages
def step(model, images, labels, optimizer, hvd):
    'As in the exercises of the page.'
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, model(images)))
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients = [hvd.allreduce(gradient) for gradient in gradients]
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
exercises.show({"lab02.step": step})
'''
EXCHANGE = "gradients = [hvd.allreduce(gradient) for gradient in gradients]"
MISTAKES = {
    "no exchange": (EXCHANGE, "pass", "hold different weights"),
    "a sum": ("hvd.allreduce(gradient)", "hvd.allreduce(gradient, op=hvd.Sum)", "one worker .* ends at other weights"),
    "a name that is not there": (EXCHANGE, "gradients = average(gradients)",
                                 r"rank \d of two, the function raised NameError in `gradients = average\(grad"),
    "a name of another cell": ("import labs.pages", "rate = RATE", "this cell needs `RATE`, which it"),
    "rank 0 alone": (EXCHANGE, "gradients = [hvd.allreduce(g) for g in gradients] if hvd.rank() == 0 else gradients",
                     "a rank waits in a collective that the other never calls"),
}


def check(cell: str) -> None:
    """Check the step of a cell as its page does."""
    exercises.check("lab02.step", planted.cell(cell, RATE=1, exercises=types.SimpleNamespace(show=print))["step"])


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_step_is_refused(name):
    right, wrong, hint = MISTAKES[name]
    assert right in BY_HAND
    with pytest.raises(AssertionError, match=hint):
        check(BY_HAND.replace(right, wrong))


def test_steps_that_wait_for_each_other_are_a_hang():
    """Rank 0 begins with an all-reduce, rank 1 with a broadcast: neither ends, and nothing raises."""
    waits = BY_HAND.replace(EXCHANGE, "_ = hvd.rank() or hvd.allreduce(loss)\n    hvd.broadcast(loss, root_rank=0)")
    with pytest.raises(AssertionError, match=r"a rank waits in a collective that the other never calls"):
        check(waits)


# Scripts with a planted bug.

@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """The folders of the scripts with the bugs, and of the repaired ones."""
    folder = tmp_path_factory.mktemp("repaired")
    for script in BROKEN.glob("*.py"):
        (folder / script.name).write_text(repaired_script(script.stem))
    return BROKEN, folder


def output(folder: Path, lab: str, workers: int, *arguments: object) -> str:
    """Run a script as a student does, and return what it prints."""
    command = [sys.executable, "-m", "labs", "launch", workers, folder / f"{lab}.py"]
    done = subprocess.run(list(map(str, [*command, *arguments])), cwd=ROOT, capture_output=True, text=True, timeout=240,
                          check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def in_both(folders):
    """Return a function that returns what the script with the bug prints on two workers, and the repaired one."""
    return lambda lab, *arguments: [output(folder, lab, 2, *arguments) for folder in folders]


@with_solutions
def test_lab01_counts_every_epoch_twice(tmp_path, in_both):
    broken, repaired = in_both("lab01", tmp_path / "log.csv")
    assert "6 rows for 3 epochs: 1536 images in all" in broken
    assert "3 rows for 3 epochs: 768 images in all" in repaired


@with_solutions
def test_lab02_ends_with_different_weights(in_both):
    broken, repaired = (float(re.search(r"the workers' weights: ([\d.]+)", text)[1]) for text in in_both("lab02"))
    assert broken > 0.1
    assert repaired == 0


@with_solutions
def test_lab03_explodes_on_two_workers(in_both):
    (broken, repaired), alone = in_both("lab03"), output(BROKEN, "lab03", 1)
    losses = [float(re.search(r"global batch: 512, loss after 25 steps: (\S+)", text)[1])
              for text in (broken, repaired, alone)]
    assert losses[0] > 1e6
    assert losses[1] < 1e-3
    assert losses[1] == pytest.approx(losses[2], rel=0.01, abs=1e-9)


@with_solutions
def test_lab04_leaves_images_out(in_both):
    broken, repaired = (list(map(int, re.findall(r"epoch \d: (\d+) of 1024 images used", text)))
                        for text in in_both("lab04"))
    assert len(broken) == 3
    assert all(700 < used < 830 for used in broken), "three quarters: 1 - (1 - 1/2)^2"
    assert repaired == [1024] * 3


@with_solutions
def test_lab05_hangs(folders):
    repaired = output(folders[1], "lab05", 2)
    assert len(set(re.findall(r"rank \d stops after (\d+) epochs", repaired))) == 1
    command = [sys.executable, "-m", "labs", "launch", "2", BROKEN / "lab05.py"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        with ends(240):
            said = next(line for line in process.stderr if "have waited for each other" in line)
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
    finally:
        process.kill()
    assert re.findall(r"rank (\d) on \S+ \(lab05\.py, line (\d+)\)", said) == [("0", "33"), ("1", "34")]
    assert rest.endswith("labs: interrupted\n")
    assert process.wait() == 130


@with_solutions
def test_lab06_halves_nothing(in_both):
    """Activations of 64 images are 96 MiB, of 32 images 48 MiB; gradients and buffers come on top."""
    added = [int(re.search(r"training added (\d+) MiB", text)[1]) for text in in_both("lab06")]
    assert added[0] - added[1] > 40


@with_solutions
def test_lab07_takes_half_of_the_steps(in_both):
    alone = output(BROKEN, "lab07", 1)
    broken, repaired = in_both("lab07")
    assert "size 1: 32 steps per epoch" in alone
    assert "size 2: 16 steps per epoch" in broken
    assert "size 2: 32 steps per epoch" in repaired
    losses = [float(re.search(r"loss (\d+\.\d+)", text)[1]) for text in (alone, repaired, broken)]
    assert losses[1] == pytest.approx(losses[0], abs=2e-4)
    assert abs(losses[2] - losses[0]) > 0.005


@with_solutions
def test_lab08_starts_more_threads_than_there_are_cores(in_both):
    (broken, cores), (threads, _) = (map(int, re.search(r"2 workers, .* threads: (\d+), cores: (\d+)", text).groups())
                                     for text in in_both("lab08"))
    assert broken == 2 * cores
    assert threads <= max(2, cores)


@with_solutions
def test_lab09_tests_on_copies_of_training_photos(in_both):
    broken, repaired = ({name: float(accuracy) for name, accuracy in re.findall(
        r"(test|new photos): \d+ images, accuracy (\S+)", text)} for text in in_both("lab09"))
    assert broken["test"] > broken["new photos"] + 0.1
    assert repaired["test"] == pytest.approx(repaired["new photos"], abs=0.08)


@with_solutions
def test_lab10_tests_on_images_that_the_other_worker_trains_on(in_both):
    broken, repaired = (float(re.search(r"accuracy (\S+)", text)[1]) for text in in_both("lab10"))
    assert broken > 0.6
    assert repaired == pytest.approx(0.5, abs=0.12)  # Three standard errors of 200 coin flips are 0.11.


@with_solutions
def test_lab11_divides_the_images_of_a_node_but_not_between_nodes(tmp_path, folders, in_both):
    """On one node the bug does not show."""
    for text in in_both("lab11"):
        assert text.count("2 workers on 1 node, epoch") == 3
        assert text.count("1024 images trained, 1024 different ones") == 3
    with client.running(tmp_path / "cluster", "--nodes", 2, *client.sharing(folders[1])) as cluster:
        trained = [re.findall(r"2 workers on 2 nodes, epoch \d: (\d+) images trained, 1024 different", cluster.labs(
            "shell", "--", sys.executable, "-m", "labs", "launch", "2", folder / "lab11.py").stdout)
            for folder in folders]
    assert trained == [["2048"] * 3, ["1024"] * 3]


@with_solutions
def test_lab12_uses_images_twice(in_both):
    broken, repaired = (re.search(r"used twice: \[\s*(\d+)\.?\s+(\d+)\.?\] by epoch", text).groups()
                        for text in in_both("lab12"))
    assert broken == ("0", "256")
    assert repaired == ("0", "0")


@with_solutions
def test_lab13_updates_one_part_on_all_workers(in_both):
    alone = output(BROKEN, "lab13", 1)
    losses = {}
    for name, text in zip(("alone", "broken", "repaired"), (alone, *in_both("lab13")), strict=True):
        losses[name] = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", text)]
        assert len(set(losses[name])) == 1, "all workers end with the same weights"
    assert losses["repaired"][0] == pytest.approx(losses["alone"][0], abs=2e-4)
    assert losses["broken"][0] > 2 * losses["alone"][0]
