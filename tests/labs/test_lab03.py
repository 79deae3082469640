"""Lab 3: the learning rate follows the global batch; warmup saves a run that fails without it."""

from __future__ import annotations

import dataclasses
import re

import pytest

from labs import lab03_lr_scaling as lab
from labs.launch import local
from labs.run import fields
from labs.run.errors import LabError
from labs.run.paths import ROOT
from tests.course.exercises.solved import solved

DEMO = lab.PRESETS["demo"]


@pytest.fixture(autouse=True)
def _own_results(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "results"))


@pytest.mark.parametrize(("batch_size", "size"), [(64, 2), (128, 1), (32, 4)])
def test_the_rate_depends_on_the_global_batch_alone(batch_size, size):
    schedule = lab.learning_rate(dataclasses.replace(DEMO, batch_size=batch_size), 1600, size)
    assert (schedule.start, schedule.peak) == (0.001, pytest.approx(0.032))
    assert (schedule.warmup_steps, schedule.milestones) == (39, (65,))


def test_m5_is_the_case_of_one_workers_batch_as_reference():
    config = dataclasses.replace(DEMO, batch_size=128, base_batch_size=128)
    assert [lab.learning_rate(config, 60_000, size).peak for size in (1, 2, 8)] == pytest.approx([0.001, 0.002, 0.008])


def test_paper_is_the_reports_setting():
    paper = lab.PRESETS["paper"]
    workers = lab.WORKERS["paper"]
    assert (paper.data, paper.epochs, workers, paper.batch_size) == ("real", 5, 4, 512)
    assert workers * paper.batch_size / paper.base_batch_size == 16
    assert lab.learning_rate(paper, 45_000, workers).peak == pytest.approx(1.6)


def test_laptop_is_the_reports_setting_with_fewer_images_and_a_small_network():
    paper, laptop = lab.PRESETS["paper"], lab.PRESETS["laptop"]
    other = {"model": laptop.model, "images": 30_000, "base_lr": laptop.base_lr, "augment": False}
    assert dataclasses.replace(paper, **other) == laptop
    search, small_batch, rules, warmup = lab.SWEEPS["laptop"]
    assert lab.SWEEPS["paper"] == lab.SWEEPS["laptop"]
    assert (search.workers, search.grid["batch_size"]) == ((1,), (laptop.base_batch_size,))
    assert min(search.grid["base_lr"]) < laptop.base_lr < max(search.grid["base_lr"])
    assert rules.workers == warmup.workers == (4,)
    assert len(small_batch.seeds) == len(rules.seeds) == len(warmup.seeds) == 3


def test_a_search_takes_the_small_batch():
    search, small_batch = lab.SWEEPS["demo"]
    assert search.grid["batch_size"] == small_batch.grid["batch_size"] == (DEMO.base_batch_size,)
    assert min(search.grid["base_lr"]) < DEMO.base_lr < max(search.grid["base_lr"])


@pytest.mark.workers
def test_a_run_takes_as_many_images_as_it_is_given():
    few = ["--images", "200", "--epochs", "1", "--model", "cifar_cnn_bn", "--optimizer", "sgd"]
    record = local.run(lab, few, workers=1)
    assert record["history"][-1]["images"] + record["metrics"]["validation_images"] == 200


@pytest.mark.parametrize("text", [lab.__doc__, (ROOT / "jobs/lab03_lr_scaling.sh").read_text()])
def test_the_commands_for_paper_start_the_reports_four_workers(text):
    (command_line,) = [line for line in text.splitlines() if "sbatch" in line and "--preset paper" in line]
    tasks, nodes = re.search(r"--ntasks-per-node=(\d+)", command_line), re.search(r"-N (\d+)", command_line)
    assert tasks, command_line
    assert int(tasks[1]) * int(nodes[1] if nodes else 1) == lab.WORKERS["paper"]


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(LabError, match="--base-batch-size 0 is out of range"):
        fields.check(dataclasses.replace(DEMO, base_batch_size=0))


def test_resnet18_has_the_parameters_that_the_reports_exchange():
    from labs.models import cifar

    model = cifar.resnet18()
    assert sum(int(weight.shape.num_elements()) for weight in model.trainable_weights) == 11_173_962  # 44.7 MB.
    assert model.output_shape == (None, 10)


@pytest.mark.workers
def test_warmup_saves_what_linear_scaling_alone_breaks():
    """On two workers and on one with the same global batch, which is the same experiment."""
    linear = local.run(lab, DEMO, workers=2, oversubscribe=True)
    sudden = lab.run(dataclasses.replace(DEMO, warmup_epochs=0, batch_size=2 * DEMO.batch_size))
    assert linear["layout"]["global_batch_size"] == sudden["layout"]["global_batch_size"] == 128
    with_it, without = (record["history"][-1]["val_accuracy"] for record in (linear, sudden))
    assert with_it > 0.5
    assert with_it - without > 0.1
    assert linear["history"][-1]["learning_rate"] == pytest.approx(0.0032)
    solved("lab03.q1", "lab03.q2", "lab03.q4")
