"""Starts the workers of one run, shows what they say, and tells in one line why a run ended badly."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import psutil
from filelock import FileLock, Timeout

from labs.launch import hosts, verdict
from labs.run import catalogue, command_line, lifeline, naming, run_lock
from labs.run.errors import LabError
from labs.run.paths import ROOT, temporary_dir
from labs.run.text import plural
from labs.slurm import allocation, site

INSIDE = re.compile(
    r"OMPI_(COMM_WORLD|UNIVERSE|FILE|APP|FIRST|NUM)|PMIX_|PRTE_(?!MCA)|HOROVOD_(RANK|SIZE|LOCAL|CROSS|CONTROLLER|HOSTNAME|GLOO_RENDEZVOUS)"
)
"""Variables that make a launcher or a worker believe that it is inside a run."""
EXPORTED = re.compile(r"LABS_|TF_|HOROVOD_|NCCL_|CUDA_|GLIBC_|OMP_|PYTHON|SETUPTOOLS_USE")
"""Variables that the workers need on all nodes."""
FOLDER = "labs-mpi-"
"""How the names of the launches' temporary folders begin."""
SETTLED_SECONDS = 60.0
"""A younger folder may not be locked yet."""
UNLOCKED_SECONDS = 24 * 3600.0
"""A folder without a lock is from a version that had none; one of its runs may still be going on."""
SECONDS_TO_SAVE = 20.0
SECONDS_TO_END = 5.0
SECONDS_AFTER_ERROR = 2.0
"""How long mpirun may take to end after a worker has failed; it needs a fraction of a second."""
LOOK_SECONDS = 0.3
"""How often to look whether a launcher that has not ended should."""


class Finished(KeyboardInterrupt):
    """A run was interrupted when it had just written its record: there is nothing to go on with."""


def run(lab: str | ModuleType, asked: Any = (), workers: int | None = None, oversubscribe: bool = False,
        log: IO[str] | None = None, announce: bool = False) -> dict:
    """Run a lab on several workers and return rank 0's record; what the workers print is passed on as it comes.

    Args:
        lab: Its module or its name, or the beginning of it ("lab10").
        asked: The lab's Config, or what stands behind the lab's name on the command line, as ["--epochs", "3"].
        workers: How many; if left out: the allocation's tasks, else one per visible GPU, else one.
        oversubscribe: Allow more workers than cores.
        log: Where to pass on what the workers print; the terminal, if left out.
        announce: Say at once that the workers are being started, which takes them a while; a terminal's reader waits.

    Raises:
        LabError: The command line is wrong, or the run ended badly: with rank, host, step and cause.
        Finished: It was interrupted, but too late.
    """
    from labs.results import records

    module = catalogue.load_lab(lab) if isinstance(lab, str) else lab
    name = catalogue.lab_name(module)
    arguments = command_line.to_argv(module, asked) if dataclasses.is_dataclass(asked) else list(asked)
    config, options = command_line.parse(module, arguments, launches=True)
    workers = _workers(workers, oversubscribe)
    runs = naming.results_root(options) / name
    run_name = naming.run_name(options, runs, workers)
    run_lock.refuse_held(runs / run_name)
    program = [sys.executable, "-m", module.__name__, *arguments, *([] if options.name else ["--name", run_name])]
    with run_lock.discarding_unused(runs / run_name):
        start = getattr(module, "launcher", lambda *_: None)(config, workers, runs / run_name)
        if announce:
            print(f"labs: starting {plural(workers, 'worker')} ...", file=sys.stderr, flush=True)
        evidence = verdict.Evidence(options.stall_seconds)
        try:
            code = _supervise([*(start or mpirun(workers)), *program], getattr(module, "VARIABLES", {}), log, evidence,
                              asks_first=start is None)
        except KeyboardInterrupt:
            if (runs / run_name / "record.json").exists():
                raise Finished from None
            raise
        if failure := evidence.verdict(code, runs / run_name):
            raise LabError(failure)
    return records.read(runs / run_name)


def mpirun(workers: int) -> list[str]:
    """Return the start of the command line that starts so many workers."""
    launcher = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if launcher is None:
        raise LabError("no mpirun beside this Python or on the PATH; set up the environment with `make env`")
    # Horovod: bound to one core, as mpirun does by itself, a worker's threads would share it; and a rank that waits
    # must yield its core to the ranks that compute.
    flags = ["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    if hosts.nodes() == 1:
        # The workers share memory. By TCP they would listen on every network besides, and Open MPI's component for
        # fabrics takes a second of every start to find that there is none.
        flags += ["--mca", "btl", "^tcp,ofi"]
    else:
        # A worker that has lost another aborts the run, and mpirun would tell of that alone: not who was lost, and why.
        flags += ["--mca", "mpi_abort_delay", "2"]
    # `_workers` has counted the cores; Open MPI would count no hyperthreads, and tasks where a site grants cores.
    return [launcher, "-np", str(workers), *flags, "--map-by", ":OVERSUBSCRIBE"]


def _workers(asked: int | None, oversubscribe: bool) -> int:
    if asked is not None and asked < 1:
        raise LabError(f"--workers {asked}: a run needs at least one")
    granted = allocation.current()
    if granted:
        allocation.check_step()
        if advice := allocation.advice(granted) or _without_gpus(granted):
            print(f"labs: {advice}", file=sys.stderr, flush=True)
        return allocation.workers(granted, asked)
    workers = visible_gpus() or 1 if asked is None else asked
    if not oversubscribe:
        check_slots(workers)
    return workers


def _without_gpus(granted: allocation.Allocation) -> str:
    """Return one line on GPUs that the job's nodes have and the job did not ask for, or an empty string."""
    gpus = site.gpus_of_nodes(granted.node_list) if granted.gpus_per_node == 0 else 0
    if gpus == 0:
        return ""
    return (f"each node of this job has {plural(gpus, 'GPU')}, but the job asked for none and trains on CPUs; "
            f"{site.ask_for_gpus(gpus)}")


def slots() -> int:
    """Return how many workers there is room for: per core, per CPU that Slurm granted, or per slot of a host file."""
    granted = allocation.current()
    if granted:
        return granted.ntasks * granted.cpus_per_task
    return sum(hosts.slots().values()) or len(os.sched_getaffinity(0))


def check_slots(workers: int) -> None:
    """Refuse more workers than cores.

    Raises:
        LabError: Names the way on.
    """
    if workers > slots():
        raise LabError(f"{workers} workers on {plural(slots(), 'core')} would wait for each other; "
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


def _supervise(arguments: list[str], variables: Mapping[str, str], log: IO[str] | None, evidence: verdict.Evidence,
               asks_first: bool) -> int:
    """Run the launcher to its end, and return its code; whatever ends this process, the workers end too.

    Args:
        arguments: The launcher's command line.
        variables: Of the environment, beside the usual ones.
        log: Where to pass on what it prints.
        evidence: Takes what the last line is made of.
        asks_first: Whether the launcher is mpirun: it passes a signal on, so that the workers can save before they end,
            and it ends with the first worker that fails.
    """
    readers = []
    env = {**environment(bar=log is None), **variables, lifeline.SUPERVISOR: lifeline.named()}
    if asks_first and hosts.slots():
        arguments = [arguments[0], *_exports(env), *arguments[1:]]
    try:
        with started(arguments, env) as process:
            streams = (process.stdout, log or sys.stdout, False), (process.stderr, log or sys.stderr, True)
            readers = [threading.Thread(target=_pass_on, args=(source, target, evidence, errors), daemon=True)
                       for source, target, errors in streams]
            for reader in readers:
                reader.start()
            with _signals_interrupt():
                try:
                    return _wait(process, evidence) if asks_first else process.wait()
                except KeyboardInterrupt:
                    _ask_to_stop(process, asks_first)
                    raise
    finally:
        for reader in readers:
            reader.join(timeout=2)


def _exports(env: Mapping[str, str]) -> list[str]:
    """Return mpirun's options that bring variables to the other nodes of a host file. Slurm brings all of them."""
    return [word for name in env if EXPORTED.match(name) for word in ("-x", name)]


def _wait(process: subprocess.Popen, evidence: verdict.Evidence) -> int:
    """Wait for mpirun to end, but not for ever: it waits itself for a node that does not answer."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(LOOK_SECONDS)
        failed = evidence.cause and time.monotonic() - evidence.reported > SECONDS_AFTER_ERROR
        # A worker ends itself when the training stands still. Twice as long is for what no worker notices.
        if failed or evidence.silent_node(2 * evidence.stall_seconds):
            _end(process, SECONDS_AFTER_ERROR)
            return process.wait()


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
                                   preexec_fn=lifeline.end_with_parent)
        try:
            yield process
        finally:
            _end(process)
            _end_left(process.pid)


@contextlib.contextmanager
def _own_folder() -> Iterator[dict[str, str]]:
    """Give a launcher and its workers a folder for their temporary files, as variables, and remove it at the end.

    In the common one Open MPI's launcher names its files by its process number. Those of a launcher that was killed
    stay, and when its number comes again, the next one does not start: "The PMIx server's listener thread failed to
    start". A worker that is killed leaves the code there that TensorFlow has generated.
    """
    if os.environ.get("SLURM_JOB_NUM_NODES", "1") != "1" or len(hosts.slots()) > 1:
        yield {}  # The folder would have to be there on all nodes.
        return
    _remove_abandoned()
    try:
        folder = tempfile.TemporaryDirectory(prefix=FOLDER, ignore_cleanup_errors=True)
    except OSError:  # No room, no rights: the launcher says it in the terms of its own folder.
        yield {}
        return
    with folder as path, FileLock(Path(path) / "lock"):
        yield {"PRTE_MCA_prte_tmpdir_base": path, "OMPI_MCA_orte_tmpdir_base": path,  # Open MPI 5, and 4.
               "TMPDIR": path, "LABS_TMPDIR": str(temporary_dir())}


def _remove_abandoned() -> None:
    """Remove this user's folders of launches that were killed: a launch that lives holds the lock in its own."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        with contextlib.suppress(OSError, Timeout):
            found, lock = folder.lstat(), folder / "lock"
            age = time.time() - found.st_mtime
            if found.st_uid == os.getuid() and age > (SETTLED_SECONDS if lock.exists() else UNLOCKED_SECONDS):
                with FileLock(lock, timeout=0):
                    shutil.rmtree(folder, ignore_errors=True)


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


def _pass_on(source: BufferedReader, target: IO[str], evidence: verdict.Evidence, errors: bool) -> None:
    """Copy a stream as it comes; keep back error lines and the launcher's boxes: they make the last line.

    A terminal that has been closed takes nothing more, but the stream must still be read: workers that save would wait.

    Args:
        source: What the launcher and its workers print.
        target: Where to copy it.
        evidence: Takes what is kept back.
        errors: Whether this is the error stream; on the other one nothing is kept back.
    """
    boxed = False
    for text in _pieces(source):
        text = verdict.PREFIX.sub("", text)
        if errors:
            text = evidence.take_heartbeats(text)
        elif verdict.LOST_NODE.search(text):
            evidence.take_message(text)
        if errors and text.startswith(verdict.BOX):
            boxed = not boxed
        elif boxed:
            evidence.take_message(text)
        elif errors and verdict.ERROR in text:
            evidence.take_error(text.split(verdict.ERROR, 1)[1])
        else:
            # Its reader is gone, or its disk is full: `labs` says so at its end.
            with contextlib.suppress(OSError, ValueError):
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
    """Treat SIGTERM (a scheduler), SIGUSR1 (a time limit) and SIGHUP (a closed terminal) as Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGTERM, signal.SIGUSR1]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # `nohup` has it ignored: the run is to go on.
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, handler)


def _interrupt(number: int, _) -> None:
    if number == signal.SIGHUP:  # The shell hands on its own hangup, so a second one comes: it must not end the saving.
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt  # Not SIGINT, which a program that a shell has started in the background ignores.


def _ask_to_stop(process: subprocess.Popen, asks_first: bool) -> None:
    """Have the workers save and stop after the step they are in, for which they have a while."""
    if asks_first and process.poll() is None:
        with contextlib.suppress(OSError):  # The terminal has been closed.
            print("labs: saving; Ctrl-C again ends the run at once", file=sys.stderr, flush=True)
        process.send_signal(signal.SIGUSR1)  # mpirun passes it on to the workers on all nodes: see training/stop.py.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_SAVE)


def _end(process: subprocess.Popen, patience: float = SECONDS_TO_END) -> None:
    """End the launcher and its workers: asked first, then by force."""
    if process.poll() is not None:
        return
    launcher = psutil.Process(process.pid)
    family = [launcher, *launcher.children(recursive=True)]
    process.terminate()
    _, left = psutil.wait_procs(family, timeout=patience)
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
