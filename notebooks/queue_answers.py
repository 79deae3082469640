"""Run page 11's six jobs on a Slurm in this machine, and save Slurm's answers for machines without one.

    python notebooks/queue_answers.py
"""

from labs.pages import lab11
from labs.run import atomic
from labs.run.errors import ERROR_PREFIX


def main() -> None:
    """Start a cluster, submit the jobs as the page does, and write `lab11.SAVED`."""
    cluster = lab11.Cluster()
    if cluster.missing:
        raise SystemExit(f"{ERROR_PREFIX}{cluster.missing}")
    queue = lab11.Queue(cluster)
    queue.advice("D", "F")
    queue.shorten("D", 5)
    queue.started_after("D")
    atomic.write_json(lab11.SAVED, queue.answers)
    cluster.stop()


if __name__ == "__main__":
    main()
