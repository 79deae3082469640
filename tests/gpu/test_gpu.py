"""The kit on this machine's GPUs: `make test-gpu` (docs/setup.md). Prints what was measured."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labs.results import records, scaling
from labs.run import resources

GPUS = len(resources.gpus())
WORKERS = max(2, GPUS)
"""One worker per GPU; on a single GPU two share it, so that NCCL is tested there, too."""
TRAININGS = {
    "lab02_horovod": ["--batch-size", "128"],
    "lab05_allreduce": ["--largest-mb", "64"],
    # Report A's batch on a GPU is 128. Half of it also fits a GPU with 8 GB.
    "lab08_throughput": ["--model", "resnet50", "--image-size", "224", "--batch-size", str(64 * GPUS // WORKERS),
                         "--input", "synthetic", "--steps-per-epoch", "20", "--epochs", "3", "--test-split", "0"],
}
SHOWN = ("images_per_sec", "gpu_memory_bytes", "latency_seconds", "busbw_gb_per_sec")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600), pytest.mark.skipif(not GPUS, reason="this machine has no GPU")]


def labs(*words: object) -> str:
    """Run a `labs` command and return what it prints."""
    shared = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"} if GPUS == 1 else {}
    done = subprocess.run([sys.executable, "-m", "labs", *map(str, words)], env=os.environ | shared, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def train(root: Path, lab: str, workers: int, *options: str) -> dict[str, Any]:
    """Run a lab and return its record."""
    labs("run", lab, "--workers", workers, "--results", root, *options)
    (record,) = records.read_all(lab, root)
    return record


@pytest.mark.parametrize("name", ["tensorflow", "horovod", "gpus", "proof"])
def test_labs_check_finds_nothing_wrong(name):
    found = [line for line in labs("check", "--only", name).splitlines() if name in line.split()[1:2]]
    assert [line.split()[0] for line in found] == ["ok"] * len(found) != [], found


@pytest.mark.parametrize("lab", TRAININGS)
def test_each_worker_has_a_gpu_and_gradients_go_over_nccl(tmp_path, lab):
    record = train(tmp_path, lab, WORKERS, *TRAININGS[lab])
    layout, metrics = record["layout"], record["metrics"]
    assert (layout["size"], layout["gpus"], layout["backend"]) == (WORKERS, GPUS, "NCCL")
    assert all(math.isfinite(row["loss"]) for row in record["history"])
    assert metrics.get("gpu_percent", 1) > 0, "idle; a MIG instance reports no utilization"
    figures = {"images_per_sec": record["timings"]["images_per_sec"]} | metrics
    print(f"\n{lab}, {WORKERS} workers:", {name: figures[name] for name in SHOWN if figures.get(name)})


def test_one_worker_trains_on_a_gpu(tmp_path):
    record = train(tmp_path, "lab01_baseline", 1)
    assert record["layout"]["gpus"] == 1
    assert math.isfinite(record["history"][-1]["loss"])


@pytest.mark.skipif(GPUS < 2, reason="a speedup needs two GPUs")
def test_a_speedup_of_two_gpus_has_an_interval(tmp_path):
    todo = ["--only", "weak", "--workers", "1,2", "--repeats", "3", "--results", tmp_path]
    settings = ["--model", "resnet18", "--images", "0", "--batch-size", "128", "--threads", "0"]
    print("\n" + labs("sweep", "lab04", *todo, *settings))
    runs = records.read_all("lab04_speedup", tmp_path)
    assert sorted(run["layout"]["gpus"] for run in runs) == [1, 1, 1, 2, 2, 2]
    assert {run["layout"]["backend"] for run in runs} == {"none", "NCCL"}
    two = scaling.speedups(records.table(runs)).set_index("size").loc[2]
    assert 0 < two["speedup_low"] < two["speedup"] < two["speedup_high"]
