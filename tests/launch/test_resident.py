"""Resident workers: ranks inside a notebook, from their start to their end."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import stat
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
from jupyter_client.channels import HBChannel
from jupyter_client.manager import KernelManager

from labs import lab04_speedup, lab05_allreduce, lab06_memory, lab12_elastic
from labs.launch import capacity, local, resident, supervisor
from labs.run.errors import LabError
from labs.run.paths import ROOT
from tests import listening
from tests.workers.programs import checksums, single_fault

pytestmark = [pytest.mark.workers, pytest.mark.slow]

INIT = "import os, numpy as np, tensorflow as tf, horovod.tensorflow as hvd; hvd.init()"
SUM = "print(hvd.allreduce(tf.constant([1., 2.] if hvd.rank() == 0 else [3., 4.]), op=hvd.Sum).numpy())"
SUMS = ["rank 0: [4. 6.]", "rank 1: [4. 6.]"]
SECONDS_TO_END = 40


@pytest.fixture
def workers():
    """Two workers on which Horovod runs: those of the last test, if they still live."""
    two = _workers()
    with contextlib.redirect_stdout(None):
        try:
            two.px(INIT)
        except LabError:
            _workers.cache_clear()
            two = _workers()
            two.px(INIT)
    return two


@functools.cache
def _workers():
    with contextlib.redirect_stdout(None):
        return resident.start(2)


@pytest.fixture(scope="module", autouse=True)
def _stop_at_the_end():
    yield
    stop()


def stop() -> None:
    """Stop the workers of this process, if there are any."""
    if _workers.cache_info().currsize:
        _workers().stop()
        _workers.cache_clear()


def family(pid: int | None = None) -> list[psutil.Process]:
    """Return the processes that a process has started."""
    return psutil.Process(pid).children(recursive=True)


def engines(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return those that are workers; the launcher has their command line, too."""
    return [each for each in processes if "labs.launch.engine" in each.cmdline() and "prte" not in each.name()]


def printed(capsys) -> list[str]:
    return capsys.readouterr().out.splitlines()


# What the ranks compute.

def test_start_says_so_at_once_and_the_ranks_are_those_of_horovod(capsys):
    stop()
    thread = threading.Timer(0.5, lambda: early.append(capsys.readouterr().out))
    early: list[str] = []
    thread.start()
    two = resident.start(2)
    assert early == ["starting 2 workers ...\n"]
    two.px(f"{INIT}; print(hvd.rank(), hvd.local_rank(), hvd.size(), os.environ['OMPI_COMM_WORLD_RANK'])")
    assert printed(capsys) == ["rank 0: 0 0 2 0", "rank 1: 1 1 2 1"]


def test_an_allreduce_gives_all_ranks_the_same(workers, capsys):
    workers.px(SUM)
    workers.px(SUM.replace("Sum", "Average"))
    assert printed(capsys) == [*SUMS, "rank 0: [2. 3.]", "rank 1: [2. 3.]"]


def test_what_a_cell_returns_is_shown_and_can_be_fetched(workers, capsys):
    workers.px("mine = np.arange(2) + hvd.rank()\nmine")
    assert printed(capsys) == ["rank 0: array([0, 1])", "rank 1: array([1, 2])"]
    assert [list(each) for each in workers.pull("mine")] == [[0, 1], [1, 2]]


def test_workers_rest_between_calls(workers, capsys):
    processes = [psutil.Process(pid) for pid in workers.pull("os.getpid()")]
    before = [process.cpu_times() for process in processes]
    time.sleep(1)
    assert [process.cpu_times() for process in processes] == before
    workers.px(SUM)
    assert printed(capsys) == SUMS


def test_the_settings_of_a_run_are_there_before_tensorflow_loads(workers):
    names = ("TF_ENABLE_ONEDNN_OPTS", "OMPI_MCA_mpi_yield_when_idle", "GLIBC_TUNABLES", "PYTHONPATH")
    for variables in workers.pull("dict(os.environ)"):
        assert [name for name in names if name not in variables] == []
    # Read at the start of the process, not set later.
    engines = [psutil.Process(pid) for pid in workers.pull("os.getpid()")]
    assert {engine.environ()["GLIBC_TUNABLES"] for engine in engines} == {"glibc.malloc.hugetlb=1"}
    assert workers.pull("tf.config.threading.get_intra_op_parallelism_threads()") == [workers.threads] * 2


# Runs.

TIMES = {"started", "run", "timings"}


def lasting(record: dict) -> dict:
    """Return a record without what differs between two equal runs: times, names, and the pages that the kernel gave."""
    kept = {name: value for name, value in record.items() if name not in TIMES}
    kept["machine"] = {name: value for name, value in record["machine"].items() if name != "huge_pages_mb"}
    kept["history"] = [{name: value for name, value in row.items() if "second" not in name and "per_sec" not in name}
                       for row in record["history"]]
    return kept


def test_a_run_has_the_record_of_a_run_with_workers_of_its_own(workers, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    config = checksums.Config(seed=3)
    # What a page may have done before: a model more on one rank, other seeds, Horovod at work.
    workers.px("if hvd.rank() == 0: tf.keras.Sequential([tf.keras.layers.Dense(3)]).build((None, 2))")
    workers.px(f"tf.keras.utils.set_random_seed(hvd.rank()); {SUM}")
    capfd.readouterr()
    records = [workers.run(checksums, config), workers.run(checksums, config)]
    output = capfd.readouterr().out
    assert output.count("training begins") == 2, "rank 0's output"
    assert output.count("epoch 2/2") == 2
    records.append(local.run(checksums, config, workers=2))
    one, two, expected = map(lasting, records)
    assert expected["tables"]["checksums"]
    assert expected["layout"]["size"] == 2
    assert one == two == expected
    assert len({record["run"] for record in records}) == 3


def test_output_of_a_run_comes_as_it_is_printed(workers, tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    moments = []

    class Output:
        def write(self, text):
            moments.extend([(time.monotonic(), text)] * bool(text.strip()))

        def flush(self):
            pass

    with contextlib.redirect_stdout(Output()):
        workers.run(checksums, checksums.Config(epochs=60))
    first, last = moments[0][0], moments[-1][0]
    assert "epoch 60/60" not in moments[0][1]
    assert last - first > 0.5


def test_horovod_goes_on_after_a_run(workers, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    before = workers.pull("dict(os.environ)")
    workers.run(checksums)
    capsys.readouterr()
    workers.px(SUM)
    assert printed(capsys) == SUMS
    assert workers.pull("dict(os.environ)") == before


@pytest.mark.parametrize(("lab", "config"), [
    (lab06_memory, lab06_memory.Config()),
    (lab12_elastic, lab12_elastic.Config()),
    (lab04_speedup, lab04_speedup.Config(threads=7)),
    (lab05_allreduce, lab05_allreduce.Config()),
], ids=["environment", "launcher", "threads", "Horovod's settings"])
def test_a_run_that_needs_other_workers_is_refused(workers, tmp_path, monkeypatch, lab, config):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    with pytest.raises(LabError, match=rf"{lab.LAB.name} cannot run on these 2 workers, .* use labs.launch.local.run"):
        workers.run(lab, config)
    assert not list(tmp_path.rglob("*.json"))


# Mistakes.

def test_a_second_start_stops_the_workers_of_the_first(workers):
    first = workers.pull("os.getpid()")
    with contextlib.redirect_stdout(None):
        second = resident.start(2, threads=1)
    try:
        assert not any(map(psutil.pid_exists, first))
        assert second.threads == 1
        with pytest.raises(LabError, match="have been stopped"):
            workers.px("1")
    finally:
        second.stop()


def test_more_workers_than_cores_are_refused(capsys):
    with pytest.raises(LabError, match=f"ask for at most {capacity.slots()}"):
        resident.start(capacity.slots() + 1)
    assert printed(capsys) == []


def test_stopped_workers_say_so(workers):
    workers.stop()
    with pytest.raises(LabError, match=r"the workers have been stopped; resident\.start\(2\) starts new workers"):
        workers.px("1")


@pytest.mark.parametrize(("end", "reason"), [
    ("os._exit(3)", "exited before the run ended, with code 3"),
    ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
], ids=["exits", "is killed"])
def test_a_worker_that_dies_is_named_and_new_ones_can_be_started(workers, capsys, end, reason):
    with pytest.raises(LabError, match=rf"^rank 1 .*{reason}.*; resident\.start\(2\) starts new workers$"):
        workers.px(f"if hvd.rank() == 1:\n    {end}\n{SUM}")
    new = resident.start(2)
    new.px(INIT)
    capsys.readouterr()
    new.px(SUM)
    assert printed(capsys) == SUMS
    new.stop()


@pytest.mark.parametrize("loser", [0, 1])
def test_a_rank_that_raises_is_named_although_the_other_waits_for_it(workers, loser):
    began = time.monotonic()
    with pytest.raises(resident.WorkerError) as caught:
        workers.px(f"if hvd.rank() == {loser}:\n    raise ValueError('burst')\n{SUM}")
    assert str(caught.value) == (f"rank {loser}: ValueError: burst; rank {1 - loser} waited, so the workers were "
                                 "stopped; resident.start(2) starts new workers")
    assert time.monotonic() - began < SECONDS_TO_END
    assert "raise ValueError('burst')" in re.sub(r"\x1b\[[\d;]*m", "", "\n".join(caught.value._render_traceback_()))
    with pytest.raises(LabError, match="^" + re.escape(str(caught.value))):
        workers.px("1")


def test_an_error_of_all_ranks_is_one_and_they_go_on(workers, capsys):
    with pytest.raises(resident.WorkerError, match=r"^rank 0: NameError: name 'nonsense' is not defined$"):
        workers.px("nonsense")
    capsys.readouterr()
    workers.px(SUM)
    assert printed(capsys) == SUMS


def test_an_exchange_that_a_rank_does_not_join_ends(monkeypatch):
    for name in resident.STALL_LIMITS:
        monkeypatch.setitem(resident.STALL_LIMITS, name, "2")
    workers = resident.start(2)
    workers.px(INIT)
    with pytest.raises(resident.WorkerError, match=r"^not all ranks have joined an exchange: .*; rank 0 waited, so"):
        workers.px(f"if hvd.rank() == 0:\n    {SUM}")


@pytest.mark.parametrize("loser", [0, 1])
def test_a_run_that_fails_on_one_rank_names_it(workers, tmp_path, monkeypatch, loser):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    workers.px(f"os.environ['FAULT'] = '{loser} raises'")
    began = time.monotonic()
    with pytest.raises(LabError, match=rf"^rank {loser}: RuntimeError: the pipe has burst; rank {1 - loser} waited"):
        workers.run(single_fault)
    assert time.monotonic() - began < SECONDS_TO_END


def test_an_error_that_a_lab_explains_is_one_line(workers, tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    workers.px("os.environ['FAULT'] = '1 computes_nan'")
    with pytest.raises(resident.WorkerError, match="the loss is not finite at epoch 2") as caught:
        workers.run(single_fault)
    assert len(caught.value._render_traceback_()) == 1


# What is left, and who can listen.

def test_all_listen_on_the_loopback_interface_only_and_the_keys_are_private(workers):
    mine = [process for process in family() if "mpirun" not in process.name() and "prte" not in process.name()]
    assert len(engines(mine)) == 2
    assert listening.addresses(*mine) == {"127.0.0.1"}
    (folder,) = {Path(each.environ()["IPYTHONDIR"]) for each in mine if "IPYTHONDIR" in each.environ()}
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    keys = list(folder.rglob("ipcontroller-*.json"))
    assert len(keys) == 2
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_stop_leaves_nothing(tmp_path, monkeypatch):
    stop()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = {process.pid for process in family()}
    two = resident.start(2)
    two.px(INIT)
    two.px(SUM)
    mine = [process for process in family() if process.pid not in before]
    assert len(mine) >= 4
    assert list(tmp_path.glob("labs-mpi-*"))
    shared = {each.path for process in mine for each in process.memory_maps() if each.path.startswith("/dev/shm/")}
    assert shared, "the workers exchange gradients through shared memory"
    two.stop()
    assert not [process for process in mine if process.is_running()]
    assert not list(tmp_path.iterdir())
    assert not [path for path in shared if os.path.exists(path)]


class Kernel:
    """An IPython kernel, as JupyterLab, papermill and others start it.

    Args:
        folder: Its working directory and home.
    """

    def __init__(self, folder: Path):
        self.manager = KernelManager(shutdown_wait_time=60)  # By default it kills the kernel after five seconds.
        env = os.environ | {"HOME": str(folder), "IPYTHONDIR": "", "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(
            filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
        self.manager.start_kernel(cwd=str(folder), env=env)
        self.pid = self.manager.provisioner.pid
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def close(self) -> None:
        """Close the connections to the kernel, and kill it if it is still running.

        A client whose kernel has died tries to reconnect ten times a second. If the system later gives the kernel's
        port to a Gloo worker, Gloo mistakes the client for the other worker, and `hvd.init` aborts.
        """
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        # A channel for heartbeats is a thread, which would go on connecting.
        assert not [thread for thread in threading.enumerate() if isinstance(thread, HBChannel)]

    def run(self, code: str, seconds: float = 120) -> tuple[str, list[str], list[str]]:
        """Run a cell; return its status, the lines that it printed and those of its error."""
        outputs = []
        reply = self.client.execute_interactive(code, timeout=seconds, output_hook=outputs.append)["content"]
        text = "".join(each["content"]["text"] for each in outputs if each["msg_type"] == "stream")
        lines = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(reply.get("traceback", []))).splitlines()
        return reply["status"], text.splitlines(), lines


@pytest.fixture
def kernel(tmp_path):
    """A kernel with two workers, in an empty folder; other workers of this process are stopped."""
    stop()
    kernel = Kernel(tmp_path)
    try:
        assert kernel.run("from labs.launch import resident; workers = resident.start(2)") == (
            "ok", ["starting 2 workers ..."], [])
        assert kernel.run(f"%%px\n{INIT}") == ("ok", [], [])
        yield kernel
    finally:
        kernel.close()


def test_cells_run_on_the_ranks_and_a_kernel_that_ends_takes_all_with_it(kernel, tmp_path):
    assert kernel.run(f"%%px\n{SUM}") == ("ok", SUMS, [])
    assert kernel.run("%%px\nprint(os.getcwd())") == ("ok", [f"rank {rank}: {tmp_path}" for rank in (0, 1)], [])
    status, _, error = kernel.run("%%px --targets 1\nprint(hvd.rank())")
    assert (status, error[-1]) == ("error", "WorkerError: %%px runs on all ranks and has no options; choose one with "
                                            "`if hvd.rank() == 1:`")
    status, _, error = kernel.run("%%px\nraise ValueError('burst')")
    assert (status, error[-1]) == ("error", "WorkerError: rank 0: ValueError: burst")
    assert not [line for line in error if "resident.py" in line], "the ranks' traceback, not that of the kit"
    mine = family(kernel.pid)
    kernel.manager.shutdown_kernel()
    assert not psutil.wait_procs(mine, timeout=SECONDS_TO_END)[1]
    assert not list(tmp_path.glob("labs-mpi-*"))
    assert not [path for path in tmp_path.rglob("*") if "ipcontroller" in path.name]


def test_a_cell_for_the_ranks_that_comes_first_says_what_to_run(tmp_path):
    """As after a restart of the kernel."""
    kernel = Kernel(tmp_path)
    try:
        kernel.run("from labs.launch import resident")
        status, _, error = kernel.run("%%px\nprint(1)")
    finally:
        kernel.close()
    assert status == "error"
    assert error == ["WorkerError: no workers yet; run the cell with resident.start(2) and, after a kernel restart, "
                     "all %%px cells after it"]


INTERRUPTED = r"labs: error: ranks? [01, ]+ waited in an exchange when the cell was interrupted; .* starts new workers"


@pytest.mark.parametrize(("cell", "goes_on"), [
    ("%%px\nimport time\ntime.sleep(600)", True), (f"%%px\nif hvd.rank() == 0:\n    {SUM}", False),
    ("workers.run(checksums, ['--epochs', '100000', '--results', '.'])", False),
], ids=["both sleep", "0 waits", "run"])
def test_a_cell_can_be_interrupted(kernel, cell, goes_on):
    kernel.run("from tests.workers.programs import checksums")
    began = time.monotonic()
    threading.Timer(4, kernel.manager.interrupt_kernel).start()
    status, _, error = kernel.run(cell)
    assert (status, error[-1].split(":")[0]) == ("error", "KeyboardInterrupt")
    assert time.monotonic() - began < SECONDS_TO_END
    status, lines, error = kernel.run(f"%%px\n{SUM}")
    assert (status, lines) == ("ok", SUMS) or (not goes_on and re.fullmatch(INTERRUPTED, error[-1]))


def test_when_the_kernel_is_killed_nothing_goes_on(kernel, tmp_path, monkeypatch):
    mine = family(kernel.pid)
    assert len(engines(mine)) == 2
    os.kill(kernel.pid, signal.SIGKILL)
    assert not psutil.wait_procs(mine, timeout=SECONDS_TO_END)[1]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for folder in tmp_path.glob("labs-mpi-*"):
        os.utime(folder, (time.time() - 600,) * 2)
    with supervisor.started(["true"]):
        assert len(list(tmp_path.glob("labs-mpi-*"))) == 1, "the next start removes the files of a killed one"
