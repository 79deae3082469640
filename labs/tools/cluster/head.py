"""The first process of a cluster: makes the nodes, starts Slurm, and waits. When it ends, the kernel ends all the rest.

    python -m labs.tools.cluster.head SPEC     inside new namespaces: see lifetime.py
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from labs.run import cluster_state as state
from labs.run.errors import LabError
from labs.run.text import one_line
from labs.tools.cluster import enter, links, nodes, slurm

READY = "ready"


def main() -> None:
    """Make the cluster, report READY or the error, and wait for the end; end at once if the starter has gone."""
    spec = json.loads(sys.argv[1])
    recorded = threading.Event()
    threading.Thread(target=_hear_starter, args=[recorded], daemon=True).start()
    try:
        _make(spec)
    except (LabError, OSError) as problem:
        print(one_line(problem), flush=True)
        sys.exit(1)
    print(READY, flush=True)
    recorded.wait()
    for stream in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The first process inherits orphans; none is kept as a zombie.
    while True:
        signal.pause()


def _hear_starter(recorded: threading.Event) -> None:
    """Wait until the starter has recorded this cluster. If it is killed before, end: no command would know it."""
    if not sys.stdin.read(1):
        os._exit(1)
    recorded.set()


def _make(spec: dict) -> None:
    shared = [Path(path) for path in spec["shared"]]
    names = list(spec["cores"])
    (state.folder() / "hosts").write_text(nodes.hosts_file([*names, state.HEAD]))
    done = subprocess.run(["bash", "-ec", nodes.setup_script(state.HEAD, shared)], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise LabError(done.stderr.strip().splitlines()[-1])
    nodes.make_switch()
    holders = {name: nodes.start(name, shared) for name in names}
    for name, holder in holders.items():
        nodes.wait_until_set_up(name, holder)
        nodes.connect(name, holder.pid)
    os.environ[state.INSIDE] = "1"
    cluster = state.Cluster(
        pids={state.HEAD: 1} | {name: holder.pid for name, holder in holders.items()}, cores=spec["cores"],
        links=dict.fromkeys(names, state.Link()), cpus=spec["cpus"], gpus=spec["gpus"],
        slurm=spec["slurm"], owner=spec["owner"], shared=spec["shared"])
    enter.write_launch_files(cluster)
    state.write(cluster)
    if spec["slurm"]:  # Before the links are slow.
        slurm.start(cluster)
    links.set_links(bandwidth=spec["bandwidth"], latency=spec["latency"])


if __name__ == "__main__":
    main()
