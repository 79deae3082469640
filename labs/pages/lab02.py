"""Page 2: a student's own script; speedup and accuracy of 1, 2 and 4 workers beside report M's; wrong shards."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from labs.pages import plots
from labs.pages.plots import Runs
from labs.results import noise, records, scaling
from labs.run import atomic, mpirun, supervisor
from labs.run.errors import LabError
from labs.run.paths import ROOT, results_dir

SETTING = ["epochs", "size"]
ORDERS = {"sharded": "one order, sharded", "own_seeds": "own seeds", "unsharded": "unsharded"}
"""What each worker's images are, by the Config's `order`."""
RANK = re.compile(r"^\[(?:[^\]]*[,@])?(\d+)\]<std(?:out|err)>: ?", re.MULTILINE)
"""What horovodrun writes before each line of a worker."""
LIMIT = 300  # Seconds after which a command is ended.


def least_squares_paths(paths: Mapping[str, Sequence[ArrayLike]], x: np.ndarray, y: np.ndarray) -> Figure:
    """Draw each rank's path over the mean of (x w - y)^2, with the minimum of each rank's examples and that of all.

    Of N ranks, rank r has the examples x [n, 2] and targets y [n, 1] from r on, every N-th.
    """
    def loss(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return ((first[..., None] * x[:, 0] + second[..., None] * x[:, 1] - y[:, 0]) ** 2).mean(axis=-1)

    size = len(next(iter(paths.values())))
    figure = plots.loss_paths(paths, loss, [f"rank {rank}" for rank in range(size)])
    minima = [(slice(rank, None, size), "x", plots.RANK_COLOURS[rank], f"best for rank {rank}'s examples")
              for rank in range(size)]
    for rows, marker, colour, label in (*minima, (slice(None), "+", "black", "best for all examples")):
        best = np.linalg.lstsq(x[rows], y[rows], rcond=None)[0].ravel()
        for axes in figure.axes:
            axes.plot(*best, marker, color=colour, markersize=9, markeredgewidth=2, zorder=5, label=label)
    return plots.finish(figure.axes[-1])


class Result(NamedTuple):
    """What a script prints at its end: steps per epoch, and the mean loss of the test images."""

    steps: int
    loss: float


def prepare_scripts() -> Path:
    """Return the results folder with plain.py, finished.py, and the student's train.py, at first a copy of plain.py."""
    folder = results_dir()
    folder.mkdir(parents=True, exist_ok=True)
    plain = (ROOT / "examples/plain/train.py").read_text()
    atomic.write_text(folder / "plain.py", plain)
    atomic.write_text(folder / "finished.py", (ROOT / "examples/lab02_horovod.py").read_text())
    if not (folder / "train.py").exists():
        atomic.write_text(folder / "train.py", plain)
    return folder


def choose_script() -> str:
    """Return "train.py" if the student has changed it, otherwise "finished.py"."""
    folder = results_dir()
    changed = (folder / "train.py").read_text() != (folder / "plain.py").read_text()
    return "train.py" if changed else "finished.py"


def run_command(command: str) -> list[Result]:
    """Run a command in the results folder, print it and its output, and return the results that it printed."""
    env = mpirun.environment(bar=False)
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    done = supervisor.complete(["bash", "-c", command], LIMIT, env, results_dir())
    text = RANK.sub(r"rank \1: ", done.out).strip()
    print(f"$ {command}\n{text}")
    if done.code != 0:
        print(*RANK.sub(r"rank \1: ", done.err).splitlines()[-20:], sep="\n")
        how = f"had not ended after {LIMIT} s" if done.code is None else f"ended with code {done.code}"
        raise LabError(f"`{command}` {how}; the last lines above say why")
    return [Result(int(steps), float(loss)) for steps, loss in
            re.findall(r"(\d+) steps per epoch, test loss ([\d.]+)", text)]


def speedup_text(runs: Mapping[int, dict[str, Any]], seconds: Mapping[int, float], speedups: Mapping[int, float],
                 efficiencies: Mapping[int, float]) -> str:
    """Return a table of runs by their number of workers, T(N), S(N) and E(N), and what it says, as Markdown."""
    rows = [f"| {size} | {seconds[size]:.2f} | {speedups[size]:.2f} | {efficiencies[size]:.2f} |" for size in runs]
    table = "\n".join(["| N | T(N) in s | S(N) | E(N) |", "|---|---|---|---|", *rows])
    most = max(runs)
    if problem := scaling.warn_above_one(efficiencies[most]) or noise.warning(*runs.values()):
        return f"{table}\n\n**{problem}**"
    steps = {size: run["history"][-1]["steps"] for size, run in runs.items()}
    step = {size: 1000 * seconds[size] / steps[size] for size in runs}
    why = ": the exchange, the waiting and the shared hardware take time. Lab 4 separates them" * (step[most] > step[1])
    return (f"{table}\n\n**{most} workers train {speedups[most]:.2f} times as fast as one, not {most} times** (one "
            f"run each). Each takes {steps[most]} steps per epoch instead of {steps[1]}. A step takes "
            f"{step[most]:.1f} ms instead of {step[1]:.1f} ms{why}.")


def _with_code(runs: Runs, code: str) -> Runs:
    """Return the runs with the kit's `fit` ("kit"), or those of the study of orders ("textbook")."""
    return [run for run in runs if run["config"]["code"] == code]


def reference_table(runs: Runs) -> pd.DataFrame:
    """Return accuracy (mean), all seconds, speedup and efficiency by epochs and workers, of the kit's `fit`."""
    frame = records.table(_with_code(runs, "kit"))
    table = scaling.speedups(frame).set_index(SETTING)
    table["test_accuracy"] = frame.groupby(SETTING)["test_accuracy"].mean()
    later = table.index.get_level_values("epochs") - 1
    table["train_seconds"] = table["first_epoch_seconds"] + later * table["seconds_per_epoch"]
    return table


def report_m() -> pd.DataFrame:
    """Return report M's runs on one node in the same columns; its speedups are computed from its times."""
    table = pd.read_csv(ROOT / "data/reference/lab02_mnist_accuracy.csv")
    table = table[table["nodes"] == 1].rename(columns={"workers": "size"}).set_index(SETTING)
    table["speedup"] = table["train_seconds"][40, 1] / table["train_seconds"]
    table["scaling_efficiency"] = table["speedup"] / table.index.get_level_values("size")
    return table


def speedup_figure(ours: pd.DataFrame, report: pd.DataFrame, runs: Runs, cores: int) -> Figure:
    """Draw the speedup with its ceilings, on cores that the workers share, and the accuracies of both sources."""
    left, middle, right = plots.panels(3, 3.6)
    sizes = sorted(set(ours.index.get_level_values("size")))
    for number, (epochs, rows) in enumerate(ours.groupby("epochs")):
        colour, shift = plots.COLOURS[number], 0.12 * number
        theirs, speedups = report.loc[epochs], report.loc[epochs, "speedup"].dropna()
        mine = [run for run in _with_code(runs, "kit") if run["config"]["epochs"] == epochs]
        left.errorbar(rows.index.get_level_values("size") + shift, rows["speedup"],
                      plots.error_lengths(rows, "speedup"), fmt="o", capsize=3, color=colour,
                      label=f"two cores, {epochs} epochs")
        left.plot(speedups.index + shift, speedups, "s", color=colour, mfc="none", label=f"report M, {epochs} epochs")
        middle.plot([run["layout"]["size"] + shift for run in mine], [run["metrics"]["test_accuracy"] for run in mine],
                    "o", color=colour)
        right.plot(theirs.index + shift, theirs["test_accuracy"], "s", color=colour, mfc="none")
    left.plot(sizes, sizes, ":", color="0.5", label="ceiling, a GPU each: S = N")
    left.plot(sizes, [min(size, cores) for size in sizes], "--", color="0.5", label=f"ceiling, {cores} cores")
    left.set(title="speedup", ylabel="speedup S(N)", ylim=(0, None))
    middle.set(title="two cores, 1,024 images", ylabel="test accuracy")
    right.set(title="report M, 60,000 images", ylabel="test accuracy")
    for axes in (left, middle, right):
        axes.set(xlabel="workers N", xticks=sizes)
    return plots.finish_below(left, 3)


def compare_accuracies(runs: Runs, epochs: int = 40) -> dict[int, noise.Comparison]:
    """Compare the accuracies of several workers with those of one, within seeds: by the number of workers."""
    frame = records.table(_with_code(runs, "kit")).query("epochs == @epochs")
    by_size = {size: rows.set_index("seed")["test_accuracy"] for size, rows in frame.groupby("size")}
    one = by_size.pop(1)
    return {size: noise.compare(each, one, comparisons=len(by_size), digits=3) for size, each in by_size.items()}


def pooled_speedups(runs: Runs) -> dict[int, noise.Comparison]:
    """Return the speedup of several workers over all undisturbed runs, within seeds and numbers of epochs."""
    frame = records.table(_with_code(runs, "kit")).query("disturbed == ''")
    by_size = {size: rows.set_index(["epochs", "seed"])["images_per_sec"] for size, rows in frame.groupby("size")}
    one = by_size.pop(1)
    return {size: noise.compare(each, one, ratio=True, comparisons=len(by_size)) for size, each in by_size.items()}


def order_table(runs: Runs) -> pd.DataFrame:
    """Return each setting's mean accuracy in the study of orders, and by how much it is below that of right shards.

    Differences are taken within a seed: such runs start from the same weights. The intervals hold together.
    """
    rows = [run["config"] | {"accuracy": run["metrics"]["test_accuracy"]} for run in _with_code(runs, "textbook")]
    wide = pd.DataFrame(rows).pivot(index="seed", columns=["order", "reshuffle"], values="accuracy")
    table = {}
    for cell in wide.drop(columns=[("sharded", True)]):
        lost = noise.compare(wide["sharded", True], wide[cell], comparisons=wide.shape[1] - 1)
        table[cell] = {"lost": lost.value, "low": lost.low, "high": lost.high, "noise": not lost.resolved}
    table["sharded", True] = {"noise": True}
    result = pd.DataFrame.from_dict(table, orient="index").assign(accuracy=wide.mean())
    return result.reindex([(order, reshuffle) for order in ORDERS for reshuffle in (True, False)])


def format_change(row: pd.Series) -> str:
    """Return the change of a row of `order_table`, with its interval, as text."""
    return f"{-row['lost']:+.3f} ± {row['high'] - row['lost']:.3f}" + " (not resolved)" * bool(row["noise"])


def order_figure(runs: Runs) -> Figure:
    """Draw the test accuracy of each run of the study of orders; hollow: the epoch was forgotten."""
    (axes,) = plots.panels(1, 3.4)
    for column, order in enumerate(ORDERS):
        for reshuffle, shift, fill in ((True, -0.12, plots.COLOURS[0]), (False, 0.12, "none")):
            values = [run["metrics"]["test_accuracy"] for run in _with_code(runs, "textbook")
                      if (run["config"]["order"], run["config"]["reshuffle"]) == (order, reshuffle)]
            axes.plot([column + shift] * len(values), values, "o" if reshuffle else "D", color=plots.COLOURS[0],
                      mfc=fill, label=None if column else "new order in each epoch" if reshuffle else "epoch forgotten")
    axes.set_xticks(range(len(ORDERS)), list(ORDERS.values()))
    axes.set(ylabel="test accuracy", xlim=(-0.5, len(ORDERS) - 0.5))
    return plots.finish(axes)
