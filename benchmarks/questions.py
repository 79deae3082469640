"""The questions of `make bench`: each runs its contenders in turns and returns rows with the required ratios."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks import programs
from benchmarks.cases import PHOTO_SIDES, STEPS
from benchmarks.rounds import interleaved
from benchmarks.table import Row, rows
from labs import SETTINGS
from labs.run.environment import CYCLE_MS, FUSION_MB
from labs.run.paths import ROOT

PYTHON = sys.executable
LABS = (PYTHON, "-m", "labs")
CEILING = "two single workers at once"
"""The most that two cores compute: the workers exchange nothing."""
OF_CEILING = {32: 0.90, 128: 0.97}
"""Required share of it for two workers that exchange gradients, by batch size."""
ByNetwork = Callable[[str], programs.Figures]
"""Measures the network of this name."""


def steps(rounds: int) -> list[Row]:
    """Compare a training step on two workers with what two cores can do, and with what a student would use instead."""
    # As on Horovod's page about mpirun: Open MPI 5 rejects the options that horovodrun passes.
    mpirun = ["mpirun", "-np", "2", "--bind-to", "none", "--map-by", "slot:oversubscribe"]
    contenders: dict[str, ByNetwork] = {
        "kit": partial(programs.kit, workers=2),
        CEILING: programs.two_at_once,
        "plain Horovod script": lambda network: programs.figures([*mpirun, PYTHON, "-m", "benchmarks.contenders.plain",
                                                                  network]),
        "MultiWorkerMirroredStrategy": lambda network: programs.contender("mwms", network, 2),
    }
    if torch := programs.torch_python():
        ddp = [torch, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "benchmarks.contenders.ddp"]
        contenders["PyTorch DDP, Gloo"] = lambda network: programs.figures([*ddp, network], OMP_NUM_THREADS="1")
    else:
        print("benchmarks: no PyTorch; set BENCH_TORCH_PYTHON to a Python that has it", file=sys.stderr)
    # Where the operations take most of a step, the ceiling bounds the lead: with oneDNN, which a strategy uses on a
    # processor with VNNI, twice its throughput would be more than two cores compute.
    bounds: dict = {"plain Horovod script": (1.3, None), "MultiWorkerMirroredStrategy": (1.0, None),
                    "PyTorch DDP, Gloo": (1.5, None)}
    for batch_size, share in OF_CEILING.items():
        bounds |= {(CEILING, f"{network}, batch {batch_size}"): (share, None) for network in STEPS}
        bounds |= {("plain Horovod script", f"mlp, batch {batch_size}"): (1.3, 2.0),
                   ("MultiWorkerMirroredStrategy", f"mlp, batch {batch_size}"): (2.0, 3.0),
                   ("PyTorch DDP, Gloo", f"mlp, batch {batch_size}"): (1.5, 2.5)}
    return rows("two-worker step", "images/s", _by_network(contenders, rounds), bounds)


def scaling(rounds: int) -> list[Row]:
    """Compare two workers on two cores with one on one core, and with two independent ones."""
    contenders: dict[str, ByNetwork] = {
        "two workers": partial(programs.kit, workers=2),
        "one worker, twice": lambda network: {case: 2 * value for case, value in programs.kit(network, 1).items()},
        CEILING: programs.two_at_once,
    }
    bounds = {(CEILING, f"{network}, batch {size}"): (share, None) for network in STEPS
              for size, share in OF_CEILING.items()}
    return rows("scaling efficiency", "images/s", _by_network(contenders, rounds), bounds, kit="two workers")


def _by_network(contenders: Mapping[str, ByNetwork], rounds: int) -> list[dict[str, programs.Figures]]:
    """Return the rounds with the figures of all networks; each network runs in separate processes, as for a student."""
    measured = [interleaved({name: partial(measure, network) for name, measure in contenders.items()}, rounds)
                for network in STEPS]
    return [{name: {case: value for figures in networks for case, value in figures[name].items()}
             for name in contenders} for networks in zip(*measured, strict=True)]


def allreduce(rounds: int) -> list[Row]:
    """Compare the all-reduce under the kit's launch settings with raw MPI's, in one run."""
    def both() -> dict[str, programs.Figures]:
        with programs.scratch() as results:
            programs.seconds(*LABS, "run", "lab05_allreduce", "--workers", "2", "--results", results, "--name", "bench",
                             "--largest-mb", "64", "--seconds", "20", "--cycle-time-ms", str(CYCLE_MS),
                             "--fusion-threshold-mb", str(FUSION_MB))
            record = json.loads((Path(results) / "lab05_allreduce/bench/record.json").read_text())
        figures: dict[str, programs.Figures] = {}
        for row in record["tables"]["collectives"]:
            if row["collective"] == "allreduce" and row["bytes"] >= 2**18:
                figures.setdefault(row["library"], {})[f"{row['bytes'] / 2**20:g} MiB"] = row["busbw"] / 1e9
        return figures

    taken = [each["both"] for each in interleaved({"both": both}, rounds)]
    bounds = {("raw MPI", "1 MiB"): (0.20, 0.50)} | {("raw MPI", f"{size} MiB"): (0.65, 0.90) for size in (16, 64)}
    return rows("all-reduce, busbw", "GB/s", taken, bounds, kit="Horovod over MPI")


def pictures(rounds: int) -> list[Row]:
    """Compare epochs over photo JPEGs, the first and the later ones, without a model."""
    samples = Path(os.environ.get("LABS_SAMPLES") or ROOT.parent / "shared/data").expanduser()
    photos = samples / "caltech-sample/256_ObjectCategories"
    if not photos.is_dir():
        print(f"benchmarks: no photos in {photos}, so this question is skipped; set LABS_SAMPLES", file=sys.stderr)
        return []
    names = ("kit", "ImageDataGenerator", "image_dataset_from_directory", "pure decode")
    first = {128: (3.0, 1.7), 224: (2.0, 1.4)}  # At 128 px 90 and 97 % of the decoder alone.
    bounds: dict = {("pure decode", f"first epoch, {side} px"): (0.95, None) for side in first}
    for name, index in (("ImageDataGenerator", 0), ("image_dataset_from_directory", 1)):
        bounds |= {(name, f"first epoch, {side} px"): (ratios[index], None) for side, ratios in first.items()}
        bounds |= {(name, f"later epochs, {side} px"): ((20.0, 10.0)[index], None) for side in (64, 128)}
    with programs.scratch() as sound:
        programs.contender("pictures", "copy", photos, sound)
        taken = interleaved({name: partial(_pictures, name, sound) for name in names}, rounds)
    return rows("photo JPEGs", "images/s", taken, bounds)


def _pictures(name: str, photos: str) -> programs.Figures:
    """Return a contender's images per second, without anything that an earlier run decoded."""
    with programs.scratch() as fresh:
        return programs.contender("pictures", name, photos, *PHOTO_SIDES, TMPDIR=fresh)


def fit(rounds: int) -> list[Row]:
    """Compare whole epochs of the kit's `fit` with Keras' own: one worker, equal data and settings."""
    contenders: dict[str, ByNetwork] = {
        "kit": partial(programs.kit, workers=1, clock="epochs"),
        "model.fit": lambda network: programs.contender("bare", network, **SETTINGS),
    }
    return rows("fit, one worker", "images/s", _by_network(contenders, rounds), {"model.fit": (0.98, 1.0)})


def start(rounds: int) -> list[Row]:
    """Compare the start-up time of commands with their limits."""
    def allowed(printing: float, running: float) -> programs.Figures:
        tensorflow = programs.seconds(PYTHON, "-c", "import tensorflow")
        return {"labs --help": printing, "labs": printing, "labs run, to Horovod's init": tensorflow + running}

    def labs() -> programs.Figures:
        return {"labs --help": programs.seconds(*LABS, "--help"), "labs": programs.seconds(*LABS),
                **_to_init()}

    contenders = {"labs": labs, "0.3 s, TensorFlow + 0.7 s": lambda: allowed(0.3, 0.7),
            "0.15 s, TensorFlow + 0.3 s": lambda: allowed(0.15, 0.3)}
    bounds = dict(zip(list(contenders)[1:], [(1.0, None), (None, 1.0)], strict=True))
    return rows("start", "s", interleaved(contenders, rounds), bounds, kit="labs", smaller_is_better=True)


def _to_init() -> programs.Figures:
    with programs.scratch() as results:
        run = (*LABS, "run", "lab02_horovod", "--workers", "1", "--results", results)
        return {"labs run, to Horovod's init": programs.seconds_to_line("lab02_horovod: ", *run)}


def growth(rounds: int) -> list[Row]:
    """Compare the time for a million files and ten thousand records with the limits."""
    with programs.scratch() as folder:
        programs.contender("growth", "make", folder)
        results, page = f"{folder}/results", f"{folder}/report.html"
        contenders = {
            "labs": lambda: programs.contender("growth", "files", folder) | {
                "labs lint, 10,000 records": programs.seconds(*LABS, "lint", results),
                "labs report, 10,000 records": programs.seconds(*LABS, "report", "--results", results,
                                                                "--output", page),
            },
            "budget": lambda: {"index, split, shard of 1,000,000 files": 10.0} | _records(5.0),
            "target": lambda: _records(1.0),
        }
        return rows("growth", "s", interleaved(contenders, rounds), {"budget": (1.0, None), "target": (None, 1.0)},
                    kit="labs", smaller_is_better=True)


def _records(seconds: float) -> programs.Figures:
    return {f"labs {command}, 10,000 records": seconds for command in ("lint", "report")}


def memory(rounds: int) -> list[Row]:
    """Compare the memory of the pipeline's process after ten epochs with that after three, in one run."""
    def both() -> dict[str, programs.Figures]:
        held = programs.contender("growth", "memory")
        return {epoch: {"the pipeline's process": mib} for epoch, mib in held.items()}

    taken = [each["both"] for each in interleaved({"both": both}, rounds)]
    return rows("memory", "MiB", taken, {"epoch 3": (0.98, 1.0)}, kit="epoch 10", smaller_is_better=True)


QUESTIONS: dict[str, Callable[[int], list[Row]]] = {
    each.__name__: each for each in (steps, scaling, allreduce, pictures, fit, start, growth, memory)
}
