"""Make a cluster inside this machine, with links whose bandwidth can be set."""

import argparse
import functools
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from labs.run import cluster_state as state
from labs.run import command_line, terminal
from labs.run.errors import plural
from labs.run.paths import search_path
from labs.tools.cluster import nodes, slurm

DESCRIPTION = """\
Make a cluster inside this machine: nodes with their own host name, address and
link, which share files and cores. docs/laptop-cluster.md explains it.

  labs cluster up --nodes 4 --bandwidth 1gbit     start it
  labs cluster run lab11                          train on it
  labs cluster link node2 --bandwidth 100mbit     slow one link down; --down cuts it
  labs cluster shell node2                        look around on a node
  labs cluster down                               end it; nothing is left

With `up --slurm`, `labs cluster shell` is a login node: sbatch, squeue, scancel."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    parser.description, parser.formatter_class = DESCRIPTION, argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    up = actions.add_parser("up", help="start a cluster")
    _add_up(up)
    link = actions.add_parser("link", help="change links at any time, even during a run")
    link.add_argument("node", nargs="*", metavar="NODE", help="node1, node2, ...; default: all")
    link.add_argument("--down", action="store_const", dest="is_up", const=False, help="cut the link")
    link.add_argument("--up", action="store_const", dest="is_up", const=True, help="restore a link that was cut")
    for each in (up, link):
        each.add_argument("--bandwidth", metavar="B", help="of each link and direction: 100mbit, 1gbit, unlimited")
    for action, usage_words, text in (
            ("run", "LAB [OPTION ...]", "run a lab on it; the default is one worker per core of all nodes"),
            ("sweep", "LAB [OPTION ...]", "run a lab's sweeps on it, as `labs sweep` does"),
            ("shell", "[NODE] [-- COMMAND ...]", "open a shell on the head or a node, or run a command there")):
        each = actions.add_parser(action, help=text, description=text, usage=f"labs cluster {action} {usage_words}")
        each.add_argument("words", nargs=argparse.REMAINDER, metavar=usage_words)
    actions.add_parser("status", help="show the nodes and their links")
    actions.add_parser("down", help="end the cluster and everything that runs on it; results stay")


def _add_up(up: argparse.ArgumentParser) -> None:
    """Add the options of `labs cluster up`."""
    up.add_argument("--nodes", type=command_line.count, default=2, metavar="N", help="number of nodes; default: 2")
    up.add_argument("--cores", type=command_line.count, default=1, metavar="N", help="cores of each node; default: 1")
    up.add_argument("--slurm", action="store_true", help="run Slurm on it: slurmctld, and a slurmd on each node")
    up.add_argument("--cpus", type=command_line.count, default=0, metavar="N",
                    help="CPUs per node that Slurm assumes; default: its cores, and at least 2")
    up.add_argument("--gpus", type=command_line.count, default=0, metavar="N", help="GPUs per node that Slurm assumes")
    up.add_argument("--partitions", choices=list(slurm.PARTITIONS), default="lab",
                    help="Slurm's partitions; default: lab, one without limits. course: lab 11's three")


def main(args: argparse.Namespace) -> None:
    """Run an action; `run`, `sweep` and `shell` replace this process."""
    if args.action == "up":
        start_slurm = functools.partial(slurm.start, cpus=args.cpus, gpus=args.gpus, partitions=args.partitions)
        print(describe(nodes.start(args.nodes, args.cores, args.bandwidth or state.UNLIMITED,
                                   start_slurm if args.slurm else None)))
        print(f"next: labs cluster {'shell' if args.slurm else 'run lab11'}; labs cluster down ends it")
    elif args.action == "link":
        changes = {"bandwidth": args.bandwidth, "up": args.is_up}
        print(describe(nodes.set_links(args.node, {name: value for name, value in changes.items()
                                                   if value is not None})))
    elif args.action == "status":
        print(describe(state.require()))
    elif args.action == "down":
        print("the cluster has ended" if nodes.end() else "no cluster was up")
    elif args.action == "shell":
        _open_shell(state.require(), args.words)
    else:  # mpirun starts workers on all nodes. A later --workers overrides this one.
        cluster = state.require()
        workers = ["--workers", str(sum(map(len, cluster.cores.values())))] if args.action == "run" else []
        words = [args.action, *args.words[:1], *workers, *args.words[1:]]
        _run_on(cluster, state.HEAD, [sys.executable, "-P", "-m", "labs", *words], nodes.launch_variables())


def _open_shell(cluster: state.Cluster, words: Sequence[str]) -> NoReturn:
    host = state.HEAD
    if words and re.fullmatch(rf"node\d+|{state.HEAD}", words[0]):
        host, *words = words
    words = (words[1:] if words[:1] == ["--"] else words) or [os.environ.get("SHELL", "/bin/bash")]
    variables = nodes.launch_variables()
    if cluster.slurm:  # In a job, mpirun asks Slurm for the nodes: a host file would contradict it.
        words, variables = nodes.as_owner(cluster, words), slurm.variables()
    path = {"PATH": f"{Path(sys.executable).parent}:{search_path()}"}  # `labs` works there too.
    _run_on(cluster, host, words, variables | path)


def _run_on(cluster: state.Cluster, host: str, words: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Replace this process by a command on a host, which gets the terminal and its signals."""
    # The terminal also sends these to `nsenter`, which may not end before the command.
    by_terminal = [number for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
                   if signal.getsignal(number) != signal.SIG_IGN]
    words = ["env", *(f"--default-signal={number:d}" for number in by_terminal), *words]
    sys.stdout.flush()
    os.execvp("env", ["env", *(f"--ignore-signal={number:d}" for number in by_terminal),
                      *nodes.command(cluster, host, words, Path.cwd(), variables)])


def describe(cluster: state.Cluster) -> str:
    """Return a table of the nodes and their links."""
    rows = [(node, state.address(node), str(len(cluster.cores[node])), str(link))
            for node, link in cluster.links.items()]
    cores = [core for each in cluster.cores.values() for core in each]
    used = len(set(cores))
    note = f"\nthe nodes share {plural(used, 'core')} of this machine" * (used < len(cores))
    table = terminal.table([("node", "address", "cores", "link"), *rows], left=True)
    return f"{plural(len(rows), 'node')}{', with Slurm' * cluster.slurm}\n{table}{note}"
