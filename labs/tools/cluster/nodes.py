"""The nodes of a cluster: namespaces, links shaped by Linux' traffic control (tc), and commands on a host.

All processes are in the namespaces of one process, the head. When it ends, the kernel ends all the rest.
"""

import dataclasses
import itertools
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from labs.run import cluster_state as state
from labs.run import mpirun, resources
from labs.run.errors import LabError, quoted
from labs.run.paths import search_path

PROGRAMS = ("ip", "tc", "unshare", "nsenter", "setpriv", "taskset", "mount", "hostname")
NAMESPACES = ("--net", "--uts", "--ipc", "--mount")
# As the first process, it inherits orphans; with SIGCHLD ignored, none stays as a zombie.
WAIT = "echo ready; exec env --ignore-signal=CHLD sleep infinity >/dev/null 2>&1"
HOST = """\
hostname {host}
ip link set lo up
mount --bind {folder}/hosts /etc/hosts
mount -t tmpfs -o mode=1777 labs /dev/shm
mount -t tmpfs -o mode=1777 labs {folder}/tmp
"""
"""Turns new namespaces into a host, with its own folder for temporary files."""
# mpirun starts its daemons with it; like `ssh`, it passes on few environment variables.
AGENT = """\
#!/bin/sh
host=$1; shift
case $host in
{hosts}
esac
exec nsenter --target=$pid {namespaces} taskset --cpu-list $cores \
    env -i HOME="$HOME" USER="$USER" LANG="$LANG" PATH="$PATH" {settings} bash -c "$*"
"""
WHOLE_PACKET = 72 * 2**10
"""Bytes of the smallest token bucket. The kernel hands over packets of up to 64 KiB; a smaller bucket would have it cut
them up, at the cost of the nodes' cores."""
BUCKET_SECONDS = 0.001
"""A fast link's bucket holds what the link sends in this time, since the kernel refills it with delays."""
QUEUE_BYTES = 32 * 2**20
"""A queue so long that no packet is dropped: a drop would add TCP's waiting time to the link's."""


def start(count: int, cores: int, bandwidth: str, start_slurm: Callable[[state.Cluster], None] | None) -> state.Cluster:
    """Start a cluster of nodes named node1, node2, ... with a bandwidth in each direction of their links; return it."""
    if absent := [program for program in PROGRAMS if not shutil.which(program, path=search_path())]:
        raise LabError(f"no {', '.join(absent)}; sudo apt-get install iproute2 (not on Linux: use a virtual machine)")
    if cores > (there := resources.cores()):
        raise LabError(f"--cores {cores}: this machine has {there}{resources.describe_quota()}")
    state.bits_per_second(bandwidth)
    if state.current():
        raise LabError("a cluster is already up; `labs cluster down` ends it")
    folder = _make_folder()
    # The nodes share the machine's cores if it has too few.
    free = itertools.cycle(sorted(os.sched_getaffinity(0))[:there])
    assigned = {f"node{number}": sorted(itertools.islice(free, cores)) for number in range(1, count + 1)}
    owner = [os.getuid(), os.getgid()] if os.geteuid() else []
    try:
        cluster = state.Cluster(_start_head(bool(owner)), {state.HEAD: 1}, assigned,
                                {node: state.Link(bandwidth) for node in assigned}, start_slurm is not None, owner)
        state.write(cluster)
        cluster = _make_nodes(folder, cluster)
        _write_launch_files(folder, cluster)
        if start_slurm:  # Before the links are slow.
            start_slurm(cluster)
        return _apply(cluster, cluster.links)
    except BaseException:
        end()
        shutil.rmtree(folder, ignore_errors=True)  # Without a state `end` finds nothing to delete.
        raise


def end() -> bool:
    """End the cluster with everything that runs on it; return whether one was up."""
    if state.inside():
        raise LabError("this is a host of the cluster; leave it with `exit` first")
    if cluster := state.current():
        head = psutil.Process(cluster.head[0])
        head.kill()
        # The kernel first ends all others. In a container whose first process reaps no zombies, it stays.
        psutil.wait_procs([head], 5)
    if (state.folder() / state.FILE).exists():
        shutil.rmtree(state.folder())
    return cluster is not None


def _make_folder() -> Path:
    """Make the cluster's folder, which only this user may enter; its end deletes all that is in it."""
    folder = state.folder()
    if (folder / state.FILE).exists():  # Of a cluster that was killed.
        shutil.rmtree(folder)
    if folder.exists():
        raise LabError(f"{folder} exists already; set {state.FOLDER} to a path that does not exist")
    folder.mkdir(mode=0o700, parents=True)
    (folder / "tmp").mkdir()
    return folder


def _start_head(as_user: bool) -> tuple[int, int]:
    """Start the first process of the cluster in new namespaces; return its PID and its start."""
    user = ["--user", "--map-root-user"] if as_user else []
    starter = subprocess.Popen(["unshare", *user, *NAMESPACES, "--pid", "--fork", "--kill-child=KILL", "--mount-proc",
                                "bash", "-c", WAIT], env=os.environ | {state.FOLDER: str(state.folder())}, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    if not starter.stdout or (line := starter.stdout.readline().strip()) != "ready":
        raise LabError(f"this machine does not allow you to make namespaces ({line}); docs/laptop-cluster.md says "
                       "what to ask its administrator for")
    (head,) = psutil.Process(starter.pid).children()
    return head.pid, resources.start_ticks(head.pid)


def _make_nodes(folder: Path, cluster: state.Cluster) -> state.Cluster:
    """Make the hosts and join them to a switch; return the cluster with its PIDs."""
    hosts = [*cluster.links, state.HEAD]
    lines = (f"{state.address(host)} {host}\n" for host in hosts)
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
    setup = {host: HOST.format(host=host, folder=shlex.quote(str(folder))) for host in hosts}
    # The head's own address is on the switch.
    run_script(cluster, f"{setup[state.HEAD]}ip link add switch type bridge\n"
                        f"ip addr add {state.address(state.HEAD)}/24 dev switch\nip link set switch up")
    # Each node's process holds its namespaces. Until the node is set up, the process has this script's output.
    holders = (f"bash -ec {shlex.quote(setup[node] + 'exec sleep infinity <&- >&- 2>&-')}" for node in cluster.links)
    printed = run_script(cluster, "\n".join(f"unshare {' '.join(NAMESPACES)} {holder} & echo $!" for holder in holders))
    pids = dict(zip(cluster.links, map(int, printed.split()), strict=True))
    run_script(cluster, "\n".join(
        f"ip link add {node} type veth peer name eth0 netns {pid}\nip link set {node} master switch up\n"
        f"nsenter --target={pid} --net ip addr add {state.address(node)}/24 dev eth0\n"
        f"nsenter --target={pid} --net ip link set eth0 up" for node, pid in pids.items()))
    return dataclasses.replace(cluster, pids=cluster.pids | pids)


def set_links(nodes: Collection[str], changes: Mapping[str, Any]) -> state.Cluster:
    """Change fields of the links of some nodes, by default of all; return the cluster."""
    cluster = state.require()
    state.bits_per_second(changes.get("bandwidth", state.UNLIMITED))
    if unknown := [node for node in nodes if node not in cluster.links]:
        raise LabError(f"unknown node {quoted(unknown[0])}; there are: {', '.join(cluster.links)}")
    wanted = {node: dataclasses.replace(cluster.links[node], **changes) for node in nodes or cluster.links}
    return _apply(cluster, wanted)


def _apply(cluster: state.Cluster, links: dict[str, state.Link]) -> state.Cluster:
    """Have the kernel set some links, and return the cluster with them."""
    run_script(cluster, "\n".join(line for node, link in links.items()
                                  for line in _link_commands(node, cluster.pids[node], link)))
    cluster = dataclasses.replace(cluster, links=cluster.links | links)
    state.write(cluster)
    return cluster


def _link_commands(node: str, pid: int, link: state.Link) -> Iterator[str]:
    """Yield commands for both ends of a link: the node's own interface, and its port of the switch."""
    for on_host, device in ((f"nsenter --target={pid} --net ", "eth0"), ("", node)):
        if link.bandwidth == state.UNLIMITED:
            yield f"{on_host}tc qdisc del dev {device} root 2>/dev/null || true"  # There may be none.
        else:
            bits = int(state.bits_per_second(link.bandwidth))
            bucket = int(max(WHOLE_PACKET, bits / 8 * BUCKET_SECONDS))
            yield (f"{on_host}tc qdisc replace dev {device} root tbf rate {bits}bit burst {bucket}b "
                   f"limit {QUEUE_BYTES}b")
    # A port that is down drops every packet; the node's interface stays up.
    yield f"ip link set {node} {'master switch' if link.up else 'nomaster'}"


def command(cluster: state.Cluster, host: str, words: Sequence[str], cwd: Path = Path("/"),
            variables: Mapping[str, str] | None = None) -> list[str]:
    """Return the command line that runs a command on a host, with this process's environment and further variables."""
    if host not in cluster.pids:
        raise LabError(f"unknown node {host!r}; there are: {', '.join(cluster.links)}")
    here, prefix = state.inside(), list[str]()
    if not here:
        user = ["--user", "--preserve-credentials"] if cluster.owner else []
        # The command does not outlive `nsenter`, even if that is killed.
        prefix = ["nsenter", f"--target={cluster.head[0]}", *user, *NAMESPACES, "--pid", "setpriv", "--pdeathsig=TERM"]
    if host != (here or state.HEAD):
        prefix += ["nsenter", f"--target={cluster.pids[host]}", *NAMESPACES]
    if host in cluster.cores:
        prefix += ["taskset", "--cpu-list", ",".join(map(str, cluster.cores[host]))]
    settings = [f"{name}={value}" for name, value in {"PATH": search_path(), **(variables or {})}.items()]
    return [*prefix, "env", f"--chdir={cwd}", *_settings(), *settings, *words]


def _settings() -> list[str]:
    """Return the environment variables of all processes of the cluster."""
    return [f"{state.FOLDER}={state.folder()}", f"{state.INSIDE}=1", f"TMPDIR={state.folder()}/tmp"]


def run_script(cluster: state.Cluster, script: str) -> str:
    """Run lines of bash on the head and return what they print; raise LabError if one fails or complains."""
    done = subprocess.run(command(cluster, state.HEAD, ["bash", "-ec", script]), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, start_new_session=True)
    if done.returncode or done.stderr:
        raise LabError(f"the kernel refused a part of the cluster: {(done.stderr.strip() or script).splitlines()[-1]}")
    return done.stdout


def as_owner(cluster: state.Cluster, words: Sequence[str]) -> list[str]:
    """Return the command line that runs a command as the cluster's owner, in a user namespace below the cluster's.

    Slurm needs this: as root, its daemons would drop root's groups, which a user namespace does not allow.
    """
    if not cluster.owner:
        return [*words]
    user, group = cluster.owner
    return ["unshare", "--user", f"--map-user={user}", f"--map-group={group}", *words]


def launch_variables() -> dict[str, str]:
    """Return the environment variables with which mpirun starts workers on all nodes."""
    folder = state.folder()
    return {"PRTE_MCA_plm_ssh_agent": str(folder / "agent"),
            mpirun.HOST_FILE: str(folder / "hostfile"),
            "PRTE_MCA_prte_if_include": state.SUBNET, "OMPI_MCA_btl_tcp_if_include": state.SUBNET}


def _write_launch_files(folder: Path, cluster: state.Cluster) -> None:
    """Write mpirun's host file, and the agent that mpirun calls in place of ssh."""
    (folder / "hostfile").write_text("".join(f"{node} slots={len(cores)}\n" for node, cores in cluster.cores.items()))
    hosts = (f"{node}) pid={cluster.pids[node]} cores={','.join(map(str, cores))} ;;"
             for node, cores in cluster.cores.items())
    settings = " ".join(map(shlex.quote, _settings()))
    (folder / "agent").write_text(AGENT.format(hosts="\n".join(hosts), namespaces=" ".join(NAMESPACES),
                                               settings=settings))
    (folder / "agent").chmod(0o755)
