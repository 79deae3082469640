"""Lab 12: workers that die and join during training, and what that costs; nothing is simulated."""

import dataclasses
import json
import math
import os
import subprocess
import sys

import numpy as np
import psutil
import pytest

from labs import lab12_elastic as lab
from labs.run import command_line, local
from labs.run.errors import LabError
from tests import listening
from tests.exercises.solved import solved

DEMO = lab.PRESETS["demo"]
IMAGES = 1438  # Training images among the 1,797 embedded digits.
STEPS = math.ceil(IMAGES / 128)  # Of an epoch of two workers.


@pytest.mark.workers
def test_training_goes_on_with_one_worker_and_with_two_again(tmp_path):
    """Every epoch is done and counts every image once."""
    with open(tmp_path / "output", "w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "labs", "run", "lab12", "--workers", "2", "--oversubscribe", "--name", "it"],
            stdout=output, stderr=subprocess.STDOUT, env=os.environ | {"LABS_RESULTS": str(tmp_path)})
        addresses = set()
        while process.poll() is None:
            launcher = psutil.Process(process.pid)
            addresses |= listening.addresses(launcher, *launcher.children(recursive=True))
    text = (tmp_path / "output").read_text()
    assert process.returncode == 0, text
    assert {address.partition(".")[0] for address in addresses} == {"127"}, "none listens beyond this machine"
    record = json.loads((tmp_path / "lab12_elastic/it/record.json").read_text())
    events, history = record["tables"]["events"], record["history"]
    assert [(event["kind"], event["size"]) for event in events] == [
        ("start", 2), ("worker lost", 1), ("worker joined", 2)]
    assert 1 <= events[1]["steps_lost"] <= DEMO.commit_steps
    assert record["metrics"]["test_accuracy"] > 0.9
    assert [row["epoch"] for row in history] == list(range(1, DEMO.epochs + 1))
    assert [row["learning_rate"] for row in history] == pytest.approx([DEMO.base_lr * row["size"] for row in history])
    assert f"epoch 1: {IMAGES} of {IMAGES} training images used once, by 2 workers in {STEPS} steps" in text
    # The worker left in the second epoch: what was not used and committed by two is dealt to one.
    left = IMAGES - 128 * (events[1]["step"] - STEPS)
    assert f"epoch 2: {left} of {left} training images used once, by 1 worker in {math.ceil(left / 64)} steps" in text
    solved("lab12.q3", results_root=tmp_path)


@pytest.mark.workers
def test_without_elastic_at_most_an_epoch_is_lost():
    config = dataclasses.replace(DEMO, study="resume", epochs=2, leave_epoch=1.5)
    words = [*command_line.to_argv(config), "--name", "it"]
    with pytest.raises(LabError, match=r"rank 1 on .* killed by SIGKILL"):
        local.run(lab, words, workers=2, oversubscribe=True)
    record = local.run(lab, [*words, "--resume"], workers=2, oversubscribe=True)
    (event,) = record["tables"]["events"]
    assert event["step"] == STEPS
    assert 0 <= event["steps_lost"] <= STEPS
    assert 0 < event["seconds_starting"] < event["seconds_lost"] < event["seconds"] < record["metrics"]["wall_seconds"]
    assert [row["epoch"] for row in record["history"]] == [1, 2]
    solved("lab12.q1")


@pytest.mark.slow
def test_the_study_of_kills_lasts_at_least_as_long_as_the_lives_that_it_draws():
    config = dataclasses.replace(DEMO, study="kills", kills=3, save_every=0.05)
    record = local.run(lab, config, 1)
    assert len(record["tables"]["kills"]) == 3
    lives = np.random.default_rng(config.seed).exponential(config.mean_life, config.kills)
    assert record["metrics"]["wall_seconds"] >= lives.sum()
