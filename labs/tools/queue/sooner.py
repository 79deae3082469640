"""Ways to start a waiting job sooner: another partition, half the request, a shorter limit.

The first two are tried with `sbatch --test-only`, which submits nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from labs.run import slurm
from labs.tools.queue import site
from labs.tools.queue.site import Job

LONG_SECONDS = 600
"""A shorter limit needs no halving."""


def suggestions(job: Job, partitions: Mapping[str, slurm.Partition], trials: int) -> list[str]:
    """Return what would start a job sooner, as lines with a command.

    Args:
        job: A job that waits for free nodes.
        partitions: By name.
        trials: How many other partitions to try; 0 tries nothing.
    """
    lines, expected = [], site.start(job.start)
    others = [name for name, each in partitions.items() if name not in job.partition.split(",") and each.state == "UP"]
    for partition in others[:trials]:
        trial = site.trial(*sbatch_args(job, partition))
        if _is_sooner(trial, expected) and trial.start:
            lines.append(f"sooner in partition {partition} ({site.when(trial.start)}): "
                         f"scontrol update jobid={job.number} partition={partition}")
    if trials:
        lines += _half_request(job)
    return [*lines, *_half_limit(job)]


def _half_request(job: Job) -> list[str]:
    """Return how much sooner half the request would start than the whole: both are trials, queued behind the job."""
    whole = site.trial(*sbatch_args(job, job.partition))
    half = site.trial(*sbatch_args(job, job.partition, divisor=2))
    if whole.start is None or half.start is None or not _is_sooner(half, whole.start):
        return []
    gain = round((whole.start - half.start).total_seconds() / 60)
    change = f"-N {int(job.nodes) // 2}" if int(job.nodes) > 1 else "half the tasks, CPUs and GPUs"
    return [f"a smaller request would start about {gain} min sooner: scancel {job.number}, and submit it with {change}"]


def _half_limit(job: Job) -> list[str]:
    """Return the command that halves the limit: Slurm fits short jobs into gaps before longer ones."""
    limit = site.seconds(job.limit)
    if limit < LONG_SECONDS:
        return []
    half = "04:00:00" if limit == float("inf") else _clock(int(limit) // 2)
    return [f"a shorter limit, if that is enough, lets Slurm fit it into a gap: "
            f"scontrol update jobid={job.number} timelimit={half}"]


def _is_sooner(trial: site.Trial, expected: datetime.datetime | None) -> bool:
    """Return whether a trial would start at least a minute before the expected start."""
    if trial.problem or trial.start is None:
        return False
    return expected is None or (expected - trial.start).total_seconds() > 60


def sbatch_args(job: Job, partition: str, divisor: int = 1) -> list[str]:
    """Return sbatch's arguments for what a job asks for, or for a fraction of it, in a partition."""
    nodes, gpus = int(job.nodes), slurm.gpus(job.gres)
    cpus = -(-int(job.cpus) // nodes)
    if nodes > 1:
        nodes = nodes // divisor
    else:
        cpus, gpus = max(1, cpus // divisor), -(-gpus // divisor)
    args = [f"--partition={partition}", f"--nodes={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}"]
    args += [f"--gpus-per-node={gpus}"] if gpus else []
    args += ["--exclusive"] if job.shared == "NO" else []
    settings = {"account": job.account, "qos": job.qos, "mem": job.memory}
    args += [f"--{name}={value}" for name, value in settings.items() if value not in ("", "0", "(null)", "N/A")]
    return [*args, f"--time={job.limit}", "--wrap=true"]


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
