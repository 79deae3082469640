"""Lab 12: workers that die and join during training, and what that costs; nothing is simulated."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from labs import lab12_elastic as lab
from labs.launch import local, mpirun
from labs.measure import kills
from labs.run import command_line, options
from labs.run.errors import LabError
from tests import listening
from tests.exercises.solved import solved

DEMO = lab.PRESETS["demo"]
RESUME = dataclasses.replace(DEMO, study="resume", epochs=2, leave_epoch=1.5)
IMAGES = 1438
"""Training images among the 1,797 embedded digits."""

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """The demo: 2 -> 1 -> 2 workers. Returns record, output, listening addresses and results root."""
    root = tmp_path_factory.mktemp("story")
    with open(root / "said", "w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "labs", "run", "lab12", "--workers", "2", "--oversubscribe", "--name", "it"],
            stdout=output, stderr=subprocess.STDOUT, env=os.environ | {"LABS_RESULTS": str(root)},
        )
        addresses, deadline = set(), time.monotonic() + 180
        while process.poll() is None:
            launcher = psutil.Process(process.pid)
            addresses |= listening.addresses(launcher, *launcher.children(recursive=True))
            assert time.monotonic() < deadline, (process.terminate(), output.seek(0), output.read())
            time.sleep(0.3)
        output.seek(0)
        text = output.read()
    assert process.returncode == 0, text
    return json.loads((root / "lab12_elastic/it/record.json").read_text()), text, addresses, root


@pytest.mark.workers
def test_training_goes_on_with_one_worker_and_with_two_again(story):
    record, text, addresses, root = story
    events = record["tables"]["events"]
    assert [(event["kind"], event["size"]) for event in events] == [
        ("start", 2), ("worker lost", 1), ("worker joined", 2)]
    assert "exit with status code 137" in text  # 128 + SIGKILL: horovodrun has seen the dead one.
    assert 1 <= events[1]["steps_lost"] <= DEMO.commit_steps
    assert events[0]["steps_lost"] == events[2]["steps_lost"] == 0
    assert record["metrics"]["test_accuracy"] > 0.9
    assert addresses
    assert all(address.startswith("127.") for address in addresses), "none listens beyond this machine"
    solved("lab12.q3", results_root=root)


@pytest.mark.workers
def test_every_epoch_is_done_and_counts_every_image_once(story):
    record, text, *_ = story
    history = record["history"]
    assert [row["epoch"] for row in history] == list(range(1, DEMO.epochs + 1))
    assert [row["learning_rate"] for row in history] == pytest.approx([DEMO.base_lr * row["size"] for row in history])
    two = math.ceil(IMAGES / 128)
    assert history[0]["steps"] == history[-1]["steps"] == two
    assert f"epoch 1: {IMAGES} of {IMAGES} training images used once, by 2 workers in {two} steps" in text
    # The worker left in the second epoch: what was not used and committed by two is dealt to one.
    left = IMAGES - 128 * (record["tables"]["events"][1]["step"] - two)
    assert f"epoch 2: {left} of {left} training images used once, by 1 worker in {math.ceil(left / 64)} steps" in text
    assert record["tables"]["progress"][-1]["epochs"] == DEMO.epochs
    reached = [row["epochs"] for row in record["tables"]["progress"]]
    (fall,) = [before - after for before, after in itertools.pairwise(reached) if after < before]
    lost = record["tables"]["events"][1]["steps_lost"]
    assert (lost - 1) * 128 - 0.1 <= fall * IMAGES <= lost * 128 + 0.1, "the failed step is lost, but was never reached"


@pytest.mark.workers
def test_without_elastic_at_most_an_epoch_is_lost(tmp_path, monkeypatch):
    words = [*command_line.to_argv(RESUME), "--name", "it"]
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    with pytest.raises(LabError, match=r"rank 1 on .* killed by SIGKILL"):
        local.run(lab, words, workers=2, oversubscribe=True)
    record = local.run(lab, [*words, "--resume"], workers=2, oversubscribe=True)
    (event,) = record["tables"]["events"]
    steps = math.ceil(IMAGES / 128)
    assert event["step"] == steps
    assert 0 <= event["steps_lost"] <= steps
    assert 0 < event["seconds_starting"] < event["seconds_lost"] < event["seconds"] < record["metrics"]["wall_seconds"]
    solved("lab12.q1")
    assert [row["epoch"] for row in record["history"]] == list(range(1, RESUME.epochs + 1))


def test_what_kills_waste_is_all_but_the_kept_steps(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    lives = [kills.Life(life=2.0, restart=0.5, kept=1.0, saving=0.25, lost=0.25), kills.Life(life=6.0, kept=1.0)]
    monkeypatch.setattr(kills, "study", lambda *_, **__: lives)
    record = lab.run(dataclasses.replace(DEMO, study="kills", kills=2), options.Options(results=tmp_path))
    assert (record["metrics"]["wall_seconds"], record["metrics"]["wasted"]) == (8.0, 0.75)
    assert [row["kept"] for row in record["tables"]["kills"]] == [1.0, 1.0]


@pytest.mark.slow
def test_the_study_of_kills_lasts_at_least_as_long_as_the_lives_that_it_draws(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    config = dataclasses.replace(DEMO, study="kills", kills=3, save_every=0.05)
    record = local.run(lab, config, 1)
    assert len(record["tables"]["kills"]) == 3
    drawn = np.random.default_rng(config.seed).exponential(config.mean_life, config.kills)
    assert record["metrics"]["wall_seconds"] >= drawn.sum()
    assert 0 < record["metrics"]["wasted"] <= 1
    assert not record["history"]
    with pytest.raises(LabError, match="the study of kills has one worker; add --workers 1"):
        local.run(lab, config, 2)


@pytest.mark.workers
def test_workers_that_mpirun_has_started_cannot_be_lost_and_say_so(tmp_path):
    done = subprocess.run([*mpirun.command(2), sys.executable, "-m", "labs.lab12_elastic", "--results", str(tmp_path)],
                          env=mpirun.environment(), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode
    assert "labs: error: these workers were not started for elastic training: start them with `labs run`" in done.stderr
