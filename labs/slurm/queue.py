"""The command `labs queue`: why a job waits, when it will start, and what to change. Imports no TensorFlow."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labs.run.errors import LabError
from labs.run.text import printable
from labs.slurm import precheck, reasons, site
from labs.slurm.site import Partition

# Read with separators, not as JSON: this is the same in every Slurm; 22.05's JSON lacks half of it.
FORMAT = "%i|%F|%u|%T|%P|%l|%M|%D|%C|%m|%h|%Q|%S|%b|%a|%q|%E|%R|%r|%j"
MOST_TRIALS = 6  # Slurm's controller is shared by everybody.


@dataclass(frozen=True)
class Queued:
    """A job in the queue, as squeue tells it."""

    id: str
    base: str
    """The number that commands take: "12" for all of the array "12_[0-7]"."""
    user: str
    state: str
    partition: str
    limit: str
    used: str
    nodes: str
    cpus: str
    memory: str
    shared: str
    """"NO" for one that wants whole nodes."""
    priority: str
    start: str
    gres: str
    account: str
    qos: str
    dependency: str
    where: str
    """Its nodes; of a job that waits, Slurm's reason in brackets."""
    reason: str
    name: str

    @property
    def number(self) -> str:
        """What scontrol and scancel call it."""
        return self.base if "[" in self.id else self.id


def main(jobs: Sequence[str] = (), user: str | None = None, check: Sequence[str] | None = None) -> int:
    """Do what `labs queue` was asked for, and return its exit code.

    Args:
        jobs: Numbers of jobs; if there are none: all of `user`.
        user: Whose jobs; the student's own, if left out.
        check: What would stand behind `sbatch`: look at that job instead.
    """
    if check is not None:
        return _check(check)
    found = _asked(jobs, user)
    if not found:
        print(f"no jobs of {user or getpass.getuser()} in the queue; finished ones: sacct, or labs results")
        return 0
    everyone, rules = _pending(), site.partitions()
    trials = MOST_TRIALS
    for job in found:
        print(_head(job))
        if job.state == "PENDING":
            for line in explain(job, everyone, rules, trials):
                print(f"    {line}")
            trials = max(0, trials - len(rules)) if reasons.waits_for_room(job.reason) else trials
    return 0


def _check(words: Sequence[str]) -> int:
    """Look at a job before it is submitted; say every problem, or when and where it would start."""
    problems, summary = precheck.check(words)
    for problem in problems:
        print(f"labs: error: {printable(problem)}", file=sys.stderr)
    for line in summary:
        print(line)
    return int(bool(problems))


def _asked(jobs: Sequence[str], user: str | None) -> list[Queued]:
    """Return the jobs that were asked for, those that wait first."""
    if not jobs:
        return _listed(f"--user={user or getpass.getuser()}")
    wrong = [job for job in jobs if not job.replace("_", "").isdigit()]
    if wrong:
        raise LabError(f"{wrong[0]!r} is not the number of a job; `labs queue` alone shows yours; "
                       "a job file to look at: labs queue --check FILE")
    code, told, complaint = site.run("squeue", "--noheader", f"--jobs={','.join(jobs)}", f"--format={FORMAT}")
    found = [Queued(*line.split("|", FORMAT.count("|"))) for line in told.splitlines()]
    gone = [job for job in jobs if not any(job in (each.id, each.base) for each in found)]
    if gone and (code == 0 or "Invalid job id" in complaint):
        raise LabError(f"no job {', '.join(gone)} in the queue: finished, or never there; "
                       f"how it ended: sacct -j {','.join(gone)}")
    if code:
        raise LabError(f"squeue refused: {complaint.strip()}")
    return found


def _listed(*filters: str) -> list[Queued]:
    return [Queued(*row) for row in site.table("squeue", "--noheader", *filters, f"--format={FORMAT}")]


def _pending() -> list[Queued]:
    """Return all jobs that wait, of everybody that this site lets one see; those of an array one by one."""
    return _listed("--states=PENDING", "--array")


def _head(job: Queued) -> str:
    """Return a job's first line."""
    state = f"PENDING ({job.reason})" if job.state == "PENDING" else f"{job.state} on {job.where}"
    clock = f"limit {job.limit}" if job.state == "PENDING" else f"{job.used} of {job.limit}"
    count = f"{job.nodes} node{'s' * (job.nodes != '1')}, {job.cpus} CPU{'s' * (job.cpus != '1')}"
    return f"{job.id}  {job.name}  {state}  partition {job.partition}, {count}, {clock}"


def explain(job: Queued, everyone: Sequence[Queued], rules: Mapping[str, Partition], trials: int = 0) -> list[str]:
    """Return lines in plain words: why a job waits, until when, and what to change.

    Args:
        job: It waits.
        everyone: All jobs that wait.
        rules: The partitions.
        trials: How many other requests may be tried with `sbatch --test-only`.
    """
    known = reasons.meaning(job.reason)
    if known is None:
        return [f"{job.reason}: a reason that labs does not know; more: scontrol show job {job.number}, "
                "man squeue (JOB REASON CODES)", *_expected(job)]
    facts = _facts(job, rules)
    lines = [f"{known.meaning.format(**facts)}{_detail(job)}"]
    if known.room:
        ahead = _ahead(job, everyone)
        who = "1 job is" if ahead == 1 else f"{ahead} jobs are"
        lines[0] += f"; {who} ahead of it in {job.partition}" if ahead else "; no job that waits is ahead of it"
    lines += _expected(job)
    if known.cure:
        lines.append(f"to do: {known.cure.format(**facts)}")
    return lines + (_sooner(job, rules, trials) if known.room else [])


def _facts(job: Queued, rules: Mapping[str, Partition]) -> dict[str, str]:
    """Return what the words of a reason may name."""
    partition = rules.get(job.partition.partition(",")[0])
    return {
        "job": job.number, "partition": job.partition, "limit": job.limit, "nodes": job.nodes,
        "dependency": job.dependency, "what": reasons.kind(job.reason),
        "max_time": partition.max_time if partition else "limit",
        "max_nodes": partition.max_nodes if partition else "N",
    }


def _detail(job: Queued) -> str:
    """Return what Slurm adds to a reason, such as the nodes that are down."""
    detail = job.reason.partition(",")[2].strip()
    return f" ({detail.replace('UnavailableNodes:', 'not available: ')})" if detail else ""


def _ahead(job: Queued, everyone: Sequence[Queued]) -> int:
    """Count the jobs that wait for room in the same partition with a higher priority, or an equal one and earlier."""
    mine = set(job.partition.split(","))
    first = min((_place(each) for each in everyone if each.base == job.base), default=_place(job))
    rivals = [each for each in everyone if each.base != job.base and mine & {*each.partition.split(",")}]
    return sum(reasons.waits_for_room(each.reason) and _place(each) < first for each in rivals)


def _place(job: Queued) -> tuple[int, int]:
    return -int(job.priority), int(job.base)


def _expected(job: Queued) -> list[str]:
    """Return when Slurm expects to start a job: what `squeue --start` shows."""
    if moment := site.start(job.start):
        return [f"expected start: {site.when(moment)} (Slurm's estimate; earlier if jobs end before their limits)"]
    if not reasons.waits_for_room(job.reason):
        return []
    why = "a job before it has no time limit" if job.start[:1].isdigit() else "Slurm has not worked it out yet"
    return [f"expected start: not known: {why}"]


def _sooner(job: Queued, rules: Mapping[str, Partition], trials: int) -> list[str]:
    """Return what would start sooner, tried with `sbatch --test-only`, and the way to a gap."""
    lines, expected = [], site.start(job.start)
    others = [name for name, each in rules.items() if name not in job.partition.split(",") and each.state == "UP"]
    for partition in others[:trials]:
        if _earlier(tried := site.trial(*_again(job, partition)), expected) and tried.start:
            lines.append(f"sooner in partition {partition} ({site.when(tried.start)}): "
                         f"scontrol update jobid={job.number} partition={partition}")
    if trials:
        lines += _smaller(job)
    return [*lines, *_shorter(job)]


def _smaller(job: Queued) -> list[str]:
    """Return what half of a request would gain: both are tried, since a trial stands behind the job itself."""
    whole, half = site.trial(*_again(job, job.partition)), site.trial(*_again(job, job.partition, share=2))
    if whole.start is None or half.start is None or not _earlier(half, whole.start):
        return []
    gain = round((whole.start - half.start).total_seconds() / 60)
    words = f"-N {int(job.nodes) // 2}" if int(job.nodes) > 1 else "half the tasks, CPUs and GPUs"
    return [f"smaller it would start about {gain} min sooner: scancel {job.number}, and submit it with {words}"]


def _earlier(tried: site.Trial, expected) -> bool:
    """Whether a trial would start at least a minute before what is expected."""
    if tried.problem or tried.start is None:
        return False
    return expected is None or (expected - tried.start).total_seconds() > 60


def _again(job: Queued, partition: str, share: int = 1) -> list[str]:
    """Return the words that ask sbatch for as much as a job did, or for a share of it, in a partition."""
    nodes, gpus = int(job.nodes), site.gpus(job.gres)
    cpus = -(-int(job.cpus) // nodes)
    if nodes > 1:
        nodes = nodes // share
    else:
        cpus, gpus = max(1, cpus // share), -(-gpus // share)
    words = [f"--partition={partition}", f"--nodes={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}"]
    words += [f"--gpus-per-node={gpus}"] if gpus else []
    words += ["--exclusive"] if job.shared == "NO" else []
    named = {"account": job.account, "qos": job.qos, "mem": job.memory}
    words += [f"--{name}={value}" for name, value in named.items() if value not in ("", "0", "(null)", "N/A")]
    return [*words, f"--time={job.limit}", "--wrap=true"]


def _shorter(job: Queued) -> list[str]:
    """Return the command that halves a limit: a short job is fitted into gaps before longer ones."""
    limit = site.seconds(job.limit)
    if limit < 600:  # It is short already.
        return []
    half = "04:00:00" if limit == float("inf") else _clock(int(limit) // 2)
    return [f"a shorter limit, if it needs less, lets Slurm fit it into a gap: "
            f"scontrol update jobid={job.number} timelimit={half}"]


def _clock(count: int) -> str:
    return f"{count // 3600:02}:{count // 60 % 60:02}:{count % 60:02}"
