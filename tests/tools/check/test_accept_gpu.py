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
from labs.launch import capacity
from labs.results import records
from labs.run import catalogue, command_line
from labs.run.sweeps import Cell
from labs.tools.check import command_accept_gpu as accept_gpu

TINY = dataclasses.replace(lab02_horovod.PRESETS["demo"], epochs=1, batch_size=128)
ON_TWO = Cell("lab02_horovod", TINY, 2)
BUSY = {"gpu0_percent": 60.0, "gpu0_memory_bytes": 3e9, "gpu1_percent": 50.0, "gpu1_memory_bytes": 2e9}


def labs(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "labs", *arguments], capture_output=True, text=True, timeout=120,
                          check=False, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | variables)


def test_without_a_gpu_it_stops_with_one_line(tmp_path):
    done = labs("accept-gpu", LABS_RESULTS=str(tmp_path / "results"))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("labs: error: no GPU to test (")
    assert "srun --gpus=1" in line
    assert not (tmp_path / "results").exists()


def test_list_shows_commands_that_labs_run_takes():
    lines = labs("accept-gpu", "--list").stdout.splitlines()
    assert len(lines) == 5
    for line, cell in zip(lines, accept_gpu.cells(1), strict=True):
        labs_, run, lab, workers, count, *words = shlex.split(line)
        assert (labs_, run, lab, workers, count) == ("labs", "run", cell.lab, "--workers", "1")
        config, _ = command_line.parse(catalogue.load_lab(lab), words)
        assert config == cell.config


def test_a_speedup_is_measured_where_there_are_several_gpus():
    layouts: dict[str, list[int]] = {}
    for cell in accept_gpu.cells(4):
        layouts.setdefault(cell.lab, []).append(cell.workers)
    assert layouts == {"lab01_baseline": [1], "lab02_horovod": [4], "lab04_speedup": [1, 4], "lab05_allreduce": [4],
                       "lab08_throughput": [1, 4]}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def outcomes(root):
    """A run on two of this machine's cores, and one that lab 1 refuses."""
    refused = Cell("lab01_baseline", dataclasses.replace(lab01_baseline.PRESETS["demo"], epochs=1), 2)
    return list(accept_gpu.accept([refused, ON_TWO], root))


@pytest.mark.workers
@pytest.mark.skipif(capacity.visible_gpus() > 0, reason="this machine has GPUs")
def test_runs_on_cores_are_not_accepted_and_are_kept(outcomes, root, tmp_path):
    refused, on_cores = outcomes
    assert "lab 1 measures one worker" in refused.problems[0], "it does not cost the other run"
    assert on_cores.problems == ["TensorFlow saw no GPU and trained on the CPU",
                                 "the gradients went over MPI, not over NCCL"]
    written = (root / ON_TWO.lab / ON_TWO.name / "record.json").stat().st_mtime_ns
    assert list(accept_gpu.accept([ON_TWO], root)) == [on_cores]
    assert (root / ON_TWO.lab / ON_TWO.name / "record.json").stat().st_mtime_ns == written, "it was run again"
    summary = json.loads(accept_gpu.write_summary(root, ["Horovod was built without it"], outcomes).read_text())
    assert summary["problems"] == ["Horovod was built without it"]
    assert [run["problems"] for run in summary["runs"]] == [refused.problems, on_cores.problems]
    kept = accept_gpu.keep(root, outcomes, tmp_path / "kept")
    assert len(records.read_all(root=kept)) == 1
    assert json.loads((kept / "acceptance.json").read_text()) == summary


@pytest.mark.workers
@pytest.mark.parametrize(("changes", "usage", "problems"), [
    ({}, BUSY, []),
    ({}, {}, []),  # A MIG instance reports no utilization.
    ({"gpus": 1}, BUSY, ["2 workers had 1 GPU: each needs its own"]),
    ({}, BUSY | {"gpu1_percent": 0.0}, ["the driver saw 1 of 2 GPUs busy"]),
    ({"loss": float("nan")}, BUSY, ["the loss of the last epoch is nan"]),
])
def test_a_record_of_gpus_is_judged(outcomes, root, changes, usage, problems):
    """The record of the run on two workers, as two GPUs with NCCL would have written it."""
    record = copy.deepcopy(records.read(root / ON_TWO.lab / ON_TWO.name))
    record["machine"]["gpus"] = ["a GPU", "a GPU"]
    record["layout"] |= {"gpus": changes.get("gpus", 2), "backend": "NCCL"}
    record["history"][-1]["loss"] = changes.get("loss", 1.0)
    assert accept_gpu.problems(record, usage) == problems


def test_the_table_has_a_line_per_run():
    samples = [{"seconds": 0.0, "gpu0_percent": 0.0}, {"gpu0_percent": 80.0, "gpu0_memory_bytes": 3e9}]
    lines = accept_gpu.table([accept_gpu.Outcome(ON_TWO, [], 12.3, 4567.8, accept_gpu.highest(samples)),
                              accept_gpu.Outcome(ON_TWO, ["no", "never"])]).splitlines()
    assert lines[1].split() == ["lab02_horovod", "2", "12", "4,568", "80", "%", "3.0", "GB", "ok"]
    assert lines[2].split() == ["lab02_horovod", "2", "-", "-", "-", "-", "no;", "never"]


INTERRUPTED = """
import dataclasses
from labs import lab01_baseline
from labs.tools.check import command_accept_gpu
from labs.cli import commands
from labs.run.sweeps import Cell
short, long = (dataclasses.replace(lab01_baseline.PRESETS["demo"], epochs=epochs) for epochs in (1, 10**6))
command_accept_gpu.require_gpus = lambda: 1
command_accept_gpu.check_node = lambda: []
command_accept_gpu.cells = lambda gpus: [Cell("lab01_baseline", config, 1) for config in (short, long)]
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
    (run,) = json.loads((tmp_path / "acceptance.json").read_text())["runs"]
    assert run["seconds"] > 0
    assert "lab01_baseline          1" in out, "the table"
