"""`labs accept-gpu` without a GPU: what it would run, what it makes of records, and how it is interrupted."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labs import lab01_baseline, lab02_horovod
from labs.results import records
from labs.run import catalogue, command_line
from labs.run.sweeps import Cell
from labs.tools.check import gpu_node
from labs.tools.check.gpu_node import Outcome

TINY = dataclasses.replace(lab02_horovod.PRESETS["demo"], epochs=1, batch_size=128)
ON_TWO = Cell("lab02_horovod", TINY, 2)
ALONE = dataclasses.replace(lab01_baseline.PRESETS["demo"], epochs=1)


def labs(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "labs", *arguments], capture_output=True, text=True, timeout=120,
                          check=False, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | variables)


def test_without_a_gpu_it_stops_with_one_line(tmp_path):
    done = labs("accept-gpu", LABS_RESULTS=str(tmp_path / "results"))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("labs: error: no GPU to test (")
    assert "srun --gpus=1" in line
    assert not (tmp_path / "results").exists()


def test_list_shows_commands_that_labs_run_takes():
    lines = labs("accept-gpu", "--list").stdout.splitlines()
    assert len(lines) == 5
    for line, cell in zip(lines, gpu_node.cells(1), strict=True):
        labs_, run, lab, workers, count, *words = shlex.split(line)
        assert (labs_, run, lab, workers, count) == ("labs", "run", cell.lab, "--workers", "1")
        config, _ = command_line.parse(catalogue.load_lab(lab), words)
        assert config == cell.config


def test_a_speedup_is_measured_where_there_are_several_gpus():
    layouts: dict[str, list[int]] = {}
    for cell in gpu_node.cells(4):
        layouts.setdefault(cell.lab, []).append(cell.workers)
    assert layouts == {"lab01_baseline": [1], "lab02_horovod": [4], "lab04_speedup": [1, 4], "lab05_allreduce": [4],
                       "lab08_throughput": [1, 4]}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def outcomes(root):
    """Three runs on this machine's cores: one on two workers, one that lab 1 refuses, one on one worker."""
    return list(gpu_node.accept([ON_TWO, Cell("lab01_baseline", ALONE, 2), Cell("lab01_baseline", ALONE, 1)], root))


@pytest.mark.workers
def test_a_run_that_fails_does_not_cost_the_others(outcomes):
    assert [each.seconds is None for each in outcomes] == [False, True, False]
    (cause,) = outcomes[1].problems
    assert "lab 1 measures one worker" in cause


@pytest.mark.workers
def test_a_run_on_cores_is_not_accepted(outcomes, monkeypatch):
    if gpu_node.capacity.visible_gpus():
        pytest.skip("this machine has GPUs")
    assert outcomes[0].problems == ["TensorFlow saw no GPU and trained on the CPU",
                                    "the gradients went over MPI, not over NCCL"]
    assert outcomes[2].problems == ["TensorFlow saw no GPU and trained on the CPU"]


@pytest.mark.workers
def test_the_same_command_continues(outcomes, root):
    record = root / ON_TWO.lab / ON_TWO.name / "record.json"
    written = record.stat().st_mtime_ns
    (again,) = gpu_node.accept([ON_TWO], root)
    assert again == outcomes[0]
    assert record.stat().st_mtime_ns == written


@pytest.mark.workers
def test_the_records_are_kept_as_reference_runs(outcomes, root, tmp_path):
    summary = gpu_node.write_summary(root, ["Horovod was built without it"], outcomes)
    kept = gpu_node.keep(root, outcomes, tmp_path / "kept")
    assert len(records.read_all(root=kept)) == 2
    assert (kept / "acceptance.json").read_text() == summary.read_text()
    about = json.loads(summary.read_text())
    assert about["problems"] == ["Horovod was built without it"]
    assert [run["workers"] for run in about["runs"]] == [2, 2, 1]
    assert about["runs"][1]["problems"] == outcomes[1].problems


@pytest.fixture
def on_gpus(outcomes, root):
    """Return the record of the run on two workers as two GPUs with NCCL would have written it."""
    record = copy.deepcopy(records.read(root / ON_TWO.lab / ON_TWO.name))
    record["machine"]["gpus"] = ["a GPU", "a GPU"]
    record["layout"] |= {"gpus": 2, "backend": "NCCL"}
    return record


BUSY = {"gpu0_percent": 60.0, "gpu0_memory_bytes": 3e9, "gpu1_percent": 50.0, "gpu1_memory_bytes": 2e9}


@pytest.mark.workers
def test_a_run_on_gpus_is_accepted(on_gpus):
    assert gpu_node.problems(on_gpus, BUSY) == []
    assert gpu_node.problems(on_gpus, {}) == [], "a MIG instance reports no utilization"


@pytest.mark.workers
def test_two_workers_on_one_gpu(on_gpus):
    on_gpus["layout"]["gpus"] = 1
    assert gpu_node.problems(on_gpus, BUSY) == ["2 workers had 1 GPU: each needs its own"]


@pytest.mark.workers
def test_a_gpu_that_the_driver_saw_idle(on_gpus):
    assert gpu_node.problems(on_gpus, BUSY | {"gpu1_percent": 0.0}) == ["the driver saw 1 of 2 GPUs busy"]


@pytest.mark.workers
def test_a_loss_that_is_not_a_number(on_gpus):
    on_gpus["history"][-1]["loss"] = float("nan")
    assert gpu_node.problems(on_gpus, BUSY) == ["the loss of the last epoch is nan"]


def test_the_table_has_a_line_per_run():
    lines = gpu_node.table([Outcome(ON_TWO, [], 12.3, 4567.8, BUSY), Outcome(ON_TWO, ["no", "never"])]).splitlines()
    assert lines[1].split() == ["lab02_horovod", "2", "12", "4,568", "60", "%", "3.0", "GB", "ok"]
    assert lines[2].split() == ["lab02_horovod", "2", "-", "-", "-", "-", "no;", "never"]


def test_the_highest_values_of_each_gpu():
    samples = [{"seconds": 0.0, "gpu0_percent": 0.0}, {"gpu0_percent": 80.0, "gpu1_memory_bytes": 2.0}]
    assert gpu_node.highest(samples) == {"gpu0_percent": 80.0, "gpu1_memory_bytes": 2.0}


INTERRUPTED = """
import dataclasses
from labs import lab01_baseline
from labs.tools.check import gpu_node
from labs.cli import commands
from labs.run.sweeps import Cell
short, long = (dataclasses.replace(lab01_baseline.PRESETS["demo"], epochs=epochs) for epochs in (1, 10**6))
gpu_node.require_gpus = lambda: 1
gpu_node.check_node = lambda: []
gpu_node.cells = lambda gpus: [Cell("lab01_baseline", config, 1) for config in (short, long)]
commands.main()
"""


def second_run_trains(runs: Path) -> bool:
    """Return whether one run is done and another has begun; a run that ends briefly has a record and heartbeats."""
    done = [record.parent for record in runs.glob("*/record.json")]
    return bool(done) and any(beats.parent not in done for beats in runs.glob("*/heartbeats"))


@pytest.mark.workers
def test_ctrl_c_keeps_what_is_done(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, "accept-gpu", "--results", str(tmp_path)], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ends = time.monotonic() + 200
    while not second_run_trains(tmp_path / "lab01_baseline"):
        assert time.monotonic() < ends
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "labs: interrupted; the same command continues" in err
    assert "Traceback" not in err
    assert out.count("lab01_baseline on 1 worker ...") == 2
    (run,) = json.loads((tmp_path / "acceptance.json").read_text())["runs"]
    assert run["seconds"] > 0
    assert "lab01_baseline          1" in out, "the table"
