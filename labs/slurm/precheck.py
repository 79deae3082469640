"""Looks at a job before it is submitted: what sbatch would take and then leave waiting, or fail without a word."""

from __future__ import annotations

import getpass
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from labs.run import catalogue
from labs.slurm import site
from labs.slurm.sbatch_parser import MARK, VALUED, Request, header, read


def check(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what is wrong with a job that is not submitted yet, and, if nothing is, where and when it would start."""
    asked = read(words)
    rules, nodes = site.partitions(), site.nodes()
    problems = [*_misplaced(asked), *_gpus(asked), *_folders(asked), *_late(asked), *_signal(asked),
                *_partition(asked, rules, nodes)]
    tried = site.trial(*words)
    if tried.problem and not problems:
        problems = [_explained(tried.problem)]
    return problems, [] if problems else _summary(asked, tried, words, nodes)


def _misplaced(asked: Request) -> list[str]:
    """Find sbatch's options behind the file: there they are the lab's, and Slurm never sees them."""
    if asked.file is None or asked.file.stem not in catalogue.lab_names():
        return []
    return [f"{word} stands behind {asked.file.name}, where Slurm does not see it; put it before the file"
            for word in asked.words if _is_slurms(word)]


def _is_slurms(word: str) -> bool:
    """Whether a word is an option of sbatch's; a lab's options all have long names, and others."""
    long = word[2:].partition("=")[0] if word.startswith("--") else ""
    return long in VALUED or bool(re.fullmatch(r"-[A-Zac-gi-z]\d*", word))


def _gpus(asked: Request) -> list[str]:
    """A worker uses one GPU: as many tasks as GPUs on each node."""
    tasks, gpus = asked.tasks_per_node, asked.gpus_per_node
    if gpus in (0, tasks) or asked.spread:
        return []
    trouble = f"{gpus - tasks} would stand idle" if gpus > tasks else "workers would share one"
    return [f"{tasks} task(s) and {gpus} GPU(s) per node ({asked.told(asked.gpu_option)}): {trouble}; "
            f"a worker uses one GPU: --ntasks-per-node={gpus} with --gpus-per-node={gpus}"]


def _folders(asked: Request) -> list[str]:
    """Slurm makes no folder for a log, and a job whose log it cannot write fails without a word."""
    return [problem for name in ("output", "error") if name in asked.settings for problem in _unwritable(asked, name)]


def _unwritable(asked: Request, name: str) -> list[str]:
    path = Path(asked.get("chdir") or ".", _filled(asked.get(name), asked))
    folder = path.parent
    if path.is_dir():
        return [f"{asked.told(name)} is a folder; add a file's name: {path}/%x-%j.out"]
    if not folder.is_dir():
        return [f"{asked.told(name)}: the folder {folder} does not exist, Slurm makes none, and the job would fail "
                f"without a word; mkdir -p {shlex.quote(str(folder))}"]
    if not os.access(folder, os.W_OK):
        return [f"{asked.told(name)}: you may not write into {folder}; choose another folder"]
    return []


def _filled(pattern: str, asked: Request) -> str:
    """Fill in what is known of a log's name before the job has a number."""
    name = asked.get("job-name") or (asked.file.name if asked.file else "wrap")
    return pattern.replace("%x", name).replace("%u", getpass.getuser()).replace("%%", "%")


def _late(asked: Request) -> list[str]:
    """Find #SBATCH lines behind the first command: sbatch does not read them, and does not say so."""
    if asked.file is None:
        return []
    lines = asked.file.read_text(errors="replace").splitlines()
    unread = sum(line.startswith(MARK) for line in lines) - len(header(lines))
    return [f"{unread} {MARK} line(s) of {asked.file.name} stand behind its first command, where Slurm does not read "
            "them; move them up"] if unread else []


def _signal(asked: Request) -> list[str]:
    """Find a warning that comes before the run has begun: it would go back into the queue again and again."""
    match = re.fullmatch(r".*@(\d+)", asked.get("signal"))
    if not match or asked.limit is None or asked.limit > 2 * int(match[1]):
        return []
    return [f"{asked.told('signal')} comes {match[1]} s before the end of a limit of {asked.limit:g} s: too little is "
            "left to train in; ask for more --time, or a later signal: --signal=B:USR1@15"]


def _partition(asked: Request, rules: Mapping[str, site.Partition], nodes: Sequence[site.Node]) -> list[str]:
    """Hold the request against the partitions that it may go to: one that fits is enough."""
    names = asked.get("partition").split(",") if asked.get("partition") else \
        [each.name for each in rules.values() if each.default]
    if not names:
        return [f"no partition is named, and this site has no default; choose one of {', '.join(rules)}: --partition"]
    absent = [name for name in names if name not in rules]
    if absent:
        return [f"no partition is called {absent[0]!r} ({asked.settings['partition'].source}); there are: "
                f"{', '.join(rules)}"]
    found = [_beyond(asked, rules[name], [node for node in nodes if node.partition == name]) for name in names]
    return [] if not all(found) else [problem for problems in found for problem in problems]


def _beyond(asked: Request, partition: site.Partition, nodes: Sequence[site.Node]) -> list[str]:
    """Return what a request asks of a partition that it does not have."""
    name, found = partition.name, []
    if partition.state != "UP":
        found.append(f"partition {name} is {partition.state}: it starts no jobs; wait, or use another: sinfo -s")
    most = site.seconds(partition.max_time)
    if asked.limit is not None and asked.limit > most:
        found.append(f"{asked.told('time')} is above the limit of partition {name}, {partition.max_time}: the job "
                     f"would wait for ever; --time={partition.max_time}, and go on with --resume")
    most_nodes = min(len(nodes), int(partition.max_nodes) if partition.max_nodes.isdigit() else math.inf)
    if asked.nodes > most_nodes:
        found.append(f"{asked.told('nodes')} is more than a job in partition {name} may have, {most_nodes}; "
                     f"--nodes={most_nodes}")
    return found + _too_big(asked, name, nodes)


def _too_big(asked: Request, name: str, nodes: Sequence[site.Node]) -> list[str]:
    """Return what no node of a partition has enough of, or has together."""
    wanted = {"CPUs": (asked.cpus_per_node, "cpus", "lower --ntasks-per-node or --cpus-per-task"),
              "GPUs": (asked.gpus_per_node, "gpus", "lower --gpus-per-node and --ntasks-per-node, or use more nodes"),
              "MiB of memory": (asked.memory_mb, "memory_mb", "lower --mem or --mem-per-cpu")}
    found = []
    for what, (amount, field, cure) in wanted.items():
        most = max((getattr(node, field) for node in nodes), default=0)
        if amount > most:
            found.append(f"{amount:g} {what} on a node, but the nodes of partition {name} have at most {most}; {cure}")
    return found or (_too_few(asked, name, nodes, wanted) if asked.nodes <= len(nodes) else [])


def _too_few(asked: Request, name: str, nodes: Sequence[site.Node], wanted: Mapping[str, tuple]) -> list[str]:
    """Return whether enough nodes have all that is wanted, and whether these are up."""
    fitting = [node for node in nodes if all(getattr(node, field) >= amount for amount, field, _ in wanted.values())]
    if len(fitting) < asked.nodes:
        return [f"only {len(fitting)} node(s) of partition {name} have all of it, {asked.nodes} are asked for; "
                "ask for less on a node, or for fewer nodes"]
    usable = sum(node.up for node in fitting)
    return [f"{asked.nodes} node(s) are asked for, but of partition {name}'s only {usable} are up; "
            "ask for fewer, or wait: sinfo -R says what is wrong"] if usable < asked.nodes else []


def _without_gpus(asked: Request, gpus: Sequence[int]) -> list[str]:
    """Return a line on a training job that asks for no GPU in a partition whose nodes all have some."""
    trains = asked.file is not None and asked.file.stem in (*catalogue.lab_names(), "sweep")
    fewest = min(gpus, default=0)
    if asked.gpus_per_node or not trains or not fewest:
        return []
    return [f"it would train on CPUs: each node of the partition has {fewest} GPU(s) or more, and the job asks for "
            f"none; {site.ask_for_gpus(fewest)}"]


CURES = {
    "Invalid account": "yours: sacctmgr show assoc user=$USER format=account; then --account=NAME",
    "Invalid qos": "yours: sacctmgr show assoc user=$USER format=qos; then --qos=NAME",
    "feature": "what nodes have: sinfo -o '%P %D %f'",
    "node name": "the nodes: sinfo -N",
    "node configuration": "what nodes have: sinfo -o '%P %D %c %m %G'",
    "unrecognized option": "sbatch's options: man sbatch; a lab's options stand behind the file",
    "time limit": "the partition's: sinfo -s; write --time=HH:MM:SS",
}


def _explained(problem: str) -> str:
    """Return what sbatch said, with a cure where one is known."""
    cure = next((cure for part, cure in CURES.items() if part.lower() in problem.lower()), "man sbatch")
    return f"sbatch would refuse it: {problem}; {cure}"


def _summary(asked: Request, tried: site.Trial, words: Sequence[str], nodes: Sequence[site.Node]) -> list[str]:
    """Say what is asked for, when it would start, and how to submit it."""
    gpus = f" and {asked.gpus_per_node} GPU(s)" if asked.gpus_per_node else ""
    limit = f"at most {asked.get('time')}" if "time" in asked.settings else "the partition's time limit"
    start = f"would start {site.when(tried.start)}" if tried.start else \
        "when it would start is not known: a job that runs has no time limit"
    return [
        f"asks partition {tried.partition} for {asked.nodes} node(s), {asked.tasks_per_node} task(s){gpus} on each, "
        f"{asked.number('cpus-per-task', 1)} CPU(s) per task, {limit}",
        f"{start}, on {tried.nodes}; jobs that wait already may go before it",
        *_without_gpus(asked, [node.gpus for node in nodes if node.partition == tried.partition]),
        f"submit it: sbatch {shlex.join(words)}",
    ]
