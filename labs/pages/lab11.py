"""Page 11: large batches; nodes whose computation is a sleep; a queue on a real Slurm."""

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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from labs.pages import plots
from labs.pages.plots import Runs
from labs.results import noise, records, reference, scaling
from labs.run import cluster_state
from labs.run.cluster_state import bits_per_second, format_bandwidth
from labs.run.errors import ERROR_PREFIX, LabError
from labs.run.paths import ROOT, python_path, results_dir

Plan = list[dict[str, Any]]
NODES = 4
JOBS = {"A": ("batch", 3, 10), "B": ("batch", 4, 20), "C": ("dgx", 1, 15), "D": ("batch", 1, 30),
        "E": ("batch", 1, 5), "F": ("teaching", 1, 60)}
"""The six jobs of the page: partition, nodes, and time limit in minutes."""
SLEEPS = {"E": 20}
"""Seconds that a job really runs; the others sleep until they are cancelled."""
SAVED = reference.FOLDER / "laptop-cluster" / "queue.json"
"""Slurm's answers for machines without Slurm; notebooks/queue_answers.py writes it."""
FORMAT = "%j|%i|%P|%D|%l|%T|%r|%S|%N|%Y"
SETTLED = 12.0
"""Seconds after which any reasons are accepted; job E runs for longer."""


def batch_table(runs: Runs) -> pd.DataFrame:
    """Return a row per run of the sweep "large": workers that its batch stands for, seed, accuracies."""
    rows = [{"workers": run["layout"]["global_batch_size"] // run["config"]["base_batch_size"],
             "seed": run["config"]["seed"], "epochs": run["config"]["epochs"], "images": run["history"][-1]["images"],
             "test_images": run["metrics"]["test_images"], "validation": run["metrics"]["best_val_accuracy"],
             "test": run["metrics"]["test_accuracy_at_best"]}
            for run in runs if "test_accuracy_at_best" in run["metrics"]]
    return pd.DataFrame(rows).sort_values(["workers", "seed"], ignore_index=True)


def batch_figure(table: pd.DataFrame) -> Figure:
    """Draw validation and test accuracy of `batch_table` over the workers; bars are two standard errors."""
    (axes,) = plots.panels(1, 3.6, 7.2)
    places = {workers: place for place, workers in enumerate(sorted(table["workers"].unique()))}
    theirs = pd.read_csv(ROOT / "data/reference/lab02_mnist_accuracy.csv").query("nodes == 2 and steps.isna()")
    theirs = theirs[theirs["workers"].isin(places)].assign(test=theirs["test_accuracy"], test_images=10_000)
    axes.plot(table["workers"].map(places) - 0.12, table["validation"], "o", color="0.6", markersize=5,
              label="best validation accuracy")
    for rows, shift, colour, marker, label in (
            (table, 0, plots.COLOURS[0], "o", "test, that epoch"),
            (theirs, 0.12, "black", "x", "report M, workers as it\nstates them")):
        errors = 2 * np.sqrt(rows["test"] * (1 - rows["test"]) / rows["test_images"])
        axes.errorbar(rows["workers"].map(places) + shift, rows["test"], errors, fmt=marker, color=colour, capsize=3,
                      markersize=5, label=label)
    axes.set(xlabel="workers (global batch / 128)", ylabel="accuracy (share right)")
    axes.set_xticks(list(places.values()), [str(workers) for workers in places])
    return plots.finish(axes)


def sleep_table(runs: Runs) -> pd.DataFrame:
    """Return a row per run of the study "sleep", link and kind of scaling: nodes, seconds of the step, speedup."""
    table = pd.DataFrame([{"nodes": run["layout"]["size"], "seed": run["config"]["seed"]} | row
                          for run in runs for row in run["tables"]["sleep"]])
    # One node uses no link, so all its runs of a kind are one baseline.
    one = table[table["nodes"] == 1].groupby("kind")["step_seconds"].mean()
    images = np.where(table["kind"] == "weak", table["nodes"], 1)
    return table.assign(link=table["bandwidth"].map(bits_per_second),
                        speedup=images * table["kind"].map(one) / table["step_seconds"])


def sleep_speedups(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the mean speedup of `sleep_table` on 8 nodes with its 95 % interval over the runs, by link."""
    chosen = table[(table["kind"] == kind) & (table["nodes"] == 8)].sort_values("link", kind="stable")
    links = chosen.groupby("bandwidth", sort=False)["speedup"]
    ends = pd.DataFrame({link: noise.mean_interval(same) for link, same in links}, ["speedup_low", "speedup_high"]).T
    return ends.assign(speedup=links.mean())


def sleep_figure(table: pd.DataFrame, predicted: Callable[[str, float, float], float]) -> Figure:
    """Draw the speedup over nodes in weak and in strong scaling; lines are predicted, each point is a run.

    `predicted(kind, nodes, bits per second)` returns a speedup.
    """
    weak, strong = plots.panels(2, 4, sharey=True)
    line = sorted(table["nodes"].unique())
    for axes, kind in ((weak, "weak"), (strong, "strong")):
        of_kind = table[table["kind"] == kind].sort_values("link", kind="stable")
        for (link, points), colour in zip(of_kind.groupby("bandwidth", sort=False), plots.COLOURS, strict=False):
            name, bits = format_bandwidth(link), bits_per_second(link)
            axes.plot(line, [predicted(kind, n, bits) for n in line], color=colour, label=f"{name}, predicted")
            axes.plot(points["nodes"], points["speedup"], "o", color=colour, markersize=4, label=f"{name}, a run")
        axes.plot(line, line, ":", color="0.4", label="ideal")
        axes.axhline(1, color="0.4", linewidth=0.8)
        plots.set_log_ticks(axes, "x", [1, 2, 4, 8])
        plots.set_log_ticks(axes, "y", [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 4, 8])
        axes.set(title=f"{kind} scaling", xlabel="nodes, one worker each")
    weak.set_ylabel("speedup over one node")
    return plots.finish_below(weak, 4)


class Cluster:
    """Nodes, links and a Slurm inside this machine, for a page; `missing` says why there are none."""

    def __init__(self) -> None:
        """Start it; it ends with this process."""
        self._folder = Path(tempfile.mkdtemp(prefix="labs-page-")) / "cluster"
        self.missing = ""
        atexit.register(self.stop)
        try:
            self.labs("up", "--nodes", NODES, "--bandwidth", "1gbit", "--slurm", "--partitions", "course")
        except LabError as problem:
            self.missing = str(problem)

    def __repr__(self) -> str:
        return f"no cluster here ({self.missing}): the page shows saved runs" if self.missing else self.labs("status")

    def labs(self, *words: object) -> str:
        """Run `labs cluster ...` and return what it prints."""
        done = subprocess.run([sys.executable, "-P", "-m", "labs", "cluster", *map(str, words)], cwd=ROOT, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, check=False,
                              env=os.environ | {cluster_state.FOLDER: str(self._folder), "PYTHONPATH": python_path()})
        if done.returncode:
            raise LabError((done.stderr or done.stdout).strip().rpartition("\n")[2].removeprefix(ERROR_PREFIX))
        return done.stdout.rstrip("\n")

    def shell(self, command: str) -> str:
        """Run a command on the head, as on a login node, and return what it prints."""
        return self.labs("shell", "--", "bash", "-c", command)

    def train(self, lab: str, link: str, *options: object) -> dict[str, Any]:
        """Train a lab on two nodes whose links have a bandwidth, and return its record.

        Without a cluster, return a saved record of weak scaling with the lab's default options.
        """
        if self.missing:
            return next(run for run in reference.read_all("laptop-cluster", lab)
                        if run["history"] and run["machine"]["link"] == link and run["layout"]["nodes"] == 2
                        and run["layout"]["global_batch_size"] == 64)
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
        self._cluster, self._began = cluster, time.monotonic()
        self.answers: dict[str, Any] = json.loads(SAVED.read_text()) if cluster.missing else {"advice": {}}
        if not cluster.missing:
            commands = [line.replace("sbatch", "sbatch --parsable --output=/dev/null", 1) for line in job_commands()]
            self._ids = dict(zip(JOBS, cluster.shell("\n".join(commands)).split(), strict=True))
            # Any change has Slurm look at the queue again: a burst of jobs may leave the first one as "Priority".
            cluster.shell(f"sleep 1; scontrol update jobid={self._ids['F']} comment=again || true")
            self.answers["before"] = self._wait(lambda plan: all(  # A job runs, starts later, or never.
                row["state"] == "RUNNING" or row["reason"].startswith("Partition") or (row["start"] or 0) > 1
                for row in plan) and (any(row["reason"] == "Resources" for row in plan)
                                      or time.monotonic() > self._began + SETTLED))
        self.before = pd.DataFrame(self.answers["before"]).set_index("job")

    def shorten(self, name: str, minutes: int) -> pd.DataFrame:
        """Give a job a shorter limit, and return Slurm's new plan; without Slurm the saved one, of D and 5 minutes."""
        if not self._cluster.missing:
            self._cluster.shell(f"scontrol update jobid={self._ids[name]} timelimit={minutes}")
            old = self.before.loc[name, "start"]
            self.answers["after"] = self._wait(lambda plan: any(
                row["job"] == name and row["start"] is not None and row["start"] < old - 1 for row in plan))
        return pd.DataFrame(self.answers["after"]).set_index("job")

    def started_after(self, name: str) -> float:
        """Wait until a job runs, and return the seconds since the jobs were submitted."""
        if not self._cluster.missing:
            self._wait(lambda plan: any(row["job"] == name and row["state"] == "RUNNING" for row in plan))
            self.answers["seconds"] = time.monotonic() - self._began
        return self.answers["seconds"]

    def advice(self, *names: str) -> str:
        """Return what `labs queue` says of some jobs."""
        if not self._cluster.missing:
            self.answers["advice"] |= {name: self._cluster.shell(f"labs queue {self._ids[name]}") for name in names}
        lines = [line for name in names for line in self.answers["advice"][name].splitlines()]
        return "\n".join(textwrap.fill(line, 100, subsequent_indent=" " * 8) for line in lines)

    def _wait(self, is_complete: Callable[[Plan], bool]) -> Plan:
        """Return the queue once it is complete and two readings agree."""
        last, deadline = None, time.monotonic() + 60
        while time.monotonic() < deadline:
            plan = _parse(self._cluster.shell(f"squeue --noheader --format='{FORMAT}'"))
            if is_complete(plan) and plan == last:
                return plan
            last = plan
            time.sleep(0.5)
        raise LabError("Slurm has not planned the jobs in 60 s; look at `labs cluster shell -- squeue`")


def job_commands() -> list[str]:
    """Return the command that submits each of the six jobs."""
    return [f"sbatch --job-name={name} --partition={partition} --nodes={nodes} --time={limit} --exclusive "
            f"--wrap='sleep {SLEEPS.get(name, 600)}'" for name, (partition, nodes, limit) in JOBS.items()]


def _parse(text: str) -> Plan:
    """Return the rows of squeue by job name; `start` is in minutes after job A's, None for a job that never starts."""
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == FORMAT.count("|")]
    starts = {row[0]: np.datetime64(row[7]) for row in rows if row[7][:1].isdigit()}
    first = starts.get("A")
    plan = []
    for name, _, partition, nodes, limit, state, reason, _, here, planned in sorted(rows):
        start = None if first is None or name not in starts else float((starts[name] - first) / np.timedelta64(1, "m"))
        minutes = sum(int(part) * 60**power for power, part in enumerate(reversed(limit.split(":")))) / 60
        plan.append({"job": name, "partition": partition, "nodes": int(nodes), "limit": minutes, "state": state,
                     "reason": reason, "start": start, "where": here or planned.replace("(null)", "")})
    return plan


def plan_figure(plans: Mapping[str, pd.DataFrame], nodes: int = NODES) -> Figure:
    """Draw plans of a queue as nodes over time, a panel each; a job is a box from its start to its limit."""
    row = plots.panels(len(plans), 1.2 + 0.45 * nodes, sharey=True, sharex=True)
    for axes, (title, plan) in zip(row, plans.items(), strict=True):
        colours = dict(zip(plan.index, plots.COLOURS, strict=False))
        for name, start, end, node in _boxes(plan, nodes):
            axes.barh(node, end - start, 0.86, start, color=colours[name], **plots.EDGE)
            axes.text((start + end) / 2, node, name, ha="center", va="center", fontsize=9)
        axes.set(title=title, xlabel="minutes after the first start")
    row[0].set_yticks(range(nodes), [f"node {node}" for node in range(1, nodes + 1)])
    row[0].invert_yaxis()
    return plots.finish(row[0])


def _boxes(plan: pd.DataFrame, nodes: int) -> list[tuple[str, float, float, int]]:
    """Return name, start, end and node of each box; a job that Slurm has not placed gets free nodes."""
    boxes: list[tuple[str, float, float, int]] = []
    for name, job in plan.dropna(subset=["start"]).sort_values("start", kind="stable").iterrows():
        start, end = job["start"], job["start"] + job["limit"]
        free = [node for node in range(nodes) if not any(
            there == node and begin < end - 1.5 and start < over - 1.5 for _, begin, over, there in boxes)]
        own = [node - 1 for first, last in re.findall(r"(\d+)(?:-(\d+))?", job.get("where", ""))  # As in node[1-2,4].
               for node in range(int(first), int(last or first) + 1)]
        boxes += [(str(name), start, end, node) for node in own or free[:job["nodes"]]]
    return boxes


def training_runs(runs: Runs) -> Runs:
    """Return lab 11's records of training, without its study of sleeps (until November 2026 also one of links)."""
    return [run for run in runs if not {"cells", "sleep"} & {*run.get("tables", {})}]


def summary(runs: Runs) -> str:
    """Return the speedups over nodes as text, with a note if the nodes shared one machine."""
    runs = training_runs(runs)
    shared = any(run["metrics"]["machines"] != run["layout"]["nodes"] for run in runs)
    note = ("Nodes on one machine share its cores: the accuracies are valid, the speeds are not those of separate\n"
            "machines. Only the links of `labs cluster` have a bandwidth.\n\n" * shared)
    return note + scaling.summary(runs)
