"""A sweep has the cells it says, keeps what is finished, and comes to the same end however it was interrupted."""

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
from filelock import FileLock

from labs import lab04_speedup as lab
from labs.cli import commands, sweep
from labs.launch.sweep import run_sweep
from labs.pages import studies
from labs.results import speed_tables
from labs.run.errors import LabError
from labs.run.sweeps import Sweep, cells, finished
from tests.lint.test_lint import sound, write_runs
from tests.tools.report.test_page import cells as records_of

DEMO = lab.PRESETS["demo"]
STRONG = dataclasses.replace(lab.SWEEPS["demo"][1], grid={"batch_size": (16, 64)})
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
    assert {cell.workers * cell.config.batch_size for cell in cells([STRONG], DEMO)} == {16, 64}
    result = cells([dataclasses.replace(STRONG, workers=(1, 3), seeds=(1,))], DEMO)
    assert sorted(cell.skipped for cell in result) == [
        "", "", "a global batch of 16 cannot be divided among 3 workers",
        "a global batch of 64 cannot be divided among 3 workers"]


def test_cells_on_other_nodes_are_other_cells_and_wait_for_their_nodes(monkeypatch):
    spread = Sweep("a", "", workers=(1, 2, 3, 4), seeds=(1,), nodes=lambda workers: min(2, workers))
    packed = dataclasses.replace(spread, workers=(2,), nodes=lambda workers: 1)
    result = {(cell.nodes, cell.workers): cell for cell in cells([spread, packed], DEMO)}
    assert set(result) == {(1, 1), (2, 2), (2, 3), (2, 4), (1, 2)}
    assert result[1, 2].name.startswith("sweep-w2-seed1-")
    assert result[2, 2].name.startswith("sweep-w2-n2-seed1-")
    assert result[2, 3].skipped == "3 workers cannot be spread evenly over 2 nodes"
    assert "needs 2 x 2 (nodes x tasks on each)" in sweep._skip_unless_fits(result[2, 4], True).skipped, "no Slurm here"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "2(x2)")
    assert not sweep._skip_unless_fits(result[2, 4], False).skipped
    assert sweep._skip_unless_fits(result[2, 2], False).skipped, "mpirun would fill the first node"


@pytest.mark.parametrize(("arguments", "output"), [
    (["lab04", "--workers", "1,999"], r"999 workers on \d+ cores would wait for each other; .*--oversubscribe"),
    (["lab04", "--only", "nothing"], "has no sweep 'nothing'; there are: weak, strong"),
    (["lab01"], "lab01_baseline has no sweep for preset 'demo'; `labs run` runs it once"),
    (["lab04", "--name", "mine"], "--name is for one run"),
    (["lab04", "--cell", "500"], "--cell 500: there are 12 runs, numbered from 0"),
])
def test_bad_requests_get_one_line(arguments, output):
    with pytest.raises(LabError, match=output):
        commands.dispatch(["sweep", *arguments])


def test_a_failed_cell_is_reported_and_still_to_do(tmp_path):
    wrong = dataclasses.replace(DEMO, data=str(tmp_path / "nowhere"))
    todo = cells([Sweep("a", "", workers=(1,), seeds=(1,))], wrong)
    (failed,), elsewhere = run_sweep(lab, todo, tmp_path)
    assert not elsewhere
    folder = tmp_path / "lab04_speedup" / failed.name
    assert "nowhere" in (folder / "failed.txt").read_text()
    assert not finished(failed, tmp_path)


@pytest.mark.workers
def test_a_sweep_killed_twice_ends_with_the_same_cells(tmp_path):
    command = [sys.executable, "-m", "labs", "sweep", "lab04", *TINY, "--results", str(tmp_path)]
    lab_folder = tmp_path / "lab04_speedup"
    for number, blow in enumerate((signal.SIGKILL, signal.SIGINT)):
        sweep = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while len([*lab_folder.glob("*/record.json")]) < number or not (kin := _workers(sweep)):
            assert sweep.poll() is None, sweep.communicate()
            time.sleep(0.2)
        time.sleep(1)
        sweep.send_signal(blow)
        _, output = sweep.communicate(timeout=40)
        _, left = psutil.wait_procs(kin, timeout=10)
        assert not left
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


def _workers(sweep: subprocess.Popen) -> list[psutil.Process]:
    """Return the launcher and the workers that run at this moment."""
    return psutil.Process(sweep.pid).children(recursive=True)


def test_of_two_sweeps_at_once_the_second_leaves_the_cell_and_calls_it_no_failure(tmp_path, capsys):
    (cell,) = cells([dataclasses.replace(lab.SWEEPS["demo"][0], workers=(1,), seeds=(1,), grid={})], DEMO)
    held = tmp_path / "lab04_speedup" / f".{cell.name}.lock"
    held.parent.mkdir()
    words = ["sweep", "lab04", "--only", "weak", "--workers", "1", "--repeats", "1", "--results", str(tmp_path)]
    words += ["--batch-size", str(DEMO.batch_size)]
    with FileLock(held):
        assert commands.dispatch(words) == 0
        output = capsys.readouterr()
        assert not (tmp_path / "lab04_speedup" / cell.name).exists()
        assert commands.dispatch([*words, "--list"]) == 0
        assert capsys.readouterr().out.rstrip().endswith("running elsewhere")
    assert output.out.startswith("0 of 1 run done, 0 failed, 1 running elsewhere; ")
    assert "running elsewhere: 1 worker, seed 1: another sweep is running it" in output.err
    assert commands.dispatch([*words, "--list"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("to do")


def test_a_sweep_ends_with_what_the_lab_says_of_its_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(studies, "SUMMARIES", {lab.LAB.name: lambda runs: f"a summary of {len(runs)} runs"})
    write_runs(tmp_path, *records_of("weak"), sound("another", 1, 100.0) | {"lab": "lab04_speedup"})
    assert commands.dispatch(["sweep", "lab04", "--only", "weak", "--results", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert output.startswith("a summary of 12 runs\n\n")
    assert "12 of 12 runs done" in output


def test_a_sweep_ends_with_its_speedups_as_the_page_has_them(tmp_path, capsys):
    write_runs(tmp_path, *records_of("weak"))
    assert commands.dispatch(["sweep", "lab04", "--only", "weak", "--results", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{speed_tables.TITLES['weak']}\n")
    assert re.search(r"\n +32 +2 +3 +153 \[148, 159\] .* 1\.5 \[1\.4, 1\.62\]  0\.752 \[0\.7, 0\.809\]\n", output)
