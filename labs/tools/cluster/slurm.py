"""Slurm on a cluster: munged, slurmctld on the head, and a slurmd on each node; keys, state and logs in its folder."""

from __future__ import annotations

import dataclasses
import pwd
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from labs.run import cluster_state as state
from labs.run.errors import LabError
from labs.run.paths import search_path
from labs.tools.cluster import enter

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "scontrol")
TASK_CPUS = 2
"""CPUs that the kit's jobs request per task. Slurm would keep a job pending forever if no node had as many."""
# The spool is in each node's own /tmp, because the sockets in it need a short path.
# config_overrides: a node has the CPUs written here, not those of the machine. MinJobAge: scontrol shows finished jobs
# for a day.
CONF = """\
ClusterName=labs
SlurmctldHost={head}({address})
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/slurm
SlurmctldPidFile={folder}/slurm/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir=/tmp/slurmd
SlurmdPidFile={folder}/slurm/%n.pid
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
{gpus}{nodes}
{partitions}"""
PARTITIONS = {
    "lab": "PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE\n",
    "course": """\
PartitionName=batch Nodes=ALL Default=YES MaxTime=1-00:00:00
PartitionName=dgx Nodes={last} MaxTime=04:00:00
PartitionName=teaching Nodes=ALL MaxTime=00:30:00 MaxNodes=1 PriorityTier=2
"""}
"""Lines of slurm.conf by the choice of `labs cluster up --partitions`; {last} is the last node."""
SECONDS_TO_START = 30.0


def missing() -> str:
    """Return why Slurm cannot be started here, or an empty string."""
    absent = [program for program in PROGRAMS if not shutil.which(program, path=search_path())]
    return f"no {', '.join(absent)}; apt-get install slurm-wlm munge" if absent else ""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What Slurm assumes, whatever the machine has."""

    cpus: int = 0
    """CPUs of each node; 0: its cores, and at least those of a task of the kit's jobs."""
    gpus: int = 0
    """GPUs of each node."""
    partitions: str = "lab"
    """A key of PARTITIONS."""


def start(cluster: state.Cluster, settings: Settings) -> None:
    """Start Slurm's daemons, and wait until every node is idle.

    Raises:
        LabError: The daemons did not start in time; the message quotes the last line of each log.
    """
    folder = state.folder()
    _configure(folder, cluster, settings)
    # --force: munged otherwise refuses a folder that only its owner can enter.
    files = [f"--{name}-file={folder}/slurm/munged.{name}" for name in ("pid", "log", "seed")]
    _start_daemon(cluster, state.HEAD, ["munged", "--foreground", "--force", "--num-threads=2", *files,
                                        f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"])
    _wait_until((folder / "munge.socket").exists, "munged")
    _start_daemon(cluster, state.HEAD, ["slurmctld", "-D", "-i"])
    for node in cluster.nodes:
        _start_daemon(cluster, node, ["slurmd", "-D", "-N", node])
    _wait_until(lambda: _idle_nodes(cluster) == len(cluster.nodes), "Slurm")


def variables() -> dict[str, str]:
    """Return the environment variables with which Slurm's commands speak to the cluster's Slurm, and no other's."""
    return {"SLURM_CONF": str(state.folder() / "slurm.conf")}


def _configure(folder: Path, cluster: state.Cluster, settings: Settings) -> None:
    """Write slurm.conf, gres.conf and a munge key."""
    (folder / "slurm").mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    gres = f" Gres=gpu:{settings.gpus}" if settings.gpus else ""
    if settings.gpus:
        for number in range(settings.gpus):
            (folder / f"slurm/gpu{number}").touch()
        (folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={folder}/slurm/gpu[0-{settings.gpus - 1}]\n")
    lines = (f"NodeName={node} NodeHostname={node} NodeAddr={state.address(node)} "
             f"CPUs={settings.cpus or max(len(cores), TASK_CPUS)} RealMemory=4000{gres}"
             for node, cores in cluster.cores.items())
    user = pwd.getpwuid(cluster.owner[0] if cluster.owner else 0).pw_name
    (folder / "slurm.conf").write_text(CONF.format(
        head=state.HEAD, address=state.address(state.HEAD), folder=folder, user=user, nodes="\n".join(lines),
        gpus="GresTypes=gpu\n" * bool(gres), partitions=PARTITIONS[settings.partitions].format(last=cluster.nodes[-1])))


def _start_daemon(cluster: state.Cluster, host: str, words: Sequence[str]) -> None:
    """Start a daemon that outlives this process."""
    background = ["bash", "-c", 'exec "$@" >>"$0" 2>&1 </dev/null &', str(state.folder() / "daemons.log")]
    command = enter.command(cluster, host, [*background, *enter.as_owner(cluster, words)], variables=variables())
    subprocess.run(command, check=True, start_new_session=True)


def _idle_nodes(cluster: state.Cluster) -> int:
    words = ["sinfo", "--noheader", "--Node", "--states=idle", "--responding", "--format=%N"]
    answer = subprocess.run(enter.command(cluster, state.HEAD, words, variables=variables()), capture_output=True,
                            text=True, check=False)
    return len(set(answer.stdout.splitlines()))  # A node has a line for each of its partitions.


def _wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while not done():
        if time.monotonic() > deadline:
            logs = [path for path in sorted(state.folder().glob("*.log")) if path.stat().st_size]
            messages = "; ".join(f"{path.name}: {path.read_text(errors='replace').strip().splitlines()[-1]}"
                             for path in logs)
            raise LabError(f"{what} did not start within {SECONDS_TO_START:.0f} s: {messages or 'its logs are empty'}")
        time.sleep(0.05)
