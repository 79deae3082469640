"""Commands on a host of the cluster, from outside or from another host, in place of ssh.

    python -m labs.tools.cluster.enter HOST COMMAND ...     as `ssh HOST COMMAND ...` does: mpirun starts its daemons
                                                            with it
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from labs.run import cluster_state as state
from labs.run.errors import LabError
from labs.run.paths import ROOT, search_path

KEPT_BY_SSH = ("HOME", "USER", "LOGNAME", "LANG", "PATH")
"""The variables that a command gets through `ssh`."""
NAMESPACES = ("--net", "--uts", "--ipc", "--mount")


def command(cluster: state.Cluster, host: str, words: Sequence[str], cwd: Path | None = None,
            variables: Mapping[str, str] | None = None) -> list[str]:
    """Return the command line that runs a command on a host, with this process's environment.

    Args:
        cluster: The cluster.
        host: A node, or state.HEAD.
        words: The command.
        cwd: Its working directory; by default /.
        variables: Further environment variables.

    Raises:
        LabError: The cluster has ended, or it has no such host.
    """
    if host not in cluster.pids:
        raise LabError(f"unknown node {host!r}; there are: {', '.join(cluster.nodes)}")
    here, prefix = state.inside(), []
    if not here:
        if (head := state.head_process()) is None:
            raise LabError("the cluster has ended; start it again with `labs cluster up`")
        user = ["--user", "--preserve-credentials"] if cluster.owner else []
        # Neither `nsenter` nor the command outlives the process that started it, even if that is killed.
        prefix = ["setpriv", "--pdeathsig=KILL", "nsenter", f"--target={head.pid}", *user, *NAMESPACES, "--pid",
                  "setpriv", "--pdeathsig=TERM"]
    if host != (here or state.HEAD):
        prefix += ["nsenter", f"--target={cluster.pids[host]}", *NAMESPACES]
    if host in cluster.cores:
        prefix += ["taskset", "--cpu-list", ",".join(map(str, cluster.cores[host]))]
    settings = {state.FOLDER: str(state.folder()), state.INSIDE: "1", "PATH": search_path(), **(variables or {})}
    return [*prefix, "env", f"--chdir={cwd or '/'}", *(f"{name}={value}" for name, value in settings.items()), *words]


def run_script(cluster: state.Cluster, script: str) -> str:
    """Run lines of bash on the head until one fails, and return what they print.

    Raises:
        LabError: A line failed, or complained.
    """
    done = subprocess.run(command(cluster, state.HEAD, ["bash", "-ec", script]), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, start_new_session=True)
    if done.returncode or done.stderr:
        raise LabError(f"the kernel refused a part of the cluster: {(done.stderr.strip() or script).splitlines()[-1]}")
    return done.stdout


def as_owner(cluster: state.Cluster, words: Sequence[str]) -> list[str]:
    """Return the command line that runs a command as the cluster's owner, in a user namespace below the cluster's.

    Slurm needs this: as root, its daemons would drop root's groups, which a user namespace does not allow.

    Args:
        cluster: The cluster; root's own needs no change.
        words: The command.
    """
    if not cluster.owner:
        return [*words]
    user, group = cluster.owner
    return ["unshare", "--user", f"--map-user={user}", f"--map-group={group}", *words]


def launch_variables() -> dict[str, str]:
    """Return the environment variables with which mpirun starts workers on all nodes."""
    folder = state.folder()
    return {"PRTE_MCA_plm_ssh_agent": str(folder / "agent"),
            "PRTE_MCA_prte_default_hostfile": str(folder / "hostfile"),
            "PRTE_MCA_prte_if_include": state.SUBNET, "OMPI_MCA_btl_tcp_if_include": state.SUBNET}


def write_launch_files(cluster: state.Cluster) -> None:
    """Write mpirun's host file, and the agent that mpirun calls in place of ssh."""
    folder = state.folder()
    lines = (f"{node} slots={len(cores)}\n" for node, cores in cluster.cores.items())
    (folder / "hostfile").write_text("".join(lines))
    agent = folder / "agent"
    agent.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m labs.tools.cluster.enter "$@"\n')
    agent.chmod(0o755)


def main() -> None:
    """Replace this process by a command on a host; like `ssh`, pass on few environment variables."""
    host, *words = sys.argv[1:]
    kept = [f"{name}={os.environ[name]}" for name in KEPT_BY_SSH if name in os.environ]
    # env -i is last: it removes what `command` sets as well, except for what is named here.
    here = [f"{state.FOLDER}={state.folder()}", f"{state.INSIDE}=1"]
    argv = command(state.require(), host, ["env", "-i", *kept, *here, "bash", "-c", " ".join(words)])
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
