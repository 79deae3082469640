"""`labs queue` on a real cluster: jobs made to wait for each reason that it can give, and mistakes that it finds."""

from __future__ import annotations

import getpass
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from labs.run import slurm
from labs.run.errors import LabError
from labs.run.paths import search_path
from labs.tools.cluster.command import NEXT_WITH_SLURM
from labs.tools.queue import command, reasons, sbatch_parser, site
from tests.slurm.client import ROOT, Slurm, unavailable
from tests.tools.cluster.client import until

pytestmark = pytest.mark.slurm
JOB = "jobs/lab10_caltech.sh"
PARTITIONS = {
    "short": "nodes=node1 maxtime=10 maxnodes=1", "one": "nodes=node1", "two": "nodes=node2",
    "off": "nodes=node1 state=down", "closed": "nodes=node1 state=inactive",
    "closing": "nodes=node1",
}
# By reason: how to make a job wait for it, and the advice that a student must get.
WAITING = {
    "Resources": (["-N2", "--exclusive", "-t20"], ["enough nodes", "no waiting job is ahead", "expected start: ",
                                                   "timelimit=00:10:00"]),
    "Priority": (["-N2", "--exclusive", "-t30"], ["not stuck; 1 job is ahead of it in lab", "expected start: "]),
    "PartitionTimeLimit": (["-pshort", "-t60"], [
        "--time=1:00:00 (job {}) is above the limit of partition short, 00:10:00",
        "to do: scontrol update jobid={} timelimit=00:10:00"]),
    "PartitionNodeLimit": (["-pshort", "-N2", "-t5"], ["partition short has 1 node, you asked for 2"]),
    "PartitionConfig": (["-N3", "-c5"], [
        "partition lab has 2 nodes, you asked for 3: this job never starts; --nodes=2 and fewer tasks", "\n    5 CPUs",
        "to do: what nodes have: sinfo -o '%P %D %c %m %G'; then scancel {}"]),
    "JobHeldAdmin": (["--begin=now+1hour"], ["ask the site's help desk"]),
    "JobHeldUser": (["--hold"], ["you are holding it back", "to do: scontrol release {}"]),
    "Dependency": (["--dependency=afterok:{busy}"], ["waits for other jobs: afterok:{busy}"]),
    "DependencyNeverSatisfied": (["--dependency=afterok:{cancelled}"], ["it will never start", "to do: scancel {}"]),
    "BeginTime": (["--begin=now+150minutes"], ["to begin later", "expected start: ", "in 2 h", "starttime=now"]),
    "Reservation": (["--reservation=labs-later"], ["its reservation has not begun"]),
    "PartitionDown": (["-poff"], ["the partition off is switched off"]),
    "PartitionInactive": (["-pclosing"], ["the partition closing takes no jobs"]),
}


class Student:
    """Someone who types `labs queue` and `sbatch` on the test cluster."""

    def __init__(self, slurm: Slurm):
        self.slurm = slurm

    def submit(self, *words: str) -> str:
        return self.slurm.run("sbatch", "--parsable", "-o/dev/null", "-t20", *words, "--wrap", "sleep 600").strip()

    def reason(self, job: str) -> str:
        return self.slurm.run("squeue", "--noheader", "-j", job, "--format=%r").strip()

    def queue(self, *words: object, **variables: str) -> subprocess.CompletedProcess:
        return self.slurm.process(sys.executable, "-m", "labs", "queue", *words, **variables)

    def advice(self, *words: object) -> str:
        done = self.queue(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: object, **variables: str) -> list[str]:
        """Return the error lines of `labs queue --check`, which must be all that it says."""
        done = self.queue("--check", *words, **variables)
        assert (done.returncode, done.stdout) == (1, "")
        lines = done.stderr.splitlines()
        assert all(line.startswith("labs: error: ") for line in lines), done.stderr
        return [line.removeprefix("labs: error: ") for line in lines]


@pytest.fixture(scope="module")
def student(slurm) -> Iterator[Student]:
    """On the cluster with more partitions, which are gone afterwards."""
    for name, rules in PARTITIONS.items():
        slurm.run("scontrol", "create", f"partitionname={name}", *rules.split())
    slurm.run("scontrol", "create", "reservation=labs-later", "starttime=now+1day", "duration=10", "nodes=node2",
              f"users={getpass.getuser()}")
    yield Student(slurm)
    slurm.run("scancel", "--state=PENDING", "--me")
    slurm.run("scancel", "--me")
    until(lambda: not slurm.run("squeue", "--noheader"))
    slurm.run("scontrol", "delete", "reservation=labs-later")
    for name in PARTITIONS:
        slurm.run("scontrol", "delete", f"partitionname={name}")


@pytest.fixture(scope="module")
def jobs(student) -> dict[str, str]:
    """The numbers of jobs that wait, by reason; "busy" is one that has all of node1."""
    result = {"busy": student.submit("-wnode1", "--exclusive", "-t20"), "cancelled": student.submit("--hold")}
    student.slurm.run("scancel", result["cancelled"])
    until(lambda: student.reason(result["busy"]) == "None" and "RUNNING" in student.advice(result["busy"]))
    for reason, (words, _) in WAITING.items():
        result[reason] = student.submit(*(word.format(**result) for word in words))
    student.slurm.run("scontrol", "update", "partitionname=closing", "state=inactive")
    student.slurm.run("scontrol", "hold", result["JobHeldAdmin"])
    until(lambda: all(student.reason(result[reason]) == reason for reason in WAITING))
    return result


@pytest.mark.parametrize("reason", WAITING)
def test_a_reason_is_explained(student, jobs, reason):
    job = jobs[reason]
    if "expected start: " in WAITING[reason][1]:  # Slurm works it out every half minute; -u makes it wait for that.
        until(lambda: "expected start: unknown" not in student.advice(job), 60)
    output = student.advice(job)
    assert output.startswith(f"{job}  wrap  PENDING ({reason})  partition ")
    for words in WAITING[reason][1]:
        assert words.format(job, **jobs) in output, output


def test_all_of_a_students_jobs_are_shown(student, jobs):
    output = student.advice()
    waiting = {number: reason for reason, number in jobs.items() if reason in WAITING}
    assert dict(re.findall(r"^(\d+) .*PENDING \((\w+)\)", output, re.MULTILINE)) == waiting
    assert re.search(rf"^{jobs['busy']}  wrap  RUNNING on node1  partition lab, 1 node, 4 CPUs, \d+:\d\d of 20:00$",
                     output, re.MULTILINE)


def test_another_partition_that_starts_sooner_is_named_and_true(student, jobs):
    job = student.submit("-pone", "-t5")
    move = until(lambda: re.search(r"sooner in partition two \(.*?\): (.*)", student.advice(job)), 60,
                 lambda: student.advice(job))
    student.slurm.run(*shlex.split(move[1]))
    until(lambda: "RUNNING on node2" in student.advice(job), 60)
    student.slurm.run("scancel", job)


@pytest.mark.parametrize("reason", ["JobHeldUser", "PartitionTimeLimit", "BeginTime"])
def test_the_cure_cures(student, jobs, reason):
    job = student.submit(*WAITING[reason][0])
    until(lambda: student.reason(job) == reason)
    cure = re.search(r"(?:to do|at once): (scontrol [^;,\n]*)", student.advice(job))
    student.slurm.run(*shlex.split(cure[1]))
    until(lambda: student.reason(job) != reason)
    student.slurm.run("scancel", job)


def test_a_node_that_is_not_available_is_named(student, jobs):
    with student.slurm.drained("node2"):
        job = student.submit("-wnode2")
        try:
            until(lambda: student.reason(job).startswith("ReqNodeNotAvail"))
            output = student.advice(job)
            assert "not available: node2" in output
            assert f"scontrol update jobid={job} reqnodelist=" in output
            assert "only 1 of partition lab are up" in student.refused("-N2", JOB)[0]
        finally:
            student.slurm.run("scancel", job)


def test_an_array_is_one_entry_and_its_tasks_are_found(student, jobs):
    array = student.submit("--array=0-2", "-pone")
    until(lambda: student.reason(array) != "None")
    output = student.advice(array)
    assert output.startswith(f"{array}_[0-2]  wrap  PENDING (")
    assert f"scontrol update jobid={array} timelimit=" in output
    assert student.advice(f"{array}_1").startswith(f"{array}_1  wrap  PENDING (")
    assert f"no job {array}_7 in the queue" in student.queue(f"{array}_7").stderr
    student.slurm.run("scancel", array)


def test_a_job_file_is_read_as_sbatch_reads_it(tmp_path):
    job = tmp_path / "job.sh"
    job.write_text("#!/bin/bash\n#SBATCH --gpus-per-node=4\n")
    request = sbatch_parser.read(["--ntasks-per-gpu=1", str(job)], {})
    assert (request.tasks_per_node, request.gpus_per_node) == (4, 4)
    for words in ["-N0", "-n4"], ["-N" + "9" * 9000], ["-N٣", "--gpus=²"]:  # sbatch itself refuses them.
        assert sbatch_parser.read([*words, str(job)], {}).nodes > 0
    job.write_text("#!/bin/bash\n#SBATCH -J 'a\n")
    with pytest.raises(LabError, match="no closing quotation; complete the quoted or escaped text"):
        sbatch_parser.read([str(job)], {})


@pytest.mark.parametrize(("partition", "cpus", "never"), [
    ("lab", 8, ""), ("lab", 10, "10 CPUs on a node, but the nodes of partition lab have at most 2"),
    ("lab,small", 8, ""),
])
def test_a_job_is_only_called_hopeless_if_no_partition_can_start_it(partition, cpus, never):
    """squeue shows one node for `sbatch -n 8`, which starts on four nodes of 2 CPUs."""
    nodes = [slurm.Node(name, f"{name}{number}", 2, 1000, 0, "idle")
             for name, count in (("lab", 4), ("small", 1)) for number in range(count)]
    partitions = {name: slurm.Partition(name, False, "UP", "UNLIMITED", "UNLIMITED") for name in ("lab", "small")}
    job = site.QueuedJob(**dict.fromkeys(site.QueuedJob.__dataclass_fields__, "") | {
        "id": "12", "base": "12", "partition": partition, "nodes": "1", "cpus": str(cpus), "limit": "10:00"})
    lines = command._never(job, partitions, nodes)
    assert lines[0].startswith(never) if never else not lines


@pytest.mark.parametrize(("gres", "count"), [
    ("gres/gpu:a100=2,gres/gpu=2", 2), ("gpu:a100:4(S:0-1),gpu:v100:1,nvme:1", 5), ("gpu", 1), ("(null)", 0),
])
def test_a_total_of_gpus_is_not_added_to_its_types(gres, count):
    assert slurm.gpus(gres) == count


@pytest.mark.parametrize(("reason", "words"), [
    ("QOSMaxCpuPerUserLimit", "together have as many CPUs as they may use"), ("MaxGRESPerAccount", "as many GPUs"),
    ("AssocMaxJobsLimit", "as many jobs as you are allowed"), ("AssocMaxCpuPerJobLimit", "alone asks for more CPUs"),
    ("AssocGrpBillingMinutes", "have used up its billing units"),
    ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "kept for jobs"),
])
def test_each_limit_is_distinguished_from_the_others(reason, words):
    assert words in reasons.meaning(reason).meaning.replace("{what}", reasons.limited_resource(reason))


def test_a_wrong_argument_is_refused_in_one_line(student):
    done = student.queue("jobs/x.sh")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"labs: error: .*queue --check FILE\n", done.stderr)


def test_without_slurm_the_error_is_one_line(tmp_path):
    for words in ([], ["--check", JOB]):
        done = subprocess.run([sys.executable, "-m", "labs", "queue", *words], capture_output=True, text=True, cwd=ROOT,
                              env={"PATH": str(tmp_path)})
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(r"labs: error: no \w+ on the PATH: this machine has no Slurm; .*\n", done.stderr)


def test_without_slurm_here_a_cluster_inside_the_machine_can_be_asked(slurm, tmp_path):
    words = ["labs", "queue", "--check", "-N2", JOB]
    env = slurm.cluster.environment(PATH=str(tmp_path))
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, cwd=ROOT, env=env)
    hint = f"to ask the cluster inside this machine: labs cluster shell -- {shlex.join(words)}\n"
    assert re.fullmatch(rf"labs: error: no \w+ on the PATH: this machine has no Slurm; {re.escape(hint)}", done.stderr)
    assert slurm.cluster.labs("shell", "--", *words).stdout.startswith("asks partition lab for 2 nodes")


def test_what_up_names_as_next_commands_works(slurm):
    sbatch, queue, down = re.findall(r"^  labs cluster (.*?)  ", NEXT_WITH_SLURM, re.MULTILINE)
    assert "to start at" in slurm.cluster.labs(*sbatch.replace("sbatch", "sbatch --test-only").split()).stderr
    assert "in the queue" in slurm.cluster.labs(*queue.split()).stdout
    assert down == "down"


@pytest.mark.skipif(bool(unavailable()), reason=unavailable())
def test_without_a_cluster_the_error_is_one_line(tmp_path):
    (tmp_path / "empty.conf").touch()
    done = subprocess.run([sys.executable, "-m", "labs", "queue"], capture_output=True, text=True, cwd=ROOT,
                          env={"PATH": search_path(), "SLURM_CONF": str(tmp_path / "empty.conf")}, timeout=50)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"labs: error: no Slurm cluster is set up here \(.*\); run this on .*\n", done.stderr)


def test_a_job_without_gpus_in_a_gpu_partition_is_reported(student):
    line = "it would train on CPUs: each node of the partition has 2 GPUs or more, and the job asks for none; " \
           "to use them: sbatch --gpus-per-node=2 --ntasks-per-node=2\n"
    assert line in student.advice("--check", JOB)
    assert line not in student.advice("--check", "--gpus-per-node=2", "--ntasks-per-node=2", "-c1", JOB)
    assert line not in student.advice("--check", "jobs/report.sh")


@pytest.mark.parametrize(("words", "lines"), [
    (["--gpus-per-node=2"], ["1 task and 2 GPUs per node (--gpus-per-node=2 (command line)): 1 would stand"]),
    (["-N2", "--gpus=2", "--ntasks-per-node=2"], ["workers would share one"]),
    (["--gpus-per-node=4", "--ntasks-per-node=4", "-c1"], ["4 GPUs on a node, but .* have at most 2"]),
    (["-pshort"], ["--time=00:30:00 (lab10_caltech.sh) is above the limit of partition short, 00:10:00"]),
    (["-N3"], ["partition lab has 2 nodes, you asked for 3: this job never starts; --nodes=2"]),
    (["--ntasks-per-node=3", "-c2"], ["6 CPUs on a node, but the nodes of partition lab have at most 4"]),
    (["--mem-per-cpu=3G"], ["6144 MiB of memory on a node, but .* at most 4000"]),
    (["-pnowhere"], ["unknown partition 'nowhere' (command line); there are: lab, "]),
    (["-poff"], ["partition off is DOWN"]),
    (["--output=\x1b[2J/x"], [r"the folder \x1b[2J does not exist"]),
    (["-t3"], ["--signal=B:USR1@120 (lab10_caltech.sh) comes 120 s before the end of a limit of 180 s"]),
    (["-C", "infiniband"], ["Invalid feature specification; what nodes have: "]),
    (["-N3", "-c8", "-onowhere/x"], ["the folder nowhere", "you asked for 3", "8 CPUs"]),
], ids=lambda words: " ".join(words) if words[0].startswith("-") else "")
def test_nonsense_is_refused(student, words, lines):
    refused = student.refused(*words, JOB)
    lines = [re.escape(line).replace(r"\.\*", ".*") for line in lines]
    assert len(refused) == len(lines), refused
    for line, output in zip(lines, refused, strict=True):
        assert re.search(line, output), refused


def test_options_behind_the_file_are_refused(student):
    assert student.refused(JOB, "-N", "2", "--time=5", "--epochs", "3") == [
        "-N comes after lab10_caltech.sh, where Slurm does not see it; put it before the file",
        "--time=5 comes after lab10_caltech.sh, where Slurm does not see it; put it before the file",
    ]


def test_what_is_read_from_where(student, tmp_path):
    """The command line goes before the environment, and that before the file, as with sbatch itself."""
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n\n# A comment.\n#SBATCH -N3 --ntasks-per-node 1 # three\n#SBATCH --job-name='a b'\n"
                      "true\n")
    assert "you asked for 3" in student.refused(script)[0]
    assert "(SBATCH_PARTITION)" in student.refused("-N1", script, SBATCH_PARTITION="nowhere")[0]
    assert "above the limit" in student.refused("-N1", "-pshort", script, SBATCH_TIMELIMIT="60")[0]
    done = student.queue("--check", "-N1", "-pshort", "-t5", script, SBATCH_TIMELIMIT="60", SBATCH_PARTITION="nowhere")
    assert done.returncode == 0, done.stderr
    script.write_text("#!/bin/bash\ntrue\n#SBATCH -N3\n")
    assert "1 #SBATCH line of job.sh after its first command" in student.refused(script)[0]
    assert "is not a script" in student.refused(ROOT / "README.md")[0]
    assert "cannot read the job file" in student.refused(tmp_path / "none.sh")[0]


@pytest.mark.parametrize("words", [
    ["-N2", JOB, "--epochs", "3"], ["-N", "2", "--ntasks-per-node=2", "--gpus-per-node=2", JOB],
    ["--gres=gpu:2", "--ntasks-per-node=2", "-c1", JOB, "--preset", "paper"], ["-pshort,lab", JOB],
    ["-n5", "-t5", "--wrap", "true"],
], ids=" ".join)
def test_what_is_right_is_accepted_and_not_submitted(student, words):
    before = student.slurm.run("squeue", "--noheader", "--format=%i")
    output = student.advice("--check", *words).splitlines()
    assert re.match(r"asks partition \w+ for \d nodes?, \d tasks?", output[0])
    assert re.match(r"would start (now|\w{3} \d\d .*), on node", output[1])
    assert output[-1] == f"submit it: sbatch {shlex.join(words)}"
    assert student.slurm.run("squeue", "--noheader", "--format=%i") == before
