"""Every command of README and docs: most are run as written, the others are parsed.

What stands between `labs cluster up` and `down` is run as one script.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.cli import commands as commands_of_labs
from labs.run import catalogue, command_line
from labs.run.paths import ROOT
from tests.slurm.client import unavailable
from tests.tools.cluster.client import ending

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PARSED = "|".join([
    r"labs (run .*(--data DIR|--norm group|--resume)|launch )|horovodrun ",  # In tests.
    r"labs (handin|grade) |git archive ",  # They need records or hand-ins, or write into the clone.
    r"labs watch$|srun .*--pty labs notebook|tail -f ",  # They do not end.
    r"labs sweep \w+$|(\.venv/bin/)?labs data fetch |make |git clone ",  # They take minutes, or download.
    r"sudo |pipx |conda |apptainer |docker |sbatch .*apptainer |chmod |cd /shared|export PATH=/shared|.*-m compileall ",
    r"python3\.13 -m venv gpu|pip install -c |sbatch .*test-gpu",  # GPUs.
])
"""The commands that are parsed, not run: they change the machine, take long, or have tests elsewhere."""


def lines(page: Path) -> Iterator[str]:
    """Yield the lines of a page's shell blocks, without comments."""
    for block in re.findall(r"```(?:bash|sh)\n(.*?)```", page.read_text(), re.DOTALL):
        yield from filter(None, (re.sub(r"(^|\s)#.*", "", line).strip() for line in block.splitlines()))


def split(page: Path) -> tuple[list[str], list[str]]:
    """Return the commands of a page outside a cluster, and the scripts from each `labs cluster up` to its `down`."""
    text = "\n".join([*lines(page), ""])
    walks = re.findall(r"(?ms)^labs cluster up.*?^labs cluster down$\n", text)
    for walk in walks:
        text = text.replace(walk, "")
    assert "labs cluster up" not in text, f"{page.name} leaves a cluster up"
    return text.splitlines(), walks


def commands() -> Iterator[str]:
    """Yield the commands of all pages outside a cluster: those of shell blocks, and those in the text."""
    for page in PAGES:
        yield from split(page)[0]
        programs = "labs run|labs sweep|sbatch|mpirun|horovodrun"
        yield from re.findall(rf"`((?:{programs}) [^`\n]*lab\d\d_[^`\n]*)`", page.read_text())


WALKS = [pytest.param(walk, id=f"{page.stem}: {walk.splitlines()[0]}") for page in PAGES for walk in split(page)[1]]
COMMANDS = list(dict.fromkeys(commands()))


AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # As in a container.
ELSEWHERE = r"labs run |labs queue|sbatch |.*--sbatch$"
RUN = [line for line in COMMANDS if not re.match(f"{PARSED}|{ELSEWHERE}", line)]


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Run a command in bash as a student would, in the clone, with a separate results root; return its output."""
    results = tmp_path_factory.mktemp("results")

    def run(line: str, seconds: float = 200, **variables: str) -> str:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = os.environ | {"LABS_RESULTS": str(results), "PATH": path, "PYTHONPATH": str(ROOT)} | AS_ROOT | variables
        done = subprocess.run(["bash", "-euc", line], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False)
        busy = line == "labs lint" and "busy machine: " in done.stdout  # Sometimes this machine is busy.
        assert done.returncode == 0 or busy, done.stdout[-3000:]
        return done.stdout

    return run


@pytest.fixture(scope="module")
def trained(shell):
    """Train the one run of the pages that is run, so that the commands on results have a run to show."""
    (line,) = [line for line in COMMANDS if line.startswith("labs run") and not re.match(PARSED, line)]
    assert "epoch 10/10" in shell(line)
    return shell


TYPED = re.compile(r"^(labs cluster shell(?: node\d+)?)\n(.*?)^exit$", re.MULTILINE | re.DOTALL)
"""A shell on a host of the cluster, and what a student types there."""
CHANGES = {
    r"\b(50|100)mbit": r"\g<1>0mbit",
    "--epochs 30": "--epochs 12",
    r"sleep \d+": 'until ls "$LABS_RESULTS"/lab11_multinode/cut/checkpoints/epoch-*; do sleep 0.2; done',
    r"tail -F (\S+)": r'until grep "curves and record" "$LABS_RESULTS/\1"; do sleep 0.2; done',
}
"""What is not as written, to save minutes or to suit a busy machine: slow links, a long run, and waiting."""


@pytest.mark.workers
@pytest.mark.timeout(900)
@pytest.mark.parametrize("walk", WALKS)
def test_commands_on_a_cluster_run_as_written(shell, tmp_path, walk):
    """They run in one shell, and the page's own `down` ends each cluster."""
    script = walk
    if "--slurm" in script and (reason := unavailable()):
        pytest.skip(f"no Slurm to test with: {reason}")
    for pattern, instead in CHANGES.items():
        script = re.sub(pattern, instead, script)
    script = TYPED.sub(r"\1 <<'TYPED'\nset -eu\n\2TYPED", script)
    results = tmp_path / "results"
    results.mkdir()
    variables = {"SHELL": "/bin/bash", "LABS_RESULTS": str(results), "SBATCH_OUTPUT": f"{results}/%x-%j.out"}
    with ending(tmp_path / "cluster") as cluster:
        shell(script, seconds=850, LABS_CLUSTER=str(cluster.folder), **variables)
        assert cluster.labs("down").stdout == "no cluster was up\n"


@pytest.mark.workers
@pytest.mark.parametrize("line", RUN)
def test_it_runs_as_written(trained, line):
    trained(line)


def test_the_others_are_parsed(shell):
    for line in (line for line in COMMANDS if re.match(PARSED, line)):
        shell(f"bash -n -c {shlex.quote(line)}")
        words = shlex.split(line.removeprefix(".venv/bin/"))
        if words[0] == "make":
            assert "Nothing to be done" not in shell(f"make -nB {shlex.join(words[1:])}")
        elif words[:2] == ["labs", "run"]:
            options = re.sub(r"--workers \d+", "", shlex.join(words[3:]))
            command_line.parse(catalogue.load_lab(words[2]), shlex.split(options))
        elif words[:2] == ["labs", "sweep"]:
            assert commands_of_labs.dispatch([*words[1:], "--list"]) == 0
