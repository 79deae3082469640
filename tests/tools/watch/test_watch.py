"""`labs watch`: what it says of a run, as it runs, and as it has ended."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte
import pytest

from labs.launch import mpirun
from labs.run import heartbeat, run_lock
from labs.run.heartbeat import Heartbeat
from labs.tools.watch import screen
from labs.tools.watch.status import Status
from tests.waiting import ends

WATCH = [sys.executable, "-m", "labs", "watch"]
PROGRAM = Path(__file__).parents[2] / "workers/programs/slow_rank.py"


def beat(rank: int, own: float = 0.02, **values) -> Heartbeat:
    """Return a heartbeat of a worker in the middle of a training; each step takes 40 ms, `own` of them its own work."""
    fields = {"epoch": 3, "step": 10, "epochs": 10, "steps": 50, "images": 128, "step_seconds": 0.04,
              "exchange_seconds": 0.04 - own, "moved": 99.0, "alive": 99.0}
    return Heartbeat(**{"rank": rank, "host": f"n{rank // 2}", "pid": 7} | fields | values)


def shown(*beats: Heartbeat, silence: float = 1.0, **values) -> str:
    """Return the screen of a run with these heartbeats."""
    quiet = {each.rank: silence if each.alive else float("inf") for each in beats}
    return "\n".join(screen.lines(Status("lab10_caltech", "it", list(beats), quiet, **values)))


def test_progress_is_that_of_the_worker_furthest_behind():
    text = shown(beat(0), beat(1, step=9), beat(2))
    assert "training, 3 workers on 2 nodes" in text
    assert "epoch 3 of 10, step 9 of 50; 3,200 images/s; about 30 s left" in text  # 391 steps, 7 pauses of 2 s.


def test_the_slow_rank_is_the_one_that_waits_least():
    text = shown(beat(0), beat(1), beat(2, own=0.034), beat(3))
    assert re.search(r"slow: rank 2 on n1, up to 34 ms .* rank \d, has 20 ms and waits 35% of a step", text)
    assert "no rank is slow" in shown(beat(0), beat(1, own=0.022))
    assert "slow" not in shown(beat(0, own=0.04))  # Alone, or not measured.
    late = beat(1, step_seconds=2.5, exchange_seconds=0.3)
    assert "up to 2,200 ms of own work" in shown(beat(0, step_seconds=2.5, exchange_seconds=2.0), late)
    fresh = (beat(rank, step_seconds=0.0, exchange_seconds=0.0) for rank in (2, 3, 4))
    assert "no rank is slow" in shown(beat(0), beat(1), *fresh)


def test_of_many_ranks_those_that_work_longest_are_shown():
    text = shown(*(beat(rank, own=0.02 + rank / 10_000) for rank in range(40)))
    assert re.findall(r"(?m)^ +(\d+)  ", text) == [str(rank) for rank in range(40 - screen.MOST_ROWS, 40)]


@pytest.mark.parametrize(("values", "phrase"), [
    ({"epoch": 0, "step": 0}, "reading data"), ({"step": 50}, "validating between two epochs"),
    ({"epoch": 10, "step": 50}, "training has ended; eval"),
    ({"epoch": 11, "step": 50}, "training has ended; eval")])
def test_what_a_run_does_beside_its_steps(values, phrase):
    assert phrase in shown(beat(0, **values), beat(1, **values))


@pytest.fixture
def folder(tmp_path):
    """Make the folder of a run that two workers of another machine have started."""
    folder = tmp_path / "lab10_caltech/it"
    (folder / heartbeat.FOLDER).mkdir(parents=True)
    (folder / "holder").write_text("process 1 on n0")
    (folder / run_lock.STARTED).write_text('{"workers": 2, "config": {}}')
    return folder


def write(folder: Path, *beats: Heartbeat) -> None:
    for each in beats:
        (folder / heartbeat.FOLDER / f"rank-{each.rank:05d}").write_text(json.dumps(dataclasses.asdict(each)))


def watch(folder: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run([*WATCH, *words, "--results", folder.parents[1]], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_run_that_died_is_reported_as_such(folder):
    write(folder, *(beat(rank, alive=time.time() - 100) for rank in (0, 1)))
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/epoch-00002.npz").touch()
    text = watch(folder, "it", code=1)
    assert re.search(r"no heartbeat for 10\d s, the last one at epoch 3, step 10: killed", text)
    assert "labs run lab10_caltech --resume --name it" in text
    assert "no run is running" in watch(folder, code=1)


def test_a_run_that_ended_without_a_record_is_reported_as_such(folder):
    heart = heartbeat.Monitor(0, folder=folder / heartbeat.FOLDER, stall_seconds=600)
    heart.step(3, 10)
    heart.close()
    assert "ended at epoch 3, step 10 without a record" in watch(folder, "lab10", code=1)


@pytest.mark.slow
def test_a_worker_that_runs_is_found_although_its_clock_is_an_hour_late(folder):
    process = subprocess.Popen([sys.executable, "-c", f"""
import pathlib, time
real, time.time = time.time, lambda: real() - 3600
from labs.run.heartbeat import Monitor
heart = Monitor(0, folder=pathlib.Path({str(folder / heartbeat.FOLDER)!r}), stall_seconds=600)
heart.step(1, 1)
print(flush=True)
time.sleep(600)"""], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        assert "lab10_caltech/it: training, 1 worker on 1 node" in watch(folder)
    finally:
        process.kill()
        process.wait()


class Terminal:
    """`labs watch` in a terminal of 24 x 100."""

    def __init__(self, *words: object):
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen([*WATCH, *map(str, words)], stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True)
        self._slave, self._screen = slave, pyte.Screen(100, 24)
        self._stream = pyte.ByteStream(self._screen)

    def wait_for(self, pattern: str) -> str:
        """Return what is on the screen once a pattern is on it."""
        with ends(60):
            while not re.search(pattern, text := "\n".join(self._screen.display)):
                self._stream.feed(os.read(self._master, 65536))
        return text

    def left_clean(self) -> bool:
        """Return whether the terminal is as before, with a visible cursor, once that is at the start of a line."""
        cursor = self._screen.cursor
        with ends(60):
            while cursor.x:
                self._stream.feed(os.read(self._master, 65536))
        return termios.tcgetattr(self._slave) == self.before and not cursor.hidden


def test_ctrl_c_ends_it_and_leaves_a_clean_terminal(folder):
    heart = heartbeat.Monitor(0, folder=folder / heartbeat.FOLDER, stall_seconds=600)
    try:
        terminal = Terminal("--results", folder.parents[1])
        terminal.wait_for("reading data and building the model")
        heart.step(1, 7)
        text = terminal.wait_for("epoch 1, step 7")
        assert text.count("lab10_caltech/it") == 1  # Drawn over the last screen.
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("no longer watching; the run goes on")
        assert terminal.process.wait(20) == 0
        assert terminal.left_clean()
    finally:
        heart.close()


@pytest.mark.workers
def test_a_real_run_is_watched_from_outside_to_its_end(tmp_path):
    run = subprocess.Popen([*mpirun.command(2), sys.executable, PROGRAM, tmp_path, "20"], env=mpirun.environment(),
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        with ends(120):
            while not list(tmp_path.glob("*/slow/heartbeats/node-*")):
                assert run.poll() is None, run.stderr.read()
                time.sleep(0.1)
        terminal = Terminal("slow", "--results", tmp_path)
        # Rank 1 sleeps for 30 ms in each step. The first sample of a node comes after two seconds.
        text = terminal.wait_for(r"slow: rank 1 on[\s\S]*\d+ % of \d+ cores?  +[\d.]+ of [\d.]+")
        assert re.search(r"training|validating", text)
        assert "2 workers on 1 node" in text
        assert re.search(r"epoch \d+ of 20, step \d+ of 20; [\d,]+ images/s; about \d+ s left", text)
        text = terminal.wait_for("slow: finished")
        assert terminal.process.wait(20) == 0
        assert "images/s" in terminal.wait_for("s/epoch")
        assert terminal.left_clean()
        assert run.wait(60) == 0, run.stderr.read()
        record = json.loads(next(tmp_path.glob("*/slow/record.json")).read_text())
        assert len(record["history"]) == 20
        assert not (tmp_path / record["lab"] / "slow/heartbeats").exists()
    finally:
        run.kill()
