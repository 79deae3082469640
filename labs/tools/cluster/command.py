"""Make a cluster inside this machine, with links whose bandwidth can be set."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from labs.run import cluster_state as state
from labs.run import terminal, usage
from labs.run.errors import LabError, quoted
from labs.run.paths import results_dir, search_path
from labs.run.text import plural
from labs.tools.cluster import enter, lifetime, links, slurm

DESCRIPTION = """\
Make a cluster inside this machine: nodes with their own host name, address,
/tmp and link. They share the file system, as the nodes of a cluster do, and
this machine's cores. The cluster stays up until `labs cluster down` or a
reboot. docs/laptop-cluster.md explains it.

  labs cluster up --nodes 4 --bandwidth 1gbit     start it
  labs cluster run lab11 --workers 4              train on it
  labs cluster link node2 --bandwidth 100mbit     slow one link down
  labs cluster link node2 --down                  cut it
  labs cluster shell node2                        look around on a node
  labs cluster sweep lab05 --preset cluster       lab 5's studies of links
  labs cluster down                               end it; nothing is left

With `up --slurm`, `labs cluster shell` is a login node: sbatch, squeue, scancel."""
RUN = """\
Run a lab on the cluster: mpirun, on the head, starts the workers. It fills a node's cores before it uses the next node.
Without --workers there is one worker per core of all nodes. `labs run LAB --help` shows the options."""
NEXT = """\
Next:
  labs cluster run lab11                    train on it
  labs cluster link --bandwidth 100mbit     slow its links down
  labs cluster down                         end it"""
NEXT_WITH_SLURM = """\
Next:
  labs cluster shell -- sbatch -N 2 jobs/lab10_caltech.sh     submit a job
  labs cluster shell -- labs queue                            when it starts, or why it waits
  labs cluster down                                           end it"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action")
    up = actions.add_parser("up", help="start a cluster")
    link = actions.add_parser("link", help="change links at any time, even during a run")
    _add_start(up)
    link.add_argument("node", nargs="*", metavar="NODE", help="node1, node2, ...; default: all")
    carrier = link.add_mutually_exclusive_group()
    carrier.add_argument("--down", action="store_true",
                         help="cut the link: it drops every packet, and the node's interface stays up")
    carrier.add_argument("--up", action="store_true", help="restore a link that was cut")
    for each in (up, link):
        each.add_argument("--bandwidth", metavar="B",
                          help="limit of each link, in each direction: 100mbit, 1gbit, unlimited")
    run = actions.add_parser("run", help="run a lab on it, as `labs run` does", description=RUN,
                             usage="labs cluster run LAB [OPTION ...]")
    sweep = actions.add_parser("sweep", help="run a lab's sweeps on it, as `labs sweep` does",
                               usage="labs cluster sweep LAB [OPTION ...]")
    shell = actions.add_parser("shell", help="open a shell on the head or a node, or run a command there",
                               usage="labs cluster shell [NODE] [-- COMMAND ...]")
    for each, words in ((run, "LAB ..."), (sweep, "LAB ..."), (shell, "NODE -- COMMAND ...")):
        each.add_argument("words", nargs=argparse.REMAINDER, metavar=words)
    actions.add_parser("status", help="show the nodes and their links")
    actions.add_parser("down", help="end the cluster and everything that runs on it; results stay")


def _add_start(up: argparse.ArgumentParser) -> None:
    """Add the options of `labs cluster up`."""
    up.add_argument("--nodes", type=usage.count, default=2, metavar="N", help="number of nodes; default: 2")
    up.add_argument("--cores", type=usage.count, default=1, metavar="N",
                    help="cores of each node; default: 1. Nodes share cores if this machine has too few")
    up.add_argument("--share", type=_folder, action="append", default=[], metavar="FOLDER",
                    help="folder below /tmp that all nodes see; the rest of /tmp is separate on each")
    up.add_argument("--slurm", action="store_true", help="run Slurm on it: slurmctld, and a slurmd on each node")
    up.add_argument("--cpus", type=usage.count, default=0, metavar="N",
                    help="CPUs per node that Slurm assumes; default: its cores, and at least the 2 that a task of the "
                         "kit's jobs requests. Tasks share the real cores")
    up.add_argument("--gpus", type=usage.count, default=0, metavar="N",
                    help="GPUs per node that Slurm assumes, so that it accepts GPU jobs; the nodes have no GPUs")
    up.add_argument("--partitions", choices=list(slurm.PARTITIONS), default="lab",
                    help="Slurm's partitions; default: lab, one without limits. course: batch (all nodes, one day), "
                         "dgx (the last node, 4 hours) and teaching (one node per job, 30 minutes, goes first)")


def _folder(text: str) -> Path:
    """Return the path of a folder that exists; an argparse type."""
    if not usage.path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a folder")
    return usage.path(text)


def main(args: argparse.Namespace) -> int:
    """Run an action and return the exit code."""
    action = {"up": _up, "link": _link, "run": _launch, "sweep": _launch,
              "shell": _shell, "status": _status, "down": _down}
    if args.action is None:
        args.parser.print_help()
        return 0
    return action[args.action](args)


def _up(args: argparse.Namespace) -> int:
    settings = slurm.Settings(args.cpus, args.gpus, args.partitions)
    if settings != slurm.Settings() and not args.slurm:
        raise LabError("--cpus, --gpus and --partitions are for Slurm; add --slurm")
    cluster = lifetime.up(args.nodes, args.cores, args.bandwidth or state.UNLIMITED, args.share,
                          settings if args.slurm else None)
    print(describe(cluster), NEXT_WITH_SLURM if args.slurm else NEXT, sep="\n")
    return 0


def _link(args: argparse.Namespace) -> int:
    changes = {"bandwidth": args.bandwidth} if args.bandwidth else {}
    if args.up or args.down:
        changes["up"] = args.up
    if not changes:
        raise LabError("say what to change: --bandwidth, --down or --up; `labs cluster status` shows the links")
    print(describe(links.set_links(args.node, changes)))
    return 0


def _status(args: argparse.Namespace) -> int:
    print(describe(state.require()))
    return 0


def _down(args: argparse.Namespace) -> int:
    print("the cluster has ended" if lifetime.down() else "no cluster was up")
    return 0


def _launch(args: argparse.Namespace) -> int:
    """Run `labs run` or `labs sweep` on the head: mpirun starts workers on all nodes."""
    cluster = state.require()
    _refuse_private_results(cluster, args.words)
    workers = sum(map(len, cluster.cores.values()))
    explicit = any(word.partition("=")[0] in ("--workers", "--help", "-h") for word in args.words)
    default = ["--workers", str(workers)] if args.action == "run" and args.words and not explicit else []
    words = [sys.executable, "-P", "-m", "labs", args.action, *args.words, *default]
    return _run_on(cluster, state.HEAD, words, enter.launch_variables())


def _refuse_private_results(cluster: state.Cluster, words: Sequence[str]) -> None:
    """Refuse a results folder that each host has for itself: the record would end with the cluster."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--results", type=usage.path, default=results_dir())
    folder = parser.parse_known_args(words)[0].results.resolve()
    seen_by_all = any(folder.is_relative_to(path) for path in cluster.shared)
    if folder.is_relative_to(lifetime.TMP) and not seen_by_all:
        raise LabError(f"results folder {folder}: each node has its own /tmp; choose a folder elsewhere, or start the "
                       f"cluster with --share {folder.parent if folder.parent != lifetime.TMP else folder}")


def _shell(args: argparse.Namespace) -> int:
    cluster, host, words = state.require(), state.HEAD, args.words
    if words and re.fullmatch(rf"node\d+|{state.HEAD}", words[0]):
        host, *words = words
    words = (words[1:] if words[:1] == ["--"] else words) or [os.environ.get("SHELL", "/bin/bash")]
    path = {"PATH": f"{Path(sys.executable).parent}:{search_path()}"}  # `labs` works there too.
    if cluster.slurm:
        # In a job, mpirun asks Slurm for the nodes: a host file would contradict it.
        return _run_on(cluster, host, enter.as_owner(cluster, words), slurm.variables() | path)
    return _run_on(cluster, host, words, enter.launch_variables() | path)


def _run_on(cluster: state.Cluster, host: str, words: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command on a host as if it were run here: it gets the terminal and the signals."""
    # The terminal sends these to the command as well. Neither this process nor `nsenter` may end before the command.
    by_terminal = [number for number in (signal.SIGINT, signal.SIGQUIT) if signal.getsignal(number) != signal.SIG_IGN]
    for number in by_terminal:
        signal.signal(number, signal.SIG_IGN)
    words = ["env", *(f"--default-signal={number:d}" for number in by_terminal), *words]
    process = subprocess.Popen(enter.command(cluster, host, words, Path.cwd(), variables))
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, _: _pass_on(process.pid, number))
    code = process.wait()
    return code if code >= 0 else 128 - code


def _pass_on(pid: int, number: int) -> None:
    """Send a signal to the command: `nsenter` is its parent and would not pass the signal on."""
    parent = psutil.Process(pid)
    for process in parent.children() or [parent]:
        process.send_signal(number)


def describe(cluster: state.Cluster) -> str:
    """Return a table of the nodes and their links."""
    rows = [("node", "address", "cores", "link")]
    rows += [(node, state.address(node), str(len(cluster.cores[node])), str(link))
             for node, link in cluster.links.items()]
    used = {core for cores in cluster.cores.values() for core in cores}
    shared = len(used) < sum(map(len, cluster.cores.values()))
    note = [f"the nodes share {plural(len(used), 'core')} of this machine"] * shared
    title = f"{plural(len(cluster.nodes), 'node')}{', with Slurm' * cluster.slurm}"
    return "\n".join([title, terminal.table(rows, left=True), *note])
