"""Resident workers: ranks inside a notebook, from their start to their end."""

import os
import re
import signal
import stat
import tempfile
import threading

import psutil
import pytest
from jupyter_client.manager import KernelManager

from labs.run import resident
from labs.run.errors import LabError
from labs.run.paths import ROOT
from tests import listening
from tests.tools.cluster.client import until

pytestmark = [pytest.mark.workers, pytest.mark.slow]

INIT = "import os, numpy as np, tensorflow as tf, horovod.tensorflow as hvd; hvd.init()"
SUM = "print(hvd.allreduce(tf.constant([1., 2.] if hvd.rank() == 0 else [3., 4.]), op=hvd.Sum).numpy())"
SUMS = ["rank 0: [4. 6.]", "rank 1: [4. 6.]"]


def family(pid: int | None = None) -> list[psutil.Process]:
    """Return the processes that a process has started."""
    return psutil.Process(pid).children(recursive=True)


def test_cells_run_on_ranks_that_nobody_else_reaches_and_stop_leaves_nothing(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = {process.pid for process in family()}
    two = resident.start(2)
    two.px(f"{INIT}; {SUM}; mine = np.arange(2) + hvd.rank()\nmine")
    assert sorted(capfd.readouterr().out.splitlines()) == [
        *SUMS[:1], "rank 0: array([0, 1])", *SUMS[1:], "rank 1: array([1, 2])", "starting 2 workers ..."]
    assert [list(each) for each in two.pull("mine")] == [[0, 1], [1, 2]]
    ranks = [psutil.Process(pid) for pid in two.pull("os.getpid()")]
    until(lambda: {process.status() for process in ranks} == {psutil.STATUS_STOPPED}, 10)
    with pytest.raises(resident.WorkerError, match=r"^rank 0: NameError: name 'nonsense' is not defined$"):
        two.px("nonsense")

    mine = [process for process in family() if process.pid not in before]
    programs = [process for process in mine if not re.match("mpirun|prte", process.name())]
    assert listening.addresses(*programs) == {"127.0.0.1"}
    keys = list(tmp_path.rglob("ipcontroller-*.json"))
    assert len(keys) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in [*keys, *tmp_path.glob("labs-keys-*")]} == {0o600, 0o700}
    two.stop()
    with pytest.raises(LabError, match=r"^the workers have been stopped; resident\.start\(2\) starts new workers$"):
        two.px("1")
    assert not [each for each in mine if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("fault", "cause"), [
    ("os.kill(os.getpid(), 9)", r"rank 1 .*killed by SIGKILL.*"),
    ("raise ValueError('burst')", "rank 1: ValueError: burst; rank 0 waited, so the workers were stopped"),
    ("1", "not all ranks have joined an exchange: .*; rank 0 waited, so the workers were stopped"),
], ids=["killed", "raises", "joins not"])
def test_the_rank_at_fault_is_named_although_the_other_waits_for_it(monkeypatch, fault, cause):
    monkeypatch.setattr(resident, "STALL_LIMITS", dict.fromkeys(resident.STALL_LIMITS, "2"))
    workers = resident.start(2)
    workers.px(INIT)
    with pytest.raises(LabError) as caught:
        workers.px(f"if hvd.rank() == 1:\n    {fault}\nelse:\n    {SUM}")
    assert re.fullmatch(rf"{cause}; resident\.start\(2\) starts new workers", str(caught.value))


@pytest.fixture
def kernel(tmp_path):
    """An IPython kernel, as JupyterLab starts it; its working directory and home is the test's folder."""
    manager = KernelManager(shutdown_wait_time=60)  # By default it kills the kernel after five seconds.
    env = os.environ | {"HOME": str(tmp_path), "IPYTHONDIR": "", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    manager.start_kernel(cwd=str(tmp_path), env=env)
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield manager, client
    client.stop_channels()
    if manager.has_kernel:
        manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("end", [KernelManager.shutdown_kernel, lambda manager: manager.signal_kernel(signal.SIGKILL)],
                         ids=["shut down", "killed"])
def test_cells_run_on_the_ranks_can_be_interrupted_and_a_kernel_that_ends_takes_all_with_it(tmp_path, kernel, end):
    manager, client = kernel

    def run(code: str) -> tuple[str, list[str], list[str]]:
        """Run a cell; return its status, the lines that it printed and those of its error."""
        outputs = []
        reply = client.execute_interactive(code, timeout=120, output_hook=outputs.append)["content"]
        text = "".join(each["content"]["text"] for each in outputs if each["msg_type"] == "stream")
        lines = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(reply.get("traceback", []))).splitlines()
        return reply["status"], text.splitlines(), lines

    run("from labs.run import resident")
    assert run("%%px\nprint(1)") == ("error", [], [
        "WorkerError: no workers yet; run the cell with resident.start(2) and, after a kernel restart, all %%px cells "
        "after it"])
    assert run("workers = resident.start(2)") == ("ok", ["starting 2 workers ..."], [])
    assert run(f"%%px\n{INIT}\n{SUM}") == ("ok", SUMS, [])
    status, _, error = run("%%px\nraise ValueError('burst')")
    assert (status, error[-1]) == ("error", "WorkerError: rank 0: ValueError: burst")
    assert "raise ValueError('burst')" in "\n".join(error), "the rank's traceback"
    assert not [line for line in error if "resident.py" in line], "and not that of the kit"

    def interrupt() -> None:
        until(lambda: len(list(tmp_path.glob("began*"))) == 2, 60)
        for _ in range(3):
            manager.interrupt_kernel()

    threading.Thread(target=interrupt).start()
    status, _, (line,) = run(f"%%px\nopen(f'began{{hvd.rank()}}', 'w')\nif hvd.rank() == 0:\n    {SUM}")
    cause = "the cell was interrupted, so the workers were stopped; resident.start(2) starts new workers"
    assert (status, line) == ("error", f"KeyboardInterrupt: {cause}")
    assert run(f"%%px\n{SUM}")[2][-1] == f"labs: error: {cause}"
    run("workers = resident.start(2)")
    mine = family(manager.provisioner.pid)
    end(manager)
    assert not psutil.wait_procs(mine, timeout=40)[1]
