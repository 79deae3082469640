"""Whether the labs train bit for bit as at another commit: `python -m tests.equal COMMIT`.

The demo of each lab that trains (labs 5, 11 and 13 mostly measure) runs here and in a worktree of that commit, on one
worker and on two; histories, metrics and data of the records are compared without their times, and the weights of the
last checkpoint. An interrupted comparison goes on.
"""

import argparse
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from labs.run.paths import ROOT

LABS = ("lab01", "lab02", "lab03", "lab04", "lab06", "lab07", "lab08", "lab09", "lab10", "lab12")
ALONE = ("lab01", "lab12")
"""Run on one worker only: lab 12 kills a worker at a random moment if it has two."""
TIMES = ("seconds", "time")
LEARNED = ("accuracy", "loss", "mae", "psnr")
"""What the names of metrics contain that a busy machine does not change."""


def main() -> None:
    """Compare; exit with 1 if a lab differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.equal", description=__doc__)
    parser.add_argument("commit")
    commit = parser.parse_args().commit
    there = Path(tempfile.gettempdir()) / f"labs-equal-{os.getuid()}-{commit}"
    if not there.exists():
        subprocess.run(["git", "worktree", "add", "--force", "--detach", "--quiet", there, commit], cwd=ROOT,
                       check=True)
    different = []
    for lab, workers in itertools.product(LABS, (1, 2)):
        if workers == 1 or lab not in ALONE:
            old, new = _trained(there, lab, workers, commit), _trained(ROOT, lab, workers, "here")
            parts = [part for part in old if old[part] != new[part]]
            print(f"{lab} on {workers}: {', '.join(parts) or 'equal'}", flush=True)
            different += [f"{lab} on {workers}"] * bool(parts)
    sys.exit(f"different from {commit}: {', '.join(different)}" if different else 0)


def _trained(checkout: Path, lab: str, workers: int, name: str) -> dict:
    """Return what a run of a checkout's lab computes, without times; a finished run of another commit is kept."""
    results = Path(tempfile.gettempdir()) / f"labs-equal-{os.getuid()}-{name}-results"
    command = [sys.executable, "-m", "labs", "run", lab, "--workers", str(workers), "--name", f"w{workers}"]
    found = list(results.glob(f"{lab}*/w{workers}/record.json"))
    if not found or name == "here":
        for path in found:
            shutil.rmtree(path.parent)
        path = os.pathsep.join([str(checkout), str(checkout / "horovod_keras3")])
        subprocess.run(command, cwd=checkout, env=os.environ | {"PYTHONPATH": path, "LABS_RESULTS": str(results)},
                       check=True, stdout=subprocess.DEVNULL)
        found = list(results.glob(f"{lab}*/w{workers}/record.json"))
    record = json.loads(found[0].read_text())
    checkpoints = sorted(found[0].parent.glob("checkpoints/epoch-*.npz"))
    return {part: _untimed(record[part]) for part in ("config", "data", "history")} | {
        "metrics": {name: value for name, value in record["metrics"].items() if any(each in name for each in LEARNED)},
        "weights": digest(checkpoints[-1]) if checkpoints else None}


def digest(checkpoint: Path) -> str:
    """Return the SHA-256 of the weights and the optimizer's state in a checkpoint."""
    whole = hashlib.sha256()
    with np.load(checkpoint) as arrays:
        for name in sorted(name for name in arrays.files if name.startswith("v")):
            whole.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode() + arrays[name].tobytes())
    return whole.hexdigest()


def _untimed(value):
    if isinstance(value, dict):
        return {key: _untimed(each) for key, each in value.items() if not any(time in key for time in TIMES)}
    return [_untimed(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
