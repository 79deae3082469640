"""A real Slurm cluster of several nodes on this one machine: own folder, key and ports, on loopback only.

    python -m tests.slurm.cluster --nodes 2     # prints `export SLURM_CONF=...` and runs until Ctrl-C

The daemons are Debian's (`apt-get install slurm-wlm munge`); a Slurm already on the machine is not disturbed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "scontrol", "scancel")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"  # A user's PATH often lacks the daemons' folder.
PR_SET_CHILD_SUBREAPER = 36
STOPPERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# config_overrides: a node has the CPUs written here, not those of the machine that plays it. No...AddrAny:
# listen on the addresses written here. MinJobAge: finished jobs stay visible to scontrol for a day.
CONF = """\
ClusterName=labs
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=5
MinJobAge=86400
SchedulerParameters=batch_sched_delay=0,bf_interval=1
GresTypes=gpu
{nodes}
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = (
    "NodeName=node{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
    "CPUs={cpus} RealMemory=4000 Gres=gpu:{gpus}"
)


def missing() -> str:
    """Return why no cluster can be started here, or an empty string."""
    absent = [program for program in PROGRAMS if not shutil.which(program, path=PATH)]
    if not sys.platform.startswith("linux"):
        return "Slurm's daemons need Linux"
    return f"no {', '.join(absent)}: apt-get install slurm-wlm munge" if absent else ""


@contextlib.contextmanager
def cluster(nodes: int = 2, cpus: int = 4, gpus: int = 2) -> Iterator[Path]:
    """Run a cluster with this process as its supervisor and yield its slurm.conf.

    Args:
        nodes: how many nodes, named node1, node2, ...
        cpus: CPUs that each node reports, whatever the machine has.
        gpus: GPUs that each has in the scheduler's books only: a GPU job's command line can be submitted as it is.
    """
    # Daemons and job steps leave their parents; the "subreaper" inherits them and can end them all.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    folder = Path(tempfile.mkdtemp(prefix="labs-slurm-"))
    try:
        conf = configure(folder, nodes, cpus, gpus)
        start(folder, conf, nodes)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # What we inherit and ends is not kept as a zombie.
        yield conf
    finally:
        for number in STOPPERS:  # A second Ctrl-C must not leave half a cluster behind.
            signal.signal(number, signal.SIG_IGN)
        end_descendants()
        shutil.rmtree(folder, ignore_errors=True)


def configure(folder: Path, nodes: int, cpus: int, gpus: int) -> Path:
    """Write slurm.conf, gres.conf and a munge key into `folder` and return the path of slurm.conf."""
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    for i in range(gpus):
        (folder / f"gpu{i}").touch()
    (folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={folder}/gpu[0-{gpus - 1}]\n")
    host, user = socket.gethostname().split(".")[0], pwd.getpwuid(os.getuid()).pw_name
    control, *ports = free_ports(nodes + 1)
    lines = [NODE.format(i=i, host=host, port=port, cpus=cpus, gpus=gpus) for i, port in enumerate(ports, 1)]
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=host, port=control, user=user, folder=folder, nodes="\n".join(lines)))
    return conf


def free_ports(n: int) -> list[int]:
    """Return `n` free ports, below those that the kernel gives to connections: no other program gets one of them."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports: list[int] = []
    for port in random.sample(range(first // 2, first), 10 * n):
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            ports.append(port)
    return ports[:n]


def start(folder: Path, conf: Path, nodes: int) -> None:
    """Start munged, slurmctld and one slurmd per node, and wait until every node is idle."""
    # --force: munged otherwise refuses a folder that only its owner can enter.
    files = [f"--{name}-file={folder}/munged.{name}" for name in ("pid", "log", "seed")]
    files += [f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"]
    daemon(folder, conf, "munged", "--foreground", "--force", "--num-threads=2", *files)
    wait_until(lambda: (folder / "munge.socket").exists(), folder, "munged did not open its socket")
    daemon(folder, conf, "slurmctld", "-D", "-i")
    for i in range(1, nodes + 1):
        daemon(folder, conf, "slurmd", "-D", "-N", f"node{i}")
    wait_until(lambda: idle_nodes(conf) == nodes, folder, "not every node became idle")


def daemon(folder: Path, conf: Path, *command: str) -> None:
    """Start a daemon in the foreground, its words going to daemons.log."""
    # A separate session: Ctrl-C reaches the supervisor alone, which then ends everything in order.
    with (folder / "daemons.log").open("ab") as log:
        subprocess.Popen(
            command,
            env=environment(conf),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
        )


def environment(conf: Path) -> dict[str, str]:
    """Return the environment in which Slurm's commands talk to the cluster of `conf`."""
    foreign = ("SLURM", "SBATCH", "SINFO")  # Would speak of another cluster, or of the job that we are in.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"PATH": PATH, "SLURM_CONF": str(conf)}


def idle_nodes(conf: Path) -> int:
    """Return how many nodes are ready for jobs."""
    command = ["sinfo", "--noheader", "--Node", "--states=idle", "--responding"]
    answer = subprocess.run(command, env=environment(conf), capture_output=True, text=True)
    return len(answer.stdout.splitlines())


def wait_until(done: Callable[[], bool], folder: Path, complaint: str, seconds: float = 30) -> None:
    """Wait for `done`, or raise RuntimeError with the end of every log in `folder`."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            logs = {log.name: log.read_text(errors="replace")[-2000:] for log in folder.glob("*.log")}
            output = "\n".join(f"--- {name}\n{text}" for name, text in logs.items())
            raise RuntimeError(f"{complaint} within {seconds:.0f} s\n{output}")
        time.sleep(0.1)


def descendants() -> list[int]:
    """Return the living processes below this one."""
    parent = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It may end while we look.
            state, ppid = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parent[int(stat.parent.name)] = int(ppid)
    result, front = [], {os.getpid()}
    while front:
        front = {pid for pid, ppid in parent.items() if ppid in front}
        result += front
    return result


def end_descendants(patience: float = 1.5) -> None:
    """End every daemon, job step and job process: politely, then by force."""
    # The short patience is for jobs to clear up; slurmstepd and srun never end when asked.
    deadline = time.monotonic() + patience
    polite = True
    while alive := descendants():
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if polite else signal.SIGKILL)
        time.sleep(0.2)
        polite = time.monotonic() < deadline


def main() -> None:
    """Run a cluster until Ctrl-C; with `--until-eof` until whoever started it dies or closes the pipe."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=4, help="CPUs that each node reports")
    parser.add_argument("--gpus", type=int, default=2, help="GPUs that each node reports")
    parser.add_argument("--until-eof", action="store_true", help=argparse.SUPPRESS)
    choice = parser.parse_args()
    if missing():
        sys.exit(f"labs: error: {missing()}")
    for number in STOPPERS:
        signal.signal(number, lambda *_: sys.exit(0))
    with cluster(choice.nodes, choice.cpus, choice.gpus) as conf:
        print(f"export SLURM_CONF={conf}", flush=True)
        print(
            "Type this line in another terminal, then sinfo, sbatch ...; Ctrl-C here ends it all.",
            file=sys.stderr,
        )
        sys.stdin.read() if choice.until_eof else signal.pause()


if __name__ == "__main__":
    main()
