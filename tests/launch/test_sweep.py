"""A sweep has the cells it says, keeps what is finished, and ends with the same runs however it was interrupted."""

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
from labs.run.sweeps import Sweep, cells
from tests.exercises.planted import write as write_runs
from tests.lint.test_lint import sound
from tests.tools.report.test_page import cells as records_of

DEMO = lab.PRESETS["demo"]
TINY = ("--images", "64", "--epochs", "1", "--no-ledger", "--repeats", "1", "--batch-size", "16")


def test_the_cells_are_all_combinations_each_once():
    sweeps = [Sweep("a", "", {"batch_size": (16, 64), "epochs": (2, 3)}, workers=(1, 2), seeds=(1, 2)),
              Sweep("b", "", {"batch_size": (16,), "epochs": (2,)}, workers=(1, 4), seeds=(1,)),
              dataclasses.replace(lab.SWEEPS["demo"][1], grid={"batch_size": (64,)}, workers=(2, 3), seeds=(1,))]
    result = cells(sweeps, DEMO)
    assert len(result) == 2 * 2 * 2 * 2 + 1 + 2, "one of the second sweep's two is a cell of the first"
    assert len({cell.name for cell in result}) == len(result)
    seeds = [cell.config.seed for cell in result]
    assert seeds == sorted(seeds), "all settings run once before one is repeated"
    assert result == cells(sweeps, DEMO), "the same order every time"
    assert [cell.skipped for cell in result if cell.skipped] == [
        "a global batch of 64 cannot be divided among 3 workers"]


def test_cells_on_several_nodes_wait_for_their_nodes(monkeypatch, capsys, tmp_path):
    words = ["sweep", "lab11", "--preset", "paper", "--only", "strong", "--workers", "4", "--list", "--results",
             str(tmp_path)]
    states = []
    for layout in ("", "1(x4)", "2(x4)"):  # On the last, mpirun would fill the first two nodes.
        if layout:
            monkeypatch.setenv("SLURM_JOB_ID", "7")
            monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
            monkeypatch.setenv("SLURM_TASKS_PER_NODE", layout)
        assert commands.dispatch(words) == 0
        states.append(re.findall(r"to do|needs 4 x 1 \(nodes", capsys.readouterr().out)[0])
    assert states == ["needs 4 x 1 (nodes", "to do", "needs 4 x 1 (nodes"]


def test_a_failed_run_is_reported_and_the_others_go_on(tmp_path, capfd):
    words = ["sweep", "lab04", *TINY, "--workers", "1", "--base-lr", "1e9", "--results", str(tmp_path)]
    assert commands.dispatch([*words, "--repeats", "2"]) == 1
    output, errors = capfd.readouterr()
    assert re.search("run 1 of 2: sweep-w1-seed1-.*failed: .*run 2 of 2: sweep-w1-seed2-.*failed: ", errors, re.DOTALL)
    assert "0 of 2 runs done, 2 failed" in output
    (first, _) = tmp_path.glob("lab04_speedup/*/log.txt")
    assert "the loss is not finite" in first.read_text()


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


def test_a_sweep_ends_with_its_speedups(tmp_path, capsys):
    write_runs(tmp_path, *records_of("weak"), sound("another", 1, 100.0) | {"lab": "lab04_speedup"})
    assert commands.dispatch(["sweep", "lab04", "--only", "weak", "--results", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert output.startswith("Speed and weak scaling: ")
    assert re.search(r"\n +32 +2 +3 +153 \[148, 159\] .* 1\.5 \[1\.4, 1\.62\]  0\.752 \[0\.7, 0\.809\]\n", output)
    assert "12 of 12 runs done" in output
