"""`labs queue --check`: finds in a job what sbatch would accept and then leave waiting, or let fail silently."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from labs.run import atomic, catalogue, slurm
from labs.run.paths import user_name
from labs.run.text import plural
from labs.tools.queue import site
from labs.tools.queue.sbatch_parser import DIRECTIVE, VALUED, Request, header, read


def check(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Check a job before it is submitted.

    Args:
        args: What would follow `sbatch`.

    Returns:
        What is wrong with the job; and if nothing is, where and when it would start.
    """
    request = read(args)
    partitions, nodes = slurm.partitions(), slurm.nodes()
    problems = [*_misplaced(request), *_gpus(request), *_log_folders(request), *_late(request), *_signal(request),
                *_partition(request, partitions, nodes)]
    trial = site.trial(*args)
    if trial.problem and not problems:
        problems = [_with_cure(trial.problem)]
    return problems, [] if problems else _summary(request, trial, args, nodes)


def _misplaced(request: Request) -> list[str]:
    """Find sbatch's options after the job file: there they belong to the lab, and Slurm never sees them."""
    if request.file is None or request.file.stem not in catalogue.lab_names():
        return []
    return [f"{word} comes after {request.file.name}, where Slurm does not see it; put it before the file"
            for word in request.lab_args if _is_sbatch_option(word)]


def _is_sbatch_option(word: str) -> bool:
    """Return whether a word is an option of sbatch; a lab's options all have long names, and other ones."""
    long = word[2:].partition("=")[0] if word.startswith("--") else ""
    return long in VALUED or bool(re.fullmatch(r"-[A-Zac-gi-z]\d*", word))


def _gpus(request: Request) -> list[str]:
    """Check that each node has as many tasks as GPUs: a worker uses one GPU."""
    tasks, gpus = request.tasks_per_node, request.gpus_per_node
    if gpus in (0, tasks) or request.spread:
        return []
    trouble = f"{gpus - tasks} would stand idle" if gpus > tasks else "workers would share one"
    return [f"{plural(tasks, 'task')} and {plural(gpus, 'GPU')} per node ({request.describe(request.gpu_option)}): "
            f"{trouble}; a worker uses one GPU: --ntasks-per-node={gpus} with --gpus-per-node={gpus}"]


def _log_folders(request: Request) -> list[str]:
    """Check the logs' folders: Slurm creates none, and a job whose log it cannot write fails silently."""
    problems = []
    for name in ("output", "error"):
        folder = Path(request.get("chdir") or ".", _expanded(request.get(name), request)).parent
        if name in request.settings and not folder.is_dir():
            problems.append(f"{request.describe(name)}: the folder {folder} does not exist, Slurm does not create it, "
                            f"and the job would fail without a message; mkdir -p {shlex.quote(str(folder))}")
    return problems


def _expanded(pattern: str, request: Request) -> str:
    """Return a log's name with the parts filled in that are known before the job has a number."""
    name = request.get("job-name") or (request.file.name if request.file else "wrap")
    return pattern.replace("%x", name).replace("%u", user_name()).replace("%%", "%")


def _late(request: Request) -> list[str]:
    """Find #SBATCH lines after the first command: sbatch silently ignores them."""
    if request.file is None:
        return []
    lines = atomic.read_text(request.file).splitlines()
    unread = sum(line.startswith(DIRECTIVE) for line in lines) - len(header(lines))
    return [f"{plural(unread, f'{DIRECTIVE} line')} of {request.file.name} after its first command, where Slurm "
            "stops reading; move them up"] if unread else []


def _signal(request: Request) -> list[str]:
    """Find a warning signal that comes before the run has begun: the job would be requeued again and again."""
    match = re.fullmatch(r".*@(\d+)", request.get("signal"))
    if not match or request.limit is None or request.limit > 2 * int(match[1]):
        return []
    return [f"{request.describe('signal')} comes {match[1]} s before the end of a limit of {request.limit:g} s: too "
            "little is left for training; ask for more --time, or a later signal: --signal=B:USR1@15"]


def _partition(request: Request, partitions: Mapping[str, slurm.Partition], nodes: Sequence[slurm.Node]) -> list[str]:
    """Check the request against the partitions that it names: one that fits is enough."""
    names = request.get("partition").split(",") if request.get("partition") else \
        [each.name for each in partitions.values() if each.default]
    if not names:
        return [f"no partition is named, and this site has no default; choose one of {', '.join(partitions)}: "
                "--partition"]
    absent = [name for name in names if name not in partitions]
    if absent:
        return [f"unknown partition {absent[0]!r} ({request.settings['partition'].source}); there are: "
                f"{', '.join(partitions)}"]
    problems = [_beyond(request, partitions[name], [node for node in nodes if node.partition == name])
                for name in names]
    return [problem for each in problems for problem in each] if all(problems) else []


def _beyond(request: Request, partition: slurm.Partition, nodes: Sequence[slurm.Node]) -> list[str]:
    """Return what a request needs and a partition lacks, now or always."""
    problems = []
    if partition.state != "UP":
        problems.append(f"partition {partition.name} is {partition.state}: it starts no jobs; wait, or use another: "
                        "sinfo -s")
    problems += never(request, partition, nodes)
    fitting = [node for node in nodes if not _lacking(request, node)]
    if not problems and (up := sum(node.up for node in fitting)) < request.nodes:
        problems = [f"the job needs {plural(request.nodes, 'node')}, but only {up} of partition {partition.name} are "
                    "up; ask for fewer, or wait: sinfo -R says what is wrong"]
    return problems


def never(request: Request, partition: slurm.Partition, nodes: Sequence[slurm.Node]) -> list[str]:
    """Return what a request needs and a partition lacks even when all its nodes are idle.

    Args:
        request: What the job asks for.
        partition: One of its partitions.
        nodes: The nodes of that partition.
    """
    name, problems = partition.name, []
    if request.limit is not None and request.limit > site.seconds(partition.max_time):
        problems.append(f"{request.describe('time')} is above the limit of partition {name}, {partition.max_time}: the "
                        f"job would wait forever; --time={partition.max_time}, and continue with --resume")
    most = partition.most_nodes(nodes)
    if request.nodes > most:
        has = "has" if most == len(nodes) else "allows a job"
        cpus = sum(node.cpus for node in nodes)
        fewer = f" and fewer tasks, for its {plural(cpus, 'CPU')}" * (request.nodes * request.cpus_per_node > cpus)
        problems.append(f"partition {name} {has} {plural(most, 'node')}, you asked for {request.nodes}: this job never "
                        f"starts; --nodes={most}{fewer}")
    return problems + _too_big(request, name, nodes)


NEEDS = {"cpus": ("CPUs", "cpus_per_node", "lower --ntasks-per-node or --cpus-per-task"),
         "gpus": ("GPUs", "gpus_per_node", "lower --gpus-per-node and --ntasks-per-node, or use more nodes"),
         "memory_mb": ("MiB of memory", "memory_mb", "lower --mem or --mem-per-cpu")}
"""A node's resources, by its field: the unit, the request's field, and the cure if no node has enough."""


def _lacking(request: Request, node: slurm.Node) -> set[str]:
    """Return the resources of which a node has too little."""
    return {field for field, (_, wanted, _) in NEEDS.items() if getattr(request, wanted) > getattr(node, field)}


def _too_big(request: Request, name: str, nodes: Sequence[slurm.Node]) -> list[str]:
    """Return the resources of which no node of a partition has enough, alone or in combination."""
    lacking = [_lacking(request, node) for node in nodes]
    problems = []
    for field, (unit, wanted, cure) in NEEDS.items():
        if nodes and all(field in each for each in lacking):
            most = max(getattr(node, field) for node in nodes)
            problems.append(f"{getattr(request, wanted):g} {unit} on a node, but the nodes of partition {name} have at "
                            f"most {most}; {cure}")
    fitting = lacking.count(set())
    if not problems and fitting < request.nodes <= len(nodes):
        return [f"the job needs {plural(request.nodes, 'node')}, but only {fitting} of partition {name} have all "
                "that it asks for; ask for less on a node, or for fewer nodes"]
    return problems


def _unused_gpus(request: Request, gpus: Sequence[int]) -> list[str]:
    """Return a line on a training job that asks for no GPU in a partition whose nodes all have some."""
    trains = request.file is not None and request.file.stem in (*catalogue.lab_names(), "sweep")
    fewest = min(gpus, default=0)
    if request.gpus_per_node or not trains or not fewest:
        return []
    return [f"it would train on CPUs: each node of the partition has {plural(fewest, 'GPU')} or more, and the job asks "
            f"for none; {slurm.ask_for_gpus(fewest)}"]


CURES = {
    "Invalid account": "yours: sacctmgr show assoc user=$USER format=account; then --account=NAME",
    "Invalid qos": "yours: sacctmgr show assoc user=$USER format=qos; then --qos=NAME",
    "feature": "what nodes have: sinfo -o '%P %D %f'",
    "node configuration": "what nodes have: sinfo -o '%P %D %c %m %G'",
    "unrecognized option": "sbatch's options: man sbatch; a lab's options come after the file",
}


def _with_cure(problem: str) -> str:
    """Return sbatch's message, with a cure if one is known."""
    cure = next((cure for text, cure in CURES.items() if text.lower() in problem.lower()), "man sbatch")
    return f"sbatch would refuse it: {problem}; {cure}"


def _summary(request: Request, trial: site.Trial, args: Sequence[str], nodes: Sequence[slurm.Node]) -> list[str]:
    """Return what the job asks for, when it would start, and how to submit it."""
    gpus = f" and {plural(request.gpus_per_node, 'GPU')}" if request.gpus_per_node else ""
    limit = f"at most {request.get('time')}" if "time" in request.settings else "the partition's time limit"
    start = f"would start {site.when(trial.start)}" if trial.start else \
        "its start time is unknown: a running job has no time limit"
    return [
        f"asks partition {trial.partition} for {plural(request.nodes, 'node')}, "
        f"{plural(request.tasks_per_node, 'task')}{gpus} on each, "
        f"{plural(request.number('cpus-per-task', 1), 'CPU')} per task, {limit}",
        f"{start}, on {trial.nodes}; jobs that are already waiting may start before it",
        *_unused_gpus(request, [node.gpus for node in nodes if node.partition == trial.partition]),
        f"submit it: sbatch {shlex.join(args)}",
    ]
