"""A sweep has the cells it says, keeps what is finished, and ends with the same runs however it was interrupted."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from labs import lab04_speedup as lab
from labs.cli import commands
from labs.launch import local
from labs.launch.sweep import run_sweep
from labs.pages import studies
from labs.results import scaling
from labs.run.sweeps import Sweep, cells, finished
from tests.lint.test_lint import sound
from tests.results.test_records import write as write_runs
from tests.tools.report.test_page import cells as records_of

DEMO = lab.PRESETS["demo"]
TINY = ("--images", "64", "--epochs", "1", "--no-ledger", "--repeats", "1", "--batch-size", "16")


def test_the_cells_are_all_combinations_each_once():
    sweeps = [Sweep("a", "", {"batch_size": (16, 64), "epochs": (2, 3)}, workers=(1, 2), seeds=(1, 2)),
              Sweep("b", "", {"batch_size": (16,), "epochs": (2,)}, workers=(1, 4), seeds=(1,))]
    result = cells(sweeps, DEMO)
    assert len(result) == 2 * 2 * 2 * 2 + 1, "one of the second sweep's two is a cell of the first"
    assert len({cell.name for cell in result}) == len(result)
    seeds = [cell.config.seed for cell in result]
    assert seeds == sorted(seeds), "all settings run once before one is repeated"
    first = [(cell.config.batch_size, cell.config.epochs, cell.workers) for cell in result if cell.config.seed == 1]
    assert first != sorted(first), "not in order"
    assert result == cells(sweeps, DEMO), "the same order every time"


def test_strong_scaling_holds_the_global_batch_and_what_cannot_run_is_left_out_with_the_reason():
    strong = dataclasses.replace(lab.SWEEPS["demo"][1], grid={"batch_size": (16, 64)}, workers=(1, 2, 3), seeds=(1,))
    result = cells([strong], DEMO)
    assert {cell.workers * cell.config.batch_size for cell in result if not cell.skipped} == {16, 64}
    assert sorted(cell.skipped for cell in result if cell.skipped) == [
        "a global batch of 16 cannot be divided among 3 workers",
        "a global batch of 64 cannot be divided among 3 workers"]


def test_cells_on_several_nodes_wait_for_their_nodes(monkeypatch, capsys, tmp_path):
    spread = Sweep("a", "", workers=(1, 2, 3, 4), seeds=(1,), nodes=lambda workers: min(2, workers))
    packed = dataclasses.replace(spread, workers=(2,), nodes=lambda workers: 1)
    result = {(cell.nodes, cell.workers): cell for cell in cells([spread, packed], DEMO)}
    assert set(result) == {(1, 1), (2, 2), (2, 3), (2, 4), (1, 2)}
    assert result[1, 2].name != result[2, 2].name
    assert result[2, 3].skipped == "3 workers cannot be spread evenly over 2 nodes"
    words = ["sweep", "lab11", "--preset", "paper", "--only", "strong", "--workers", "4", "--list", "--results",
             str(tmp_path)]
    assert commands.dispatch(words) == 0
    assert "needs 4 x 1 (nodes x tasks on each)" in capsys.readouterr().out
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "1(x4)")
    assert commands.dispatch(words) == 0
    assert "to do" in capsys.readouterr().out
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "2(x4)")  # mpirun would fill the first two nodes.
    assert commands.dispatch(words) == 0
    assert "to do" not in capsys.readouterr().out


def test_a_record_that_appears_meanwhile_stays(tmp_path, monkeypatch):
    """Another sweep, or a job of its array, has run the cell since this sweep has begun."""
    first, second = cells([Sweep("a", "", workers=(1,), seeds=(1, 2))], DEMO)
    record = tmp_path / lab.LAB.name / second.name / "record.json"
    started = []

    def run_other(lab_, arguments, *_):
        started.append(arguments)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text("{}")

    monkeypatch.setattr(local, "run", run_other)
    assert not run_sweep(lab, [first, second], tmp_path)
    assert (len(started), record.read_text()) == (1, "{}")


def test_a_failed_cell_is_reported_and_still_to_do(tmp_path, capsys):
    wrong = dataclasses.replace(DEMO, data=str(tmp_path / "nowhere"))
    (failed,) = run_sweep(lab, cells([Sweep("a", "", workers=(1,), seeds=(1,))], wrong), tmp_path)
    assert "failed: 1 worker, seed 1: " in capsys.readouterr().err
    assert "nowhere" in (tmp_path / "lab04_speedup" / failed.name / "log.txt").read_text()
    assert not finished(failed, tmp_path)


@pytest.mark.workers
def test_a_sweep_killed_twice_ends_with_the_same_cells(tmp_path):
    command = [sys.executable, "-m", "labs", "sweep", "lab04", *TINY, "--results", str(tmp_path)]
    lab_folder = tmp_path / "lab04_speedup"
    for number, blow in enumerate((signal.SIGKILL, signal.SIGINT)):
        sweep = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while (len([*lab_folder.glob("*/record.json")]) < number
               or not (kin := psutil.Process(sweep.pid).children(recursive=True))):
            assert sweep.poll() is None, sweep.communicate()
            time.sleep(0.2)
        time.sleep(1)
        sweep.send_signal(blow)
        _, output = sweep.communicate(timeout=40)
        assert not psutil.wait_procs(kin, timeout=10)[1]
    assert output.strip().splitlines()[-1] == "labs: interrupted; the same command continues"
    before = {path: path.stat().st_mtime_ns for path in lab_folder.glob("*/record.json")}
    assert before

    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 runs done, 0 failed" in done.stdout
    records = {path: json.loads(path.read_text()) for path in lab_folder.glob("*/record.json")}
    assert sorted((each["layout"]["size"], each["config"]["batch_size"]) for each in records.values()) == [
        (1, 16), (2, 8), (2, 16)]
    assert all(path.stat().st_mtime_ns == when for path, when in before.items()), "a finished run was run again"


def test_a_sweep_ends_with_its_speedups_or_with_what_the_lab_says(tmp_path, monkeypatch, capsys):
    write_runs(tmp_path, *records_of("weak"), sound("another", 1, 100.0) | {"lab": "lab04_speedup"})
    words = ["sweep", "lab04", "--only", "weak", "--results", str(tmp_path)]
    assert commands.dispatch(words) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{scaling.TITLES['weak']}\n")
    assert re.search(r"\n +32 +2 +3 +153 \[148, 159\] .* 1\.5 \[1\.4, 1\.62\]  0\.752 \[0\.7, 0\.809\]\n", output)
    monkeypatch.setattr(studies, "SUMMARIES", {lab.LAB.name: lambda runs: f"a summary of {len(runs)} runs"})
    assert commands.dispatch(words) == 0
    output = capsys.readouterr().out
    assert output.startswith("a summary of 12 runs\n\n")
    assert "12 of 12 runs done" in output
