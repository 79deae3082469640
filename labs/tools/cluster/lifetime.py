"""Start and end of a cluster: all its processes are in the namespaces of one process, the head."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import psutil
from filelock import Timeout

from labs.run import cluster_state as state
from labs.run import resources
from labs.run.errors import LabError, quoted
from labs.run.paths import ROOT, cache_dir, data_dir, python_path, results_dir, search_path
from labs.run.run_lock import Lock
from labs.tools.cluster import head, links, slurm

PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux",
            "setpriv": "util-linux", "taskset": "util-linux", "mount": "mount", "hostname": "hostname"}
"""The programs that a cluster needs, with Debian's package of each."""
LOCK = "up.lock"
"""The lock of the folder; also the sign that the folder is a cluster's."""
SECONDS_TO_END = 5.0
NOT_ALLOWED = ("this machine does not allow you to make namespaces ({}); ask its administrator for unprivileged user "
               "namespaces (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0), or run as root, in a "
               "container with --privileged")


def up(nodes_wanted: int, cores: int = 1, bandwidth: str = state.UNLIMITED, latency: str = "", with_slurm: bool = False,
       cpus: int = 0, gpus: int = 0, shared: Iterable[Path] = (), partitions: str = "lab") -> state.Cluster:
    """Start a cluster and return it.

    Args:
        nodes_wanted: Number of nodes, named node1, node2, ...
        cores: Cores of each node. Nodes share the machine's cores if it has too few.
        bandwidth: Of each link, in each direction.
        latency: Added to each link, in each direction.
        with_slurm: Run Slurm on it.
        cpus: CPUs of each node that Slurm assumes; 0: its cores, and at least those of a task of the kit's jobs.
        gpus: GPUs of each node that Slurm assumes.
        shared: Folders below /tmp that all nodes are to see.
        partitions: Slurm's partitions, a key of slurm.PARTITIONS.

    Raises:
        LabError: A cluster is already up, a value is wrong, or this machine cannot make namespaces.
    """
    _require_programs(with_slurm)
    _refuse(nodes_wanted, cores)
    links.bits_per_second(bandwidth)
    links.seconds(latency)
    folder = _own_folder()
    with _alone(folder):
        if state.current():
            raise LabError("a cluster is already up; `labs cluster down` ends it")
        try:
            spec = {"cores": _cores_of_nodes(nodes_wanted, cores), "bandwidth": bandwidth, "latency": latency,
                    "slurm": with_slurm, "partitions": partitions, "cpus": cpus, "gpus": gpus,
                    "owner": [os.getuid(), os.getgid()] if os.geteuid() else [],
                    "shared": [str(path) for path in _shared_folders(shared)]}
            return _start(folder, spec)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def down() -> bool:
    """End the cluster with everything that runs on it; return whether one was up.

    Raises:
        LabError: A cluster is being started, or this is one of its hosts.
    """
    _refuse_inside()
    if not state.folder().exists():
        return False
    folder = _own_folder()
    with _alone(folder, patience=slurm.SECONDS_TO_START):
        process = state.head_process()
        if process is not None:
            process.kill()
            _await_end(process)
        shutil.rmtree(folder, ignore_errors=True)
    return process is not None


def _await_end(head: psutil.Process) -> None:
    """Wait for a killed head to end; the kernel ends every other process in its namespace first."""
    # In a container whose first process reaps no zombies, waiting for the head could block.
    with contextlib.suppress(psutil.TimeoutExpired):
        head.wait(SECONDS_TO_END)


@contextlib.contextmanager
def _alone(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the folder's lock, so that no other command starts or ends a cluster."""
    try:
        with Lock(folder / LOCK).hold(patience):
            yield
    except Timeout:
        raise LabError("another `labs cluster up` or `down` is at work; try again in a moment") from None


def _start(folder: Path, spec: dict) -> state.Cluster:
    """Start the head in new namespaces and wait until it has made the nodes; end it if this fails in any way."""
    for left in folder.iterdir():  # Of a cluster that was killed.
        if left.name != LOCK:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    user = ["--user", "--map-root-user"] if spec["owner"] else []
    command = ["unshare", *user, "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child=KILL",
               "--mount-proc", sys.executable, "-P", "-m", "labs.tools.cluster.head", json.dumps(spec)]
    env = os.environ | {state.FOLDER: str(folder), "PYTHONPATH": python_path()}
    with (folder / "head.log").open("wb") as log:
        starter = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                   start_new_session=True, text=True)
    to_head, from_head = cast(IO[str], starter.stdin), cast(IO[str], starter.stdout)
    try:
        line = from_head.readline().strip()
        if line != head.READY:
            raise LabError(line or NOT_ALLOWED.format(_last_line(folder / "head.log")))
        (first,) = psutil.Process(starter.pid).children()
        state.sign(first)
        to_head.write(".")
        to_head.flush()
        return state.require()
    except BaseException:
        heads = []
        with contextlib.suppress(psutil.NoSuchProcess):
            heads = psutil.Process(starter.pid).children()
        starter.kill()  # `unshare --kill-child` ends the head with itself.
        with contextlib.suppress(BrokenPipeError):
            to_head.close()  # A head that outlives `unshare` ends when its input closes.
        from_head.read()  # Returns when the head has closed its output; its nodes may still be making files.
        starter.wait()
        for process in heads:
            _await_end(process)
        raise
    finally:
        to_head.close()
        from_head.close()


def _refuse(nodes_wanted: int, cores: int) -> None:
    _refuse_inside()
    if not 1 <= nodes_wanted <= state.MOST_NODES:
        raise LabError(f"--nodes {nodes_wanted}: a cluster has 1 to {state.MOST_NODES} nodes")
    if cores > (there := resources.cores()):
        raise LabError(f"--cores {cores}: this machine has {there}{resources.describe_quota()}")


def _refuse_inside() -> None:
    if state.inside():
        raise LabError("this is a host of the cluster; leave it with `exit` first")


def _require_programs(with_slurm: bool) -> None:
    if not sys.platform.startswith("linux"):
        raise LabError("a cluster inside one machine needs Linux namespaces; on macOS or Windows use a virtual machine "
                       "with Linux, or a container started with --privileged")
    absent = {package for program, package in PROGRAMS.items() if not shutil.which(program, path=search_path())}
    if absent:
        raise LabError(f"packages are missing; sudo apt-get install {' '.join(sorted(absent))}")
    if with_slurm and (missing := slurm.missing()):
        raise LabError(missing)


def _own_folder() -> Path:
    """Return the cluster's folder, which only this user may enter. It is deleted in the end, with all that is in it.

    Raises:
        LabError: The folder belongs to another user, or has other files.
    """
    folder = state.folder()
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise LabError(f"{folder} is not your folder; set {state.FOLDER} to another path")
    if any(folder.iterdir()) and not (folder / LOCK).exists():
        raise LabError(f"{folder} has other files; set {state.FOLDER} to a path that does not exist")
    folder.chmod(0o700)
    return folder


def _shared_folders(named: Iterable[Path]) -> list[Path]:
    """Return the folders below /tmp that all hosts must see: the kit's own, and those that the user has named.

    The kit's own are made if they are missing.

    Args:
        named: Folders of the user.

    Raises:
        LabError: A folder that the user has named is not below /tmp.
    """
    named = [path.resolve() for path in named]
    if outside := [path for path in named if head.TMP not in path.parents]:
        raise LabError(f"--share {quoted(str(outside[0]))} is not below /tmp; name a folder below it, or leave "
                       "--share out: nodes share the file system except /tmp")
    own = [state.folder(), ROOT, Path(sys.prefix), Path(sys.base_prefix), data_dir(), results_dir(), cache_dir()]
    for path in own:
        if head.TMP in path.parents:  # If made later, it would be a separate folder on each node.
            path.mkdir(parents=True, exist_ok=True)
    paths = (path.resolve() for path in (*own, *named))
    return sorted({path for path in paths if head.TMP in path.parents and path.is_dir()})


def _cores_of_nodes(nodes_wanted: int, cores: int) -> dict[str, list[int]]:
    """Assign this machine's cores to the nodes, round-robin."""
    there = itertools.cycle(sorted(os.sched_getaffinity(0))[:resources.cores()])
    return {f"node{number}": sorted(itertools.islice(there, cores)) for number in range(1, nodes_wanted + 1)}


def _last_line(path: Path) -> str:
    lines: Sequence[str] = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no reason given"
