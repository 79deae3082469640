"""Start and end of a cluster: all its processes are in the namespaces of one process, the head.

When the head ends, the kernel ends all the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

import psutil
from filelock import Timeout

from labs.run import cluster_state as state
from labs.run import resources
from labs.run.errors import LabError, quoted
from labs.run.paths import ROOT, data_dir, results_dir, search_path
from labs.run.run_lock import Lock
from labs.tools.cluster import enter, links, slurm

MOST_NODES = 64
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux",
            "setpriv": "util-linux", "taskset": "util-linux", "mount": "mount", "hostname": "hostname"}
"""The programs that a cluster needs, with Debian's package of each."""
LOCK = "up.lock"
"""The lock of the folder; also the sign that the folder is a cluster's."""
TMP = Path("/tmp")
"""Private on each host, like /dev/shm."""
# It ends if its input ends before a line has come: then the process that makes the cluster was killed. Afterwards, as
# the first process, it inherits orphans; with SIGCHLD ignored, none is kept as a zombie.
WAIT = "echo ready; read -r _ || exit; exec env --ignore-signal=CHLD sleep infinity </dev/null >/dev/null 2>&1"
HOST = """\
hostname {host}
ip link set lo up
mount --bind {folder}/hosts /etc/hosts
mount -t tmpfs -o mode=1777 labs /dev/shm
mkdir -p {folder}/stage
mount -t tmpfs -o mode=1777 labs {folder}/stage
{shared}
mount -n --move {folder}/stage /tmp
"""
"""Turns new namespaces into a host. Its /tmp is made elsewhere, so that the shared folders can still be found.

mount -n: it would note the move in /run/mount, which belongs to root.
"""
NOT_ALLOWED = ("this machine does not allow you to make namespaces ({}); ask its administrator for unprivileged user "
               "namespaces (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0), or run as root, in a "
               "container with --privileged")


def up(nodes: int, cores: int, bandwidth: str, shared: Iterable[Path], slurm_settings: slurm.Settings | None
       ) -> state.Cluster:
    """Start a cluster and return it.

    Args:
        nodes: Number of nodes, named node1, node2, ...
        cores: Cores of each node. Nodes share the machine's cores if it has too few.
        bandwidth: Of each link, in each direction.
        shared: Folders below /tmp that all nodes are to see.
        slurm_settings: Run Slurm with these settings; None: without Slurm.

    Raises:
        LabError: A cluster is already up, a value is wrong, or this machine cannot make namespaces.
    """
    _refuse_inside()
    _require_programs(slurm_settings is not None)
    if not 1 <= nodes <= MOST_NODES:
        raise LabError(f"--nodes {nodes}: a cluster has 1 to {MOST_NODES} nodes")
    if cores > (there := resources.cores()):
        raise LabError(f"--cores {cores}: this machine has {there}{resources.describe_quota()}")
    state.bits_per_second(bandwidth)
    with _own_folder() as folder:
        if state.current():
            raise LabError("a cluster is already up; `labs cluster down` ends it")
        assigned = _assign_cores(nodes, cores)
        cluster = state.Cluster(
            pids={state.HEAD: 1}, cores=assigned, links={node: state.Link(bandwidth) for node in assigned},
            slurm=slurm_settings is not None, owner=[os.getuid(), os.getgid()] if os.geteuid() else [],
            shared=_shared_folders(shared))
        for left in folder.iterdir():  # Of a cluster that was killed.
            if left.name != LOCK:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        with _head(folder, cluster):
            cluster = _make_nodes(folder, cluster)
            enter.write_launch_files(cluster)
            if slurm_settings:  # Before the links are slow.
                slurm.start(cluster, slurm_settings)
            links.apply(cluster, cluster.links)
            state.write(cluster)
    return cluster


def down() -> bool:
    """End the cluster with everything that runs on it; return whether one was up.

    Raises:
        LabError: A cluster is being started, or this is one of its hosts.
    """
    _refuse_inside()
    if not state.folder().exists():
        return False
    with _own_folder(patience=slurm.SECONDS_TO_START) as folder:
        return _end(folder)


def _end(folder: Path) -> bool:
    """Kill the head, wait for it, and delete the folder; return whether there was a head."""
    process = state.head_process()
    if process is not None:
        process.kill()
        # The kernel first ends all others. In a container whose first process reaps no zombies, this could block.
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(5)
    shutil.rmtree(folder, ignore_errors=True)
    return process is not None


@contextlib.contextmanager
def _head(folder: Path, cluster: state.Cluster) -> Iterator[None]:
    """Start the head in new namespaces; end it if the block fails."""
    user = ["--user", "--map-root-user"] if cluster.owner else []
    starter = subprocess.Popen(["unshare", *user, *enter.NAMESPACES, "--pid", "--fork", "--kill-child=KILL",
                                "--mount-proc", "bash", "-c", WAIT],
                               env=os.environ | {state.FOLDER: str(folder)}, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True)
    with cast(IO[str], starter.stdin) as to_head, cast(IO[str], starter.stdout) as from_head:
        try:
            if (line := from_head.readline().strip()) != "ready":
                raise LabError(NOT_ALLOWED.format(line or "no reason given"))
            (head,) = psutil.Process(starter.pid).children()
            state.record_head(head)
            yield
            to_head.write("\n")
        except BaseException:
            _end(folder)
            raise


def _make_nodes(folder: Path, cluster: state.Cluster) -> state.Cluster:
    """Make the hosts and join them to a switch; return the cluster with its PIDs."""
    hosts = [*cluster.nodes, state.HEAD]
    lines = (f"{state.address(host)} {host}\n" for host in hosts)
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
    setup = {host: _setup_script(host, folder, cluster.shared) for host in hosts}
    # The head's own address is on the switch.
    enter.run_script(cluster, f"{setup[state.HEAD]}ip link add switch type bridge\n"
                              f"ip addr add {state.address(state.HEAD)}/24 dev switch\nip link set switch up")
    holders = (f"bash -ec {shlex.quote(setup[node] + 'exec sleep infinity <&- >&- 2>&-')}" for node in cluster.nodes)
    # Returns when all nodes are set up: until then their holders have its output.
    pids = enter.run_script(cluster, "\n".join(f"unshare {' '.join(enter.NAMESPACES)} {holder} & echo $!"
                                               for holder in holders)).split()
    numbers = dict(zip(cluster.nodes, map(int, pids), strict=True))
    enter.run_script(cluster, "\n".join(
        f"ip link add {node} type veth peer name eth0 netns {pid}\nip link set {node} master switch up\n"
        f"nsenter --target={pid} --net ip addr add {state.address(node)}/24 dev eth0\n"
        f"nsenter --target={pid} --net ip link set eth0 up" for node, pid in numbers.items()))
    return dataclasses.replace(cluster, pids=cluster.pids | numbers)


def _setup_script(host: str, folder: Path, shared: Iterable[str]) -> str:
    quoted_folder = shlex.quote(str(folder))
    inner = {path: f"{quoted_folder}/stage/{shlex.quote(str(Path(path).relative_to(TMP)))}" for path in shared}
    mounts = [f"mkdir -p {there}\nmount --rbind {shlex.quote(path)} {there}" for path, there in inner.items()]
    return HOST.format(host=host, folder=quoted_folder, shared="\n".join(mounts))


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


@contextlib.contextmanager
def _own_folder(patience: float = 0.0) -> Iterator[Path]:
    """Yield the cluster's folder, which only this user may enter, with its lock. Its end deletes all that is in it.

    Raises:
        LabError: The folder belongs to another user or has other files, or another command starts or ends a cluster.
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
    try:
        with Lock(folder / LOCK).hold(patience):
            yield folder
    except Timeout:
        raise LabError("another `labs cluster up` or `down` is at work; try again in a moment") from None


def _shared_folders(chosen: Iterable[Path]) -> list[str]:
    """Return the folders below /tmp that all hosts must see: the kit's own, and those that the user has chosen.

    The kit's own are made if they are missing.

    Raises:
        LabError: A folder that the user has chosen is not below /tmp.
    """
    chosen = [path.resolve() for path in chosen]
    if outside := [path for path in chosen if TMP not in path.parents]:
        raise LabError(f"--share {quoted(str(outside[0]))} is not below /tmp; name a folder below it, or leave "
                       "--share out: nodes share the file system except /tmp")
    own = [state.folder(), ROOT, Path(sys.prefix), Path(sys.base_prefix), data_dir(), results_dir()]
    for path in own:
        if TMP in path.parents:  # If made later, it would be a separate folder on each node.
            path.mkdir(parents=True, exist_ok=True)
    paths = (path.resolve() for path in (*own, *chosen))
    return sorted({str(path) for path in paths if TMP in path.parents and path.is_dir()})


def _assign_cores(nodes: int, cores: int) -> dict[str, list[int]]:
    """Assign this machine's cores to the nodes, round-robin."""
    there = itertools.cycle(sorted(os.sched_getaffinity(0))[:resources.cores()])
    return {f"node{number}": sorted(itertools.islice(there, cores)) for number in range(1, nodes + 1)}
