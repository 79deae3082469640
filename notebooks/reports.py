"""Write the tables of docs/five-reports.md from data/reference: what each report printed, and what its figures give.

    python notebooks/reports.py       `make notebooks` and `make notebook-run` also run it
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

import pandas as pd

from labs.lint import rules, tables
from labs.pages import at_scale, laws, reports
from labs.results import noise
from labs.results.tables import Grid
from labs.run import atomic
from labs.run.paths import ROOT

PAGE = ROOT / "docs/five-reports.md"
MARKED = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
RESNET18, KERAS_CNN = 4 * 11_173_962, 4 * 1_199_882
"""Bytes of the gradients of ResNet-18, and of the network of Keras' MNIST example, which we assume for report M."""


def read(name: str) -> pd.DataFrame:
    """Return a table of data/reference."""
    return pd.read_csv(ROOT / f"data/reference/{name}.csv")


def figure(value: float | str, form: str = "") -> str:
    """Return a figure as text; nothing if there is none."""
    return "" if isinstance(value, float) and math.isnan(value) else format(value, form)


def fruits() -> Iterator[dict[str, str]]:
    """Report F's three rows, and the speedups that follow from their times."""
    rows = read("lab09_fruits")
    alone = rows.iloc[0]
    for row in rows.itertuples():
        in_all, by_epoch = (alone["total_seconds"] / row.total_seconds,
                            alone["seconds_per_epoch"] / row.seconds_per_epoch)
        efficiency = in_all / row.workers
        yield {"printed: row": row.part, "GPUs": figure(row.workers, ".0f") or "missing",
               "learning rate": figure(row.learning_rate) or "missing", "s in all": figure(row.total_seconds),
               "s per epoch": figure(row.seconds_per_epoch, ".0f"), "accuracy": figure(row.accuracy),
               "computed: epochs, at most": figure(row.total_seconds / row.seconds_per_epoch, ".1f"),
               "S by the epoch": figure(by_epoch, ".1f"), "S by the total": figure(in_all, ".1f"),
               "E": figure(efficiency, ".2f") + " (impossible)" * bool(efficiency > 1)}


def mnist() -> Iterator[dict[str, str]]:
    """Report M's runs: the workers that the steps give, standard errors, speedups."""
    speedups = reports.speedups("lab02", ["epochs"]).set_index(["epochs", "size"])["speedup"]
    rows = read("lab02_mnist_accuracy")
    alone = rows.query("epochs == 40 and workers == 1").iloc[0]
    for row in rows.itertuples():
        ran = row.workers if math.isnan(row.steps) else round(alone["steps"] / row.steps)
        speedup = alone["train_seconds"] / row.train_seconds
        assert ran != row.workers or math.isnan(speedup) or math.isclose(speedup, speedups[row.epochs, ran])
        yield {"printed: epochs": figure(row.epochs), "nodes": figure(row.nodes), "GPUs": figure(row.workers),
               "accuracy": f"{row.test_accuracy:.4f}", "s": figure(row.train_seconds, ".1f"),
               "steps": figure(row.steps, ",.0f"),
               "computed: standard error": f"{noise.standard_error(row.test_accuracy, 10_000):.4f}",
               "workers": figure(ran) if not math.isnan(row.steps) else "", "S": figure(speedup, ".2f"),
               "E": figure(speedup / ran, ".2f")}


def step_of_mnist() -> dict[int, float]:
    """Return the milliseconds per step of report M's timed runs, by their workers."""
    rows = read("lab02_mnist_accuracy").dropna(subset="train_seconds")
    seconds = dict(zip((1, 2, 4, 6), rows["train_seconds"], strict=True))  # 3,120 steps are those of six workers.
    return {n: 1e3 * each * n / (40 * 60_000 / 128) for n, each in seconds.items()}


def mnist_steps() -> Iterator[dict[str, str]]:
    """Milliseconds per step of report M's timed runs, and what could explain them."""
    step = step_of_mnist()
    for n in step:
        bus = at_scale.predict(n, step[1] / 1e3, gradient_bytes=KERAS_CNN, workers_per_node=min(n, 4))
        speedup = n * step[1] / step[n]
        yield {"workers": str(n), "ms per step": f"{step[n]:.1f}",
               "ms more than one": f"{step[n] - step[1]:.1f}", "times one": f"{step[n] / step[1]:.2f}",
               "predicted ms more": f"{1e3 * bus.exposed_seconds:.1f}",
               "Amdahl's s": f"{laws.amdahl_share(n, speedup):.2f}" if n > 1 else ""}


def mnist_link() -> str:
    """Say what a ring would need to explain the step of two GPUs in report M, and what it implies for four."""
    step = step_of_mnist()
    more, bound = step[2] - step[1], 1.5 * step[2] - 0.5 * step[1]  # A ring of four sends 1.5 times the bytes.
    errors = (bound - step[4]) / (step[4] + 1.5 * step[2] + 0.5 * step[1])
    link, most = KERAS_CNN / more / 1e3, 4 * step[1] / bound
    return (f"If these {more:.1f} ms were a ring's, its link would carry {link:.0f} MB/s, and four GPUs would reach at "
            f"most\nS(4) = {most:.2f}; they reached {4 * step[1] / step[4]:.2f}. Only errors above "
            f"{math.floor(1000 * errors) / 10} % in each run, in the unfavourable directions, would\nundo this.")


def mnist_differences() -> Iterator[dict[str, str]]:
    """Differences between report M's accuracies, by the noise of its test images."""
    rows, compared = read("lab02_mnist_accuracy"), ((0, 2), (3, 5), (0, 3), (1, 4), (2, 5), (7, 8), (8, 9))
    for one, other in compared:
        pair = rows.iloc[[one, other]]
        p, q = pair["test_accuracy"]
        names = [f"{row.epochs} epochs, {row.workers} on {row.nodes}" for row in pair.itertuples()]
        verdict = noise.compare_shares(q, p, 10_000, comparisons=len(compared))
        errors = (q - p) / math.hypot(*(noise.standard_error(share, 10_000) for share in (p, q)))
        yield {"run": f"{names[0]}: {p:.4f}", "other run": f"{names[1]}: {q:.4f}", "difference": f"{q - p:+.4f}",
               "standard errors": f"{errors:+.1f}", "by the images": str(verdict).partition(":")[0]}


def busy() -> Iterator[dict[str, str]]:
    """Report M's utilization, and what the formula b / (b + half) gives from its first figure."""
    rows = read("lab01_gpu_utilization").set_index("batch_size")["gpu_utilization_percent"]
    half = 128 * (100 / rows[128] - 1)
    for b, printed in rows.items():
        yield {"printed: batch": f"{b:,}", "GPU busy": f"{printed} %",
               "computed from the first row: busy": f"{100 * b / (b + half):.0f} %"}


def cifar() -> pd.DataFrame:
    """Return report C's table with short names, and the milliseconds of a step."""
    rows = read("lab04_speedup").rename(columns={
        "batch_size_per_worker": "b", "workers": "N", "seconds_per_epoch": "epoch", "speedup": "printed",
        "compute_seconds": "compute", "communication_seconds": "comm", "bandwidth_gb_per_sec": "GBps"})
    return rows.assign(step=1e3 * rows["epoch"] * rows["b"] * rows["N"] / 50_000)


def cifar_speedups() -> Iterator[dict[str, str]]:
    """Report C's speedups: the ratio that it printed, and the right one."""
    rows, right = cifar(), reports.speedups("lab04", ["batch_size"]).set_index(["batch_size", "size"])
    epoch, smaller = rows.set_index(["b", "N"])["epoch"], {128: 32, 512: 128}
    for row in rows.itertuples():
        base = smaller.get(row.b, row.b)
        assert math.isclose(row.printed, epoch[base, row.N] / row.epoch, rel_tol=1e-4)
        speedup, efficiency = right.loc[(row.b, row.N), ["speedup", "scaling_efficiency"]]
        yield {"printed: b": str(row.b), "GPUs": str(row.N), "s per epoch": f"{row.epoch:.2f}",
               "speedup": f"{row.printed:.2f}", "which is": f"T(b = {base}, N = {row.N}) / T(b = {row.b}, N = {row.N})",
               "computed: S": f"{speedup:.2f}", "E": f"{efficiency:.2f}"}


def cifar_steps() -> Iterator[dict[str, str]]:
    """Milliseconds per step of report C, which the exchange alone cannot explain."""
    rows = cifar()
    one = rows[rows["N"] == 1].set_index("b")["step"]
    for row in rows.itertuples():
        yield {"b": str(row.b), "GPUs": str(row.N), "images/s": f"{50_000 / row.epoch:,.0f}",
               "ms per step": f"{row.step:.1f}", "ms more than one GPU": f"{row.step - one[row.b]:.1f}",
               "times one GPU": f"{row.step / one[row.b]:.2f}",
               "compute part (ms)": figure(row.compute / row.epoch * row.step, ".1f")}


def cifar_errors() -> str:
    """Say how large report C's errors must be for its extra time not to grow with the batch."""
    step = cifar().set_index(["b", "N"])["step"]
    small, large = (step[b, 4] - step[b, 1] for b in (32, 512))
    errors = (large - small) / sum(step[b, n] for b in (32, 512) for n in (1, 4))
    return f"Errors of {math.floor(100 * errors)} % in every run would not be enough to undo this."


def cifar_strong() -> Iterator[dict[str, str]]:
    """The two pairs of report C's table with the same global batch."""
    epoch = cifar().set_index(["b", "N"])["epoch"]
    for b in (128, 512):
        yield {"global batch": str(b), "one GPU": f"{epoch[b, 1]:.2f} s", "four GPUs": f"{epoch[b // 4, 4]:.2f} s",
               "strong: S(4)": f"{epoch[b, 1] / epoch[b // 4, 4]:.2f}",
               "weak, same b per GPU: S(4)": f"{epoch[b, 1] / epoch[b, 4]:.2f}"}


def cifar_parts() -> Iterator[dict[str, str]]:
    """Report C's parts of an epoch: their sum, and the bandwidth that its seconds would need."""
    for row in cifar().dropna(subset="comm").itertuples():
        steps = -(-50_000 // (row.b * row.N))
        sent = steps * RESNET18 / 1e9
        missing = row.epoch - row.compute - row.comm
        yield {"printed: b": str(row.b), "GPUs": str(row.N), "s per epoch": f"{row.epoch:.1f}",
               "compute (s)": f"{row.compute:.1f}", "communication (s)": f"{row.comm:.3f}", "GB/s": f"{row.GBps:.2f}",
               "computed: in neither part": f"{missing:.1f} s, {100 * missing / row.epoch:.0f} %",
               "seconds x GB/s": f"{1e3 * row.comm * row.GBps:.0f} MB", "gradients (GB)": f"{sent:.1f}",
               "GB/s that they need": f"{sent / row.comm * 2 * (row.N - 1) / row.N:.0f}"}


def cifar_accuracy() -> Iterator[dict[str, str]]:
    """Report C's large batch: the updates behind its figures."""
    for row in read("lab04_large_batch_accuracy").itertuples():
        batch = row.workers * row.batch_size_per_worker
        yield {"printed: run": row.part, "b": str(row.batch_size_per_worker), "training loss": f"{row.train_loss:.4f}",
               "training accuracy": f"{row.train_accuracy:.4f}", "computed: global batch": f"{batch:,}",
               "updates": f"{row.epoch * -(-50_000 // batch):,}"}


def traffic() -> Iterator[dict[str, str]]:
    """Report T's bytes, divided by the steps of an epoch."""
    for row in read("lab07_transported_bytes").itertuples():
        steps = -(-60_000 // row.batch_size_per_worker)
        assert row.forward_bytes == 60_000 * 28 * 28 * 4
        per_step = {column: getattr(row, f"{column}_bytes") / steps for column in ("allreduce", "backward")}
        yield {"printed: batch": str(row.batch_size_per_worker), "forward bytes": f"{row.forward_bytes:,}",
               "backward bytes": f"{row.backward_bytes:,}",
               "all-reduce bytes": f"{row.allreduce_bytes:,}", "computed: steps": f"{steps:,}",
               "all-reduce bytes per step": figure(per_step["allreduce"], ",g"),
               "backward bytes per step": figure(per_step["backward"], "g")}


MISSING = ("depth, width, batch, memory of the GPU", "the batch per GPU, the only thing that shrinks",
           "seconds; bytes of the gradients and the link", "seconds; bytes of the gradients and the link",
           "the two values, seeds", "the two values, seeds", "seconds, the network, the link")
"""What report T's answers in words lack, in the order of its table."""


def words() -> Iterator[dict[str, str]]:
    """Report T's answers in words, and what a reader would need to check each."""
    for row, missing in zip(read("lab07_backends").itertuples(), MISSING, strict=True):
        yield {"printed: question": row.question, "answer": row.answer_as_reported, "missing": missing}


def nodes() -> Iterator[dict[str, str]]:
    """Report A's weak scaling: its speedups, and those of its images per second."""
    rows, printed = read("lab08_throughput"), read("lab08_speedup").query("experiment == 'weak scaling'")
    for row in printed.itertuples():
        mine = rows[(rows["device"] == row.device) & (rows["model"] == row.model)]
        one = mine[mine["nodes"] == 1]["images_per_sec"].iloc[-1]  # On CPUs that of the weak scaling itself.
        eight = mine[mine["nodes"] == 8]["images_per_sec"].item()
        speedup = eight / one
        yield {"printed: device": row.device, "network": row.model, "images/s, 1 node": f"{one:.2f}",
               "8 nodes": f"{eight:.2f}", "S(8)": f"{row.speedup:.2f}", "computed: S(8)": f"{speedup:.2f}",
               "E": f"{speedup / 8:.2f}" + " (impossible)" * bool(speedup > 8),
               "images/s of one node by the printed S": f"{eight / row.speedup:.1f}",
               "of a node among eight": f"{eight / 8:.1f}"}


def nodes_strong() -> Iterator[dict[str, str]]:
    """Report A's strong scaling beside its weak scaling, on CPUs."""
    printed = read("lab08_speedup").query("device == 'cpu'").pivot(
        index="model", columns="experiment", values="speedup")
    for model, row in printed.iterrows():
        yield {"printed: network": str(model), "strong: S(8)": f"{row['strong scaling']:.2f}",
               "weak: S(8)": f"{row['weak scaling']:.2f}", "computed: strong: E": f"{row['strong scaling'] / 8:.2f}"}


TABLES: dict[str, Callable[[], Iterator[dict[str, str]]]] = {program.__name__: program for program in (
    fruits, mnist, mnist_steps, mnist_differences, busy, cifar_speedups, cifar_steps, cifar_strong, cifar_parts,
    cifar_accuracy, traffic, words, nodes, nodes_strong)}
SENTENCES: dict[str, Callable[[], str]] = {"mnist_link": mnist_link, "cifar_errors": cifar_errors}
LINTED = {"lint_F": ("lab09_fruits",), "lint_M": ("lab02_mnist_accuracy",),
          "lint_C": ("lab04_speedup", "lab04_large_batch_accuracy"), "lint_T": ("lab07_transported_bytes",),
          "lint_A": ("lab08_throughput", "lab08_speedup")}


def lint(files: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """What `labs lint` finds in some tables: a row per rule."""
    for name in files:
        found: defaultdict[str, set[int]] = defaultdict(set)
        for each in rules.judge(tables.read(ROOT / f"data/reference/{name}.csv")):
            found[each.rule].update(each.lines)
        for rule, lines in found.items():
            yield {"labs lint finds in": f"{name}.csv", "rule": rule, "lines": ", ".join(map(str, sorted(lines)))}


def block(name: str) -> str:
    """Return what stands between a table's markers."""
    if name in SENTENCES:
        return SENTENCES[name]()
    rows = list(lint(LINTED[name]) if name in LINTED else TABLES[name]())
    return Grid(name, list(rows[0]), [list(row.values()) for row in rows]).markdown()


def page(text: str) -> str:
    """Return docs/five-reports.md with its tables made again."""
    return MARKED.sub(lambda match: f"{match[1]}\n{block(match[2])}\n\n{match[3]}", text)


if __name__ == "__main__":
    atomic.write_text(PAGE, page(PAGE.read_text(encoding="utf-8")))
