"""Starts the workers of one run, shows what they say, and tells in one line why a run ended badly."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import psutil

from labs import claims, command
from labs.errors import LabError
from labs.launch import site, slurm
from labs.places import ROOT

ERROR = "labs: error: "
PREFIX = re.compile(r"^\[\d+\]<std(?:out|err)>:")
"""What horovodrun writes before each line of a worker."""
ENDS = (
    r"rank (?P<rank>\d+) .*?on node (?P<node>\S+) exited on signal (?P<signal>\d+)",
    r"rank (?P<rank>\d+) .*?on node (?P<node>\S+) exiting improperly",
    r"Process name: \[\S+,(?P<rank>\d+)\] Exit code: +(?P<code>\d+)",
)
"""How Open MPI's launcher says which worker was the first to end, and how."""
INSIDE = re.compile(
    r"OMPI_(COMM_WORLD|UNIVERSE|FILE|APP|FIRST|NUM)|PMIX_|PRTE_(?!MCA)|HOROVOD_(RANK|SIZE|LOCAL|CROSS|CONTROLLER|HOSTNAME|GLOO_RENDEZVOUS)"
)
"""Variables that make a launcher or a worker believe that it is inside a run."""
SECONDS_TO_SAVE = 20.0
SECONDS_TO_END = 5.0


class Finished(KeyboardInterrupt):
    """A run was interrupted when it had just written its record: there is nothing to go on with."""


def run(lab: str | ModuleType, asked: Any = (), workers: int | None = None, oversubscribe: bool = False,
        log: IO[str] | None = None) -> dict:
    """Run a lab on several workers and return rank 0's record; what the workers print is passed on as it comes.

    Args:
        lab: Its module or its name, or the beginning of it ("lab10").
        asked: The lab's Config, or what stands behind the lab's name on the command line, as ["--epochs", "3"].
        workers: How many; if left out: the allocation's tasks, else one per visible GPU, else one.
        oversubscribe: Allow more workers than cores.
        log: Where to pass on what the workers print; the terminal, if left out.

    Raises:
        LabError: The command line is wrong, or the run ended badly: with rank, host, step and cause.
        Finished: It was interrupted, but too late.
    """
    from labs.report import records

    module = command.find(lab) if isinstance(lab, str) else lab
    name = command.called(module)
    arguments = command.spell(module, asked) if dataclasses.is_dataclass(asked) else list(asked)
    config, options = command.parse(module, arguments, launches=True)
    workers = _workers(workers, oversubscribe)
    runs = command.store(options) / name
    run_name = command.run_name(options, runs, workers)
    claims.refuse_held(runs / run_name)
    program = [sys.executable, "-m", module.__name__, *arguments, *([] if options.name else ["--name", run_name])]
    start = getattr(module, "launcher", lambda *_: None)(config, workers, runs / run_name)
    try:
        code, told = _supervise([*(start or mpirun(workers)), *program], getattr(module, "VARIABLES", {}), log,
                                asks_first=start is None)
    except KeyboardInterrupt:
        if (runs / run_name / "record.json").exists():
            raise Finished from None
        raise
    if code:
        hint = "; `labs check` looks for the cause" if code > 0 else ""
        raise LabError(told.cause or _lost(told.launcher, runs / run_name / "places") or
                       f"the launcher ended with code {code}: {told.launcher or 'it gave no reason'}{hint}")
    return records.read(runs / run_name)


def mpirun(workers: int) -> list[str]:
    """Return the start of the command line that starts so many workers."""
    launcher = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if launcher is None:
        raise LabError("no mpirun beside this Python or on the PATH; set up the environment with `make env`")
    # Horovod: bound to one core, as mpirun does by itself, a worker's threads would share it; and a rank that waits
    # must yield its core to the ranks that compute.
    flags = ["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    allocation = slurm.allocation()
    if not allocation or allocation.nodes == 1:
        # The workers share memory. By TCP they would listen on every network besides, and Open MPI's component for
        # fabrics takes a second of every start to find that there is none.
        flags += ["--mca", "btl", "^tcp,ofi"]
    # `_workers` has counted the cores; Open MPI would count no hyperthreads, and tasks where a site grants cores.
    return [launcher, "-np", str(workers), *flags, "--map-by", ":OVERSUBSCRIBE"]


def _workers(asked: int | None, oversubscribe: bool) -> int:
    if asked is not None and asked < 1:
        raise LabError(f"--workers {asked}: a run needs at least one")
    allocation = slurm.allocation()
    if allocation:
        slurm.check_step()
        if advice := slurm.advice(allocation) or _without_gpus(allocation):
            print(f"labs: {advice}", file=sys.stderr, flush=True)
        return slurm.workers(allocation, asked)
    workers = visible_gpus() or 1 if asked is None else asked
    if not oversubscribe:
        check_slots(workers)
    return workers


def _without_gpus(allocation: slurm.Allocation) -> str:
    """Return one line on GPUs that the job's nodes have and the job did not ask for, or an empty string."""
    gpus = site.gpus_of_nodes(allocation.node_list) if allocation.gpus_per_node == 0 else 0
    if gpus == 0:
        return ""
    return (f"each node of this job has {gpus} GPU(s), but the job asked for none and trains on CPUs; "
            f"{site.ask_for_gpus(gpus)}")


def slots() -> int:
    """Return how many workers there is room for: one per core, or per CPU that Slurm granted."""
    allocation = slurm.allocation()
    return allocation.ntasks * allocation.cpus_per_task if allocation else len(os.sched_getaffinity(0))


def check_slots(workers: int) -> None:
    """Refuse more workers than cores.

    Raises:
        LabError: Names the way on.
    """
    if workers > slots():
        raise LabError(f"{workers} workers on {slots()} cores would wait for each other; "
                       f"ask for at most {slots()}, or add --oversubscribe")


def visible_gpus() -> int:
    """Return how many GPUs a worker could use, without loading TensorFlow."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return len([device for device in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if device not in ("", "-1")])
    import pynvml

    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return 0


class _Told:
    """What the workers and their launcher said on the error stream that the last line is made of."""

    def __init__(self):
        self.cause = ""
        self.launcher = ""


def _supervise(arguments: list[str], variables: Mapping[str, str], log: IO[str] | None,
               asks_first: bool) -> tuple[int, _Told]:
    """Run the launcher to its end; whatever ends this process, the workers end too.

    Args:
        arguments: The launcher's command line.
        variables: Of the environment, beside the usual ones.
        log: Where to pass on what it prints.
        asks_first: Whether the launcher passes a signal on, so that the workers can save before they end.
    """
    told, readers = _Told(), []
    try:
        with started(arguments, {**environment(bar=log is None), **variables}) as process:
            readers = [threading.Thread(target=_pass_on, args=(process.stdout, log or sys.stdout, None), daemon=True),
                       threading.Thread(target=_pass_on, args=(process.stderr, log or sys.stderr, told), daemon=True)]
            for reader in readers:
                reader.start()
            with _signals_interrupt():
                try:
                    code = process.wait()
                except KeyboardInterrupt:
                    _ask_to_stop(process, asks_first)
                    raise
    finally:
        for reader in readers:
            reader.join(timeout=2)
    return code, told


@contextlib.contextmanager
def started(arguments: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """Run a program while the block lasts; whatever ends the block or this process, nothing of the program is left.

    Args:
        arguments: Its command line.
        env: Its environment; this process's, if left out.
    """
    with _own_folder() as own:
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   env={**(os.environ if env is None else env), **own}, start_new_session=True,
                                   preexec_fn=_end_with_parent)
        try:
            yield process
        finally:
            _end(process)
            _end_left(process.pid)


@contextlib.contextmanager
def _own_folder() -> Iterator[dict[str, str]]:
    """Give Open MPI's launcher a folder of its own, as variables.

    In the common one it names its files by its process number. Those of a launcher that was killed stay, and when its
    number comes again, the next one does not start: "The PMIx server's listener thread failed to start".
    """
    if os.environ.get("SLURM_JOB_NUM_NODES", "1") != "1":  # The folder would have to be there on all nodes.
        yield {}
        return
    try:
        folder = tempfile.TemporaryDirectory(prefix="labs-mpi-", ignore_cleanup_errors=True)
    except OSError:  # No room, no rights: the launcher says it in the terms of its own folder.
        yield {}
        return
    with folder as path:
        yield {"PRTE_MCA_prte_tmpdir_base": path, "OMPI_MCA_orte_tmpdir_base": path}  # Open MPI 5, and 4.


def environment(bar: bool = True) -> dict[str, str]:
    """Return the environment of a run's launcher: this process's, less what belongs inside another run.

    Args:
        bar: Whether workers may draw a progress bar, where there is a terminal.
    """
    kept = {name: value for name, value in os.environ.items() if not INSIDE.match(name)}
    kept["PYTHONUNBUFFERED"] = "1"
    kept.setdefault("SETUPTOOLS_USE_DISTUTILS", "stdlib")  # TensorFlow imports distutils; setuptools' own costs 0.2 s.
    kept["LABS_TERMINAL"] = str(int(bar and sys.stderr.isatty()))
    # The labs are found from whatever folder the command is typed in.
    kept["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    if os.geteuid() == 0:  # In a container, where root is the only user; Open MPI refuses without both.
        kept |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return kept


def _end_with_parent() -> None:
    """Have the kernel end the launcher (which ends its workers) should this process be killed outright."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def _pass_on(source: BufferedReader, target, told: _Told | None) -> None:
    """Copy a stream as it comes; keep back error lines and the launcher's dashed boxes: they make the last line."""
    boxed = False
    for text in _pieces(source):
        text = PREFIX.sub("", text)
        if told is not None and text.startswith("-" * 60):
            boxed = not boxed
        elif told is not None and boxed:
            told.launcher = f"{told.launcher} {text.strip()}".strip()
        elif told is not None and ERROR in text:
            told.cause = told.cause or text.split(ERROR, 1)[1].strip()
        else:
            target.write(text)
            target.flush()


def _pieces(source: BufferedReader) -> Iterator[str]:
    """Yield lines, and whatever ends in a carriage return: a progress bar has no line end."""
    rest = b""
    while piece := source.read1(65536):
        # Inside Slurm, Open MPI's launcher ends its boxes with a NUL.
        *whole, rest = re.split(rb"(?<=[\r\n])", rest + piece.replace(b"\0", b""))
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Treat SIGTERM (a scheduler, a closed terminal) and SIGUSR1 (a time limit) as Ctrl-C: nothing is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(*_) -> None:
    raise KeyboardInterrupt  # Not SIGINT, which a program that a shell has started in the background ignores.


def _ask_to_stop(process: subprocess.Popen, asks_first: bool) -> None:
    """Have the workers save and stop after the step they are in, for which they have a while."""
    if asks_first and process.poll() is None:
        print("labs: saving; Ctrl-C again ends the run at once", file=sys.stderr, flush=True)
        process.send_signal(signal.SIGUSR1)  # mpirun passes it on to the workers on all nodes: see training/stop.py.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_SAVE)


def _end(process: subprocess.Popen) -> None:
    """End the launcher and its workers: asked first, then by force."""
    if process.poll() is not None:
        return
    launcher = psutil.Process(process.pid)
    family = [launcher, *launcher.children(recursive=True)]
    process.terminate()
    _, left = psutil.wait_procs(family, timeout=SECONDS_TO_END)
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()


def _end_left(session: int) -> None:
    """End what a launcher that was killed has left on this machine: the workers are of its session."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == session:
                process.kill()


def _lost(launcher: str, places: Path) -> str:
    """Say which worker ended without a word, from the launcher's words and the place the worker had noted."""
    from labs.training import watch

    match = next(filter(None, (re.search(end, launcher) for end in ENDS)), None)
    if not match:
        return ""
    end = match.groupdict()
    rank, node = int(end["rank"]), end.get("node", "an unnamed node")
    place = next((str(place) for place in watch.read_places(places) if place.rank == rank), f"rank {rank} on {node}")
    if "signal" not in end:
        return f"{place}: left the run before its end, with code {end.get('code', 0)} and without a word"
    killer = signal.Signals(int(end["signal"]))
    # The kernel's out-of-memory killer sends SIGKILL; oneDNN and C++ crash when an allocation fails.
    memory = killer in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
    return f"{place}: killed by {killer.name}" + "; out of memory? Then lower --batch-size" * memory
