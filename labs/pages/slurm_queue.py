"""A queue on a real Slurm: `labs cluster` for a page, six jobs that wait, and Slurm's plan for them.

    python -m labs.pages.slurm_queue      runs the jobs, and saves Slurm's answers for machines without Slurm
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.pages import plots
from labs.results import records, reference
from labs.run import atomic, cluster_state
from labs.run.errors import ERROR_PREFIX, LabError
from labs.run.paths import ROOT, python_path, results_dir

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NODES = 4
JOBS = {"A": ("batch", 3, 10), "B": ("batch", 4, 20), "C": ("dgx", 1, 15), "D": ("batch", 1, 30),
        "E": ("batch", 1, 5), "F": ("teaching", 1, 60)}
"""The six jobs of lab 11: partition, nodes, and time limit in minutes."""
SLEEPS = {"E": 20}
"""Seconds that a job really runs; the others sleep until they are cancelled."""
KEPT = reference.FOLDER / "laptop-cluster" / "queue.json"
FORMAT = "%j|%i|%P|%D|%l|%T|%r|%S|%N|%Y"
PATIENCE = 60.0
SETTLED = 12.0
"""Seconds after which any reasons are accepted; job E runs for longer."""


class Cluster:
    """Nodes, links and a Slurm inside this machine, for a page; `missing` says why there are none."""

    def __init__(self, nodes: int = NODES, bandwidth: str = "1gbit"):
        """Start it; it ends with this process."""
        self._folder = Path(tempfile.mkdtemp(prefix="labs-page-")) / "cluster"
        self.missing = ""
        atexit.register(self.stop)
        try:
            self.labs("up", "--nodes", nodes, "--bandwidth", bandwidth, "--slurm", "--partitions", "course")
        except LabError as problem:
            self.missing = str(problem)

    def __repr__(self) -> str:
        return f"no cluster here ({self.missing}): the page shows saved runs" if self.missing else self.labs("status")

    def labs(self, *words: object) -> str:
        """Run `labs cluster ...` and return what it prints.

        Raises:
            LabError: The command failed.
        """
        done = subprocess.run([sys.executable, "-P", "-m", "labs", "cluster", *map(str, words)], cwd=ROOT, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, check=False,
                              env=os.environ | {cluster_state.FOLDER: str(self._folder), "PYTHONPATH": python_path()})
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["it failed and printed nothing"]
            raise LabError(lines[-1].removeprefix(ERROR_PREFIX))
        return done.stdout.rstrip("\n")

    def shell(self, command: str) -> str:
        """Run a command on the head, as on a login node, and return what it prints."""
        return self.labs("shell", "--", "bash", "-c", command)

    def train(self, lab: str, link: str, *options: object) -> dict[str, Any]:
        """Train a lab on two nodes whose links have a bandwidth, and return its record.

        Without a cluster, return a saved record of weak scaling with the lab's default options.
        """
        if self.missing:
            for run in reference.read_all("laptop-cluster", lab):
                if (run["history"] and run["machine"]["link"] == link and run["layout"]["nodes"] == 2
                        and run["layout"]["global_batch_size"] == 64):
                    return run
            raise LabError(f"there is no saved run of two nodes over links of {link}; choose 100mbit or 1gbit")
        self.labs("link", "--bandwidth", link)
        name = f"two-nodes-{link}-{time.strftime('%H%M%S')}"
        self.labs("run", lab, "--workers", 2, "--name", name, *options)
        return records.read(results_dir() / lab / name)

    def stop(self) -> None:
        """End the cluster and all that runs on it."""
        atexit.unregister(self.stop)
        if not self.missing:
            self.labs("down")
            self.missing = "it has been stopped"
        shutil.rmtree(self._folder.parent, ignore_errors=True)


class Queue:
    """Six jobs in the queue of a cluster with the partitions "course", or a saved record of such a queue."""

    def __init__(self, cluster: Cluster):
        """Submit the jobs, and wait until Slurm has a plan for each that can start."""
        self._cluster = cluster
        self._kept: dict[str, Any] = json.loads(atomic.read_text(KEPT)) if cluster.missing else {}
        self._ids: dict[str, str] = {}
        self._began = time.monotonic()
        if not cluster.missing:
            answers = cluster.shell("\n".join(line.replace("sbatch", "sbatch --parsable --output=/dev/null", 1)
                                              for line in commands())).split()
            self._ids = dict(zip(JOBS, answers, strict=True))
            # Any change has Slurm look at the queue again: a burst of jobs may leave the first one as "Priority".
            cluster.shell(f"sleep 1; scontrol update jobid={answers[-1]} comment=again || true")
        self.before = self._planned("before", lambda plan: all(map(_is_planned, plan)) and (
            any(row["reason"] == "Resources" for row in plan) or time.monotonic() > self._began + SETTLED))

    def shorten(self, name: str, minutes: int) -> pd.DataFrame:
        """Give a job a shorter limit, and return Slurm's new plan; without Slurm the saved one, of D and 5 minutes."""
        if not self._cluster.missing:
            self._cluster.shell(f"scontrol update jobid={self._ids[name]} timelimit={minutes}")
        old = self.before.loc[name, "start"]
        return self._planned("after", lambda plan: any(
            row["job"] == name and row["start"] is not None and row["start"] < old - 1 for row in plan))

    def started_after(self, name: str) -> float:
        """Wait until a job runs, and return the seconds since the jobs were submitted."""
        if not self._cluster.missing:
            _await(self._cluster, lambda plan: any(row["job"] == name and row["state"] == "RUNNING" for row in plan))
            self._kept["seconds"] = time.monotonic() - self._began
        return self._kept["seconds"]

    def advice(self, *names: str) -> str:
        """Return what `labs queue` says of some jobs."""
        kept = self._kept.setdefault("advice", {})
        if not self._cluster.missing:
            kept |= {name: self._cluster.shell(f"labs queue {self._ids[name]}") for name in names}
        lines = [line for name in names for line in kept.get(name, f"{name}: no saved answer of Slurm").splitlines()]
        return "\n".join(textwrap.fill(line, 100, subsequent_indent=" " * 8) for line in lines)

    def cancel(self) -> None:
        """Cancel the jobs."""
        if not self._cluster.missing:
            self._cluster.shell("scancel --me")

    def keep(self, path: Path = KEPT) -> None:
        """Write what Slurm has answered, for machines without a Slurm."""
        atomic.write_json(path, self._kept)

    def _planned(self, moment: str, is_complete: Callable[[list[dict[str, Any]]], bool]) -> pd.DataFrame:
        import pandas as pd

        if not self._cluster.missing:
            self._kept[moment] = _await(self._cluster, is_complete)
        return pd.DataFrame(self._kept[moment]).set_index("job")


def _await(cluster: Cluster, is_complete: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """Return the queue once it is complete and two readings agree.

    Raises:
        LabError: The queue is not complete after PATIENCE seconds.
    """
    last, deadline = None, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        plan = _read(cluster.shell(f"squeue --noheader --format='{FORMAT}'"))
        if is_complete(plan) and plan == last:
            return plan
        last = plan
        time.sleep(0.5)
    raise LabError(f"Slurm has not planned the jobs in {PATIENCE:.0f} s; look at `labs cluster shell -- squeue`")


def _is_planned(row: Mapping[str, Any]) -> bool:
    """Return whether a job runs, has a later start, or can never start."""
    return row["state"] == "RUNNING" or row["reason"].startswith("Partition") or (row["start"] or 0) > 1


def commands() -> list[str]:
    """Return the command that submits each of the six jobs."""
    return [f"sbatch --job-name={name} --partition={partition} --nodes={nodes} --time={limit} --exclusive "
            f"--wrap='sleep {SLEEPS.get(name, 600)}'" for name, (partition, nodes, limit) in JOBS.items()]


def _read(text: str) -> list[dict[str, Any]]:
    """Return the rows of squeue by job name; `start` is in minutes after job A's, None for a job that never starts."""
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == FORMAT.count("|")]
    starts = {row[0]: np.datetime64(row[7]) for row in rows if row[7][:1].isdigit()}
    first = starts.get("A")
    plan = []
    for name, _, partition, nodes, limit, state, reason, _, here, planned in sorted(rows):
        start = None if first is None or name not in starts else float((starts[name] - first) / np.timedelta64(1, "m"))
        plan.append({"job": name, "partition": partition, "nodes": int(nodes), "limit": _minutes(limit), "state": state,
                     "reason": reason, "start": start, "where": here or planned.replace("(null)", "")})
    return plan


def _minutes(limit: str) -> float:
    """Return a time limit of less than a day, such as "1:00:00" or "5:00", in minutes."""
    return sum(int(part) * 60**power for power, part in enumerate(reversed(limit.split(":")))) / 60


def planned_starts(jobs: Sequence[tuple[int, int]], nodes: int) -> list[int]:
    """Return each job's start by the rule of a queue with backfill: the first in line is served first.

    In the order of the queue, each job gets the earliest start at which enough nodes stay free until its limit, given
    the jobs before it. So a job starts before an earlier one only if it delays none.

    Args:
        jobs: Nodes and time limit of each job, all submitted at time 0.
        nodes: Nodes of the cluster.
    """
    placed: list[tuple[int, int, int]] = []
    for wanted, limit in jobs:
        candidates = sorted({0, *(end for _, end, _ in placed)})
        start = next(time for time in candidates if all(
            sum(count for begin, end, count in placed if begin <= moment < end) + wanted <= nodes
            for moment in (time, *(begin for begin, _, _ in placed if time < begin < time + limit))))
        placed.append((start, start + limit, wanted))
    return [start for start, _, _ in placed]


def rows(jobs: Mapping[str, tuple[int, int]], starts: Sequence[float]) -> pd.DataFrame:
    """Return jobs with their starts as `plan_figure` takes them.

    Args:
        jobs: Nodes and time limit of each job, by name.
        starts: In minutes.
    """
    import pandas as pd

    table = [{"job": name, "nodes": nodes, "limit": limit, "start": start}
             for (name, (nodes, limit)), start in zip(jobs.items(), starts, strict=True)]
    return pd.DataFrame(table).set_index("job")


def plan_figure(plans: Mapping[str, pd.DataFrame], nodes: int = NODES) -> Figure:
    """Draw plans of a queue as nodes over time, a panel each; a job is a box from its start to its limit.

    Args:
        plans: By title: tables with `nodes`, `limit` and `start` in minutes, by job. A job without a start is left out.
        nodes: Nodes of the cluster.
    """
    figure = plots.empty(9, 1.2 + 0.45 * nodes)
    panels = figure.subplots(1, len(plans), sharey=True, sharex=True, squeeze=False)[0]
    for axes, (title, plan) in zip(panels, plans.items(), strict=True):
        busy: list[tuple[float, float, int]] = []  # Start, end and node.
        for name, job in plan.dropna(subset=["start"]).sort_values("start", kind="stable").iterrows():
            start, end = job["start"], job["start"] + job["limit"]
            free = [node for node in range(nodes) if not any(
                there == node and begin < end - 1.5 and start < over - 1.5 for begin, over, there in busy)]
            own = _nodes(job.get("where", "")) or free[:job["nodes"]]
            colour = plots.COLOURS[list(plan.index).index(name) % len(plots.COLOURS)]
            for node in own:
                axes.barh(node, end - start, 0.86, start, color=colour, edgecolor="black", linewidth=0.6)
                axes.text((start + end) / 2, node, str(name), ha="center", va="center", fontsize=9)
            busy += [(start, end, node) for node in own]
        axes.set(title=title, xlabel="minutes after the first start")
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(nodes), [f"node {node}" for node in range(1, nodes + 1)])
    panels[0].invert_yaxis()
    return figure


def _nodes(where: str) -> list[int]:
    """Return the numbers, from 0, of nodes that Slurm writes as "node[1-2,4]"."""
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", where):
        numbers += range(int(first) - 1, int(last or first))
    return numbers


if __name__ == "__main__":
    with_slurm = Cluster()
    if with_slurm.missing:
        raise SystemExit(f"{ERROR_PREFIX}{with_slurm.missing}")
    queue = Queue(with_slurm)
    queue.advice("D", "F")
    queue.shorten("D", 5)
    queue.started_after("D")
    queue.cancel()
    queue.keep()
    with_slurm.stop()
