"""`labs queue` on a real cluster: jobs made to wait for each reason, and jobs that sbatch would refuse."""

import re
import subprocess
import sys

import pytest

from labs.run.paths import ROOT
from tests.slurm.client import Slurm
from tests.tools.cluster.client import until

pytestmark = pytest.mark.slurm
JOB = "jobs/lab10_caltech.sh"
PARTITIONS = {"short": "nodes=node1 maxtime=10 maxnodes=1", "off": "nodes=node1 state=down"}
# By reason: how to make a job wait for it, and the advice that a student must get.
WAITING = {
    "Resources": (["-N2", "--exclusive"], "enough nodes"),
    "Priority": (["-N2", "--exclusive", "-t30"], "behind other jobs in the queue, not stuck"),
    "PartitionTimeLimit": (["-pshort", "-t60"], "its limit 1:00:00 is above that of partition short; scontrol update "
                                                "jobid={} timelimit=10:00"),
    "PartitionNodeLimit": (["-pshort", "-N2", "-t5"], "a job in short may not have that many nodes"),
    "PartitionConfig": (["-N3", "-c5"], "lab has too few such nodes; sinfo -o '%P"),
    "JobHeldUser": (["--hold"], "you are holding it back; scontrol release {}"),
    "Dependency": (["--dependency=afterok:{busy}"], "it waits for other jobs (afterok:{busy}"),
    "BeginTime": (["--begin=now+150minutes"], "to begin later (--begin), or is paused after a requeue; at once: "
                                              "scontrol update jobid={} starttime=now"),
    "PartitionDown": (["-poff"], "the partition off starts no jobs at present"),
}


def submit(slurm: Slurm, *words: str) -> str:
    return slurm.run("sbatch", "--parsable", "-o/dev/null", "-t20", *words, "--wrap", "sleep 600").strip()


def reason(slurm: Slurm, job: str) -> str:
    return slurm.run("squeue", "--noheader", "-j", job, "--format=%r").strip()


def queue(slurm: Slurm, *words: object) -> subprocess.CompletedProcess:
    return slurm.process(sys.executable, "-m", "labs", "queue", *words)


def test_each_reason_is_explained_and_the_cure_cures(slurm):
    for name, rules in PARTITIONS.items():
        slurm.run("scontrol", "create", f"partitionname={name}", *rules.split())
    jobs = {"busy": submit(slurm, "-wnode1", "--exclusive")}  # It has all of node1.
    until(lambda: "RUNNING" in queue(slurm, jobs["busy"]).stdout)
    for code, (words, _) in WAITING.items():
        jobs[code] = submit(slurm, *(word.format(**jobs) for word in words))
    until(lambda: all(reason(slurm, jobs[code]) == code for code in WAITING))
    # Slurm plans the starts every half minute.
    until(lambda: "expected start: 20" in queue(slurm, jobs["Resources"]).stdout, 60)
    advice = dict(re.findall(r"^(\d+)  (.*\n(?: {4}.*\n)*)", queue(slurm).stdout, re.MULTILINE))
    assert re.match(r"wrap  RUNNING on node1  partition lab, nodes: 1, limit: 20:00", advice[jobs["busy"]])
    for code, (_, words) in WAITING.items():
        assert f"PENDING ({code})" in advice[jobs[code]]
        assert words.format(jobs[code], **jobs) in advice[jobs[code]]
    for code in ("JobHeldUser", "PartitionTimeLimit", "BeginTime"):
        (cure,) = re.findall(r"scontrol [^;,\n]*", advice[jobs[code]])
        slurm.run(*cure.split())
        until(lambda code=code: reason(slurm, jobs[code]) != code)
    slurm.run("scancel", "--me")
    until(lambda: not slurm.run("squeue", "--noheader"))
    for name in PARTITIONS:
        slurm.run("scontrol", "delete", f"partitionname={name}")


def test_a_job_is_checked_and_not_submitted(slurm):
    start, submit_it = queue(slurm, "--check", "-N2", JOB, "--epochs", "3").stdout.splitlines()
    assert re.match(r"it is expected to start at 20\S+ using \d processors on nodes node\[1-2\] in partition", start)
    assert submit_it == f"submit it: sbatch -N2 {JOB} --epochs 3"
    for words, message in (
            (["-N3", JOB], "Requested node configuration is not available; what nodes have, and which are up: sinfo"),
            (["-pnowhere", JOB], "Invalid partition name specified; choose one that is up: sinfo -s"),
            (["nosuch.sh"], "Unable to open file nosuch.sh; sbatch's options come before the job file"),
            (["--nosuch", JOB], "unrecognized option '--nosuch'; man sbatch")):
        done = queue(slurm, "--check", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert done.stderr.startswith("labs: error: sbatch would refuse it: ")
        assert message in done.stderr
    assert not slurm.run("squeue", "--noheader")


def test_without_slurm_the_error_is_one_line(tmp_path):
    done = subprocess.run([sys.executable, "-m", "labs", "queue"], capture_output=True, text=True, cwd=ROOT,
                          env={"PATH": str(tmp_path)}, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"labs: error: no .*; run this on a cluster's login node, or .*\n", done.stderr)
