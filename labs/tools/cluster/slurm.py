"""Slurm on a cluster: munged, slurmctld on the head, and a slurmd on each node; keys, state and logs in its folder."""

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
from labs.tools.cluster import nodes

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "scontrol")
TASK_CPUS = 2
"""CPUs that the kit's jobs request per task. Slurm would keep a job pending forever if no node had as many."""
# config_overrides: a node has the CPUs written here, not those of the machine.
CONF = """\
ClusterName=labs
SlurmctldHost={head}({address})
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/slurm
SlurmctldPidFile={folder}/slurm/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/tmp/slurmd
SlurmdPidFile={folder}/slurm/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
SchedulerParameters=batch_sched_delay=0,bf_interval=1
GresTypes=gpu
{nodes}
{partitions}"""
PARTITIONS = {
    "lab": "PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE\n",
    "course": """\
PartitionName=batch Nodes=ALL Default=YES MaxTime=1-00:00:00
PartitionName=dgx Nodes={last} MaxTime=04:00:00
PartitionName=teaching Nodes=ALL MaxTime=00:30:00 MaxNodes=1 PriorityTier=2
"""}
"""Lines of slurm.conf by the choice of `labs cluster up --partitions`; {last} is the last node."""


def start(cluster: state.Cluster, cpus: int, gpus: int, partitions: str) -> None:
    """Start Slurm's daemons, with these CPUs and GPUs per node, and wait until every node is idle."""
    if absent := [program for program in PROGRAMS if not shutil.which(program, path=search_path())]:
        raise LabError(f"no {', '.join(absent)}; apt-get install slurm-wlm munge")
    folder = state.folder()
    _configure(folder, cluster, cpus, gpus, partitions)
    # --force: munged otherwise refuses a folder that only its owner can enter.
    files = [f"--{name}-file={folder}/slurm/munged.{name}" for name in ("pid", "log", "seed")]
    _start_daemon(cluster, state.HEAD, ["munged", "--foreground", "--force", "--num-threads=2", *files,
                                        f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"])
    _wait_until((folder / "munge.socket").exists)
    _start_daemon(cluster, state.HEAD, ["slurmctld", "-D", "-i"])
    for node in cluster.links:
        _start_daemon(cluster, node, ["slurmd", "-D", "-N", node])
    _wait_until(lambda: _idle_nodes(cluster) == len(cluster.links))


def variables() -> dict[str, str]:
    """Return the environment variables with which Slurm's commands speak to the cluster's Slurm, and no other's."""
    return {"SLURM_CONF": str(state.folder() / "slurm.conf")}


def _configure(folder: Path, cluster: state.Cluster, cpus: int, gpus: int, partitions: str) -> None:
    """Write slurm.conf, gres.conf and a munge key."""
    (folder / "slurm").mkdir()
    (folder / "munge.key").touch(mode=0o600)
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    devices = [folder / f"slurm/gpu{number}" for number in range(gpus)]
    for device in devices:
        device.touch()
    (folder / "gres.conf").write_text("".join(["AutoDetect=off\n", *(f"Name=gpu File={path}\n" for path in devices)]))
    lines = (f"NodeName={node} NodeHostname={node} NodeAddr={state.address(node)} CPUs="
             f"{cpus or max(len(cores), TASK_CPUS)} RealMemory=4000{f' Gres=gpu:{gpus}' * bool(gpus)}"
             for node, cores in cluster.cores.items())
    user = pwd.getpwuid(cluster.owner[0] if cluster.owner else 0).pw_name
    (folder / "slurm.conf").write_text(CONF.format(
        head=state.HEAD, address=state.address(state.HEAD), folder=folder, user=user, nodes="\n".join(lines),
        partitions=PARTITIONS[partitions].format(last=[*cluster.links][-1])))


def _start_daemon(cluster: state.Cluster, host: str, words: Sequence[str]) -> None:
    """Start a daemon that outlives this process."""
    background = ["bash", "-c", 'exec "$@" >>"$0" 2>&1 </dev/null &', str(state.folder() / "daemons.log")]
    command = nodes.command(cluster, host, [*background, *nodes.as_owner(cluster, words)], variables=variables())
    subprocess.run(command, check=True, start_new_session=True)


def _idle_nodes(cluster: state.Cluster) -> int:
    words = ["sinfo", "--noheader", "--Node", "--states=idle", "--responding", "--format=%N"]
    answer = subprocess.run(nodes.command(cluster, state.HEAD, words, variables=variables()), capture_output=True,
                            text=True, check=False)
    return len(set(answer.stdout.splitlines()))  # A node has a line for each of its partitions.


def _wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_done():
        if time.monotonic() > deadline:
            logs = "".join(path.read_text(errors="replace") for path in state.folder().glob("*.log"))
            raise LabError(f"Slurm did not start; its logs end with: {logs[-500:]}")
        time.sleep(0.05)
