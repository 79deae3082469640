"""A run that is killed, frozen or interrupted from outside ends all its workers; the last line says which and why."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

SMALL, ENDLESS = ("--image-size", 32, "--epochs", 12, "--name", "it"), ("--epochs", 999)
"""Twelve epochs of about 0.1 s; a run that must not end by itself before it is disturbed."""
LAST_LINE = r"labs: error: rank {rank} on \S+ \(epoch \d+, step \d+\): {cause}"


def kin(process) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def rank_of(process: psutil.Process) -> int | None:
    with contextlib.suppress(KeyError, psutil.Error):
        return int(process.environ()["OMPI_COMM_WORLD_RANK"])


def wait_for(process, text: str) -> str:
    """Read the run's output until a line has the text."""
    output = ""
    for line in process.stdout:
        output += line
        if text in line:
            return output
    raise AssertionError(output + process.stderr.read())


def end(process, timeout: float) -> tuple[int, str]:
    """Wait for the end of the run, and return its code and the last line on its error stream."""
    _, errors = process.communicate(timeout=timeout)
    return process.returncode, errors.strip().splitlines()[-1]


def start(labs, *arguments):
    """Start lab 10 on two workers, and return it after its first epoch, with its workers by rank."""
    process = labs("run", "lab10", "--workers", 2, *SMALL, *arguments)
    wait_for(process, "epoch 1/")
    everyone = kin(process)
    return process, everyone, {rank_of(one): one for one in everyone if rank_of(one) is not None}


def assert_all_gone(everyone) -> None:
    """Wait for the end of processes; an orphan may stay a zombie until the machine's init reaps it."""
    _, left = psutil.wait_procs(everyone, timeout=10)
    assert not [one for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def weights(root) -> dict[str, np.ndarray]:
    with np.load(max((root / "lab10_caltech/it/checkpoints").glob("*.npz"))) as file:
        return {name: file[name] for name in file.files if name != "meta"}


@pytest.mark.everyday
def test_killed_worker_is_named_and_the_run_can_be_resumed(labs, tmp_path):
    process, everyone, ranks = start(labs)
    ranks[1].send_signal(signal.SIGKILL)
    code, last = end(process, timeout=15)
    assert code == 1
    cause = "killed by SIGKILL; out of memory[?] Then lower --batch-size"
    assert re.fullmatch(LAST_LINE.format(rank=1, cause=cause), last)
    assert_all_gone(everyone)
    assert not (tmp_path / "results/lab10_caltech/it/record.json").exists()

    again = labs("run", "lab10", "--resume")
    output, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert output.startswith("lab10_caltech: 2 workers on"), "as many as before"
    assert "resumed after epoch" in output
    assert "epoch 12/12" in output, "the killed run's options are the defaults"


@pytest.mark.parametrize("frozen", [[0], pytest.param([1], marks=pytest.mark.everyday), [0, 1]])
def test_frozen_workers_are_named(labs, frozen):
    process, everyone, ranks = start(labs, *ENDLESS, "--stall-seconds", 12)
    for rank in frozen:
        ranks[rank].suspend()
    code, last = end(process, timeout=12 + 20)
    assert code == 1
    names = ", ".join(rf"rank {rank} on \S+ \(epoch \d+, step \d+\)" for rank in frozen)
    waiting = ", the others are waiting" * (len(frozen) == 1)
    assert re.match(rf"labs: error: {names}: no progress for \d+ s{waiting} \(--stall", last), last
    assert_all_gone(everyone)


@pytest.mark.everyday
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_saves_between_two_steps_and_leaves_no_process(labs, tmp_path, number):
    """A shell makes its background programs ignore Ctrl-C; `kill` ends such a run."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if number == signal.SIGTERM else signal.default_int_handler)
    try:
        process, everyone, _ = start(labs, *ENDLESS)
    finally:
        signal.signal(signal.SIGINT, before)
    for _ in range(2):  # `timeout -s INT` signals the process and its group: that is one request.
        process.send_signal(number)
    output, errors = process.communicate(timeout=40)
    assert process.returncode == 130
    line, options = errors.strip().splitlines()[-1].split(" add ")
    assert line == "labs: interrupted; to continue,"
    assert_all_gone(everyone)
    step, epoch = re.search(r"^stopped and saved after (?:step (\d+) of )?epoch (\d+)$", output, re.MULTILINE).groups()
    saved = max((tmp_path / "results/lab10_caltech/it/checkpoints").glob("*.npz"), key=lambda path: path.stem).stem
    assert saved == (f"epoch-{int(epoch) - 1:05d}-step-{int(step):07d}" if step else f"epoch-{int(epoch):05d}")
    if number == signal.SIGINT:
        wait_for(labs("run", "lab10", *options.split()), "resumed after epoch")


def test_interrupt_before_the_training_ends_at_once(labs):
    process = labs("run", "lab10", "--workers", 2, *SMALL)
    wait_for(process, "lab10_caltech:")
    everyone = kin(process)
    process.send_signal(signal.SIGINT)
    code, _ = end(process, timeout=40)
    assert code == 130
    assert_all_gone(everyone)


def test_killed_mpirun_leaves_no_process(labs):
    process, everyone, _ = start(labs, *ENDLESS)
    (mpirun,) = [one for one in everyone if one.name() == "prterun"]
    mpirun.kill()
    code, last = end(process, timeout=10)
    assert code == 1
    assert re.fullmatch(r"labs: error: the launcher was killed by SIGKILL: .*; last heartbeats: rank 0 on \S+ \(.*\), "
                        r"rank 1 on \S+ \(.*\)", last), last
    assert_all_gone(everyone)


def test_killed_labs_takes_its_workers_along_at_once(labs, tmp_path):
    process, everyone, _ = start(labs, *ENDLESS)
    process.kill()
    assert_all_gone(everyone)
    assert not list(tmp_path.rglob("record.json"))


def test_closed_terminal_saves_as_ctrl_c_does(tmp_path, request):
    """A real terminal: when it is closed, its programs get a hangup, and what they print then is an error."""
    ours, theirs = pty.openpty()

    words = ["run", "lab10", "--workers", "2", *map(str, SMALL + ENDLESS)]
    process = subprocess.Popen([sys.executable, "-m", "labs", *words], preexec_fn=lambda: os.login_tty(theirs),
                               env=os.environ | {"LABS_RESULTS": str(tmp_path)})
    request.addfinalizer(process.kill)
    os.close(theirs)
    printed = b""
    while b"epoch 1/999" not in printed:
        printed += os.read(ours, 65536)
    everyone = kin(process)
    closed = time.time()
    os.close(ours)
    process.send_signal(signal.SIGHUP)  # As the shell does, after the kernel.
    assert process.wait(60) == 130, "a run that is ended by the hangup itself ends with another code"
    assert_all_gone(everyone)
    assert max(path.stat().st_mtime for path in tmp_path.glob("lab10_caltech/it/checkpoints/*.npz")) > closed
