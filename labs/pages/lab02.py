"""Page 2: a student's own script; speedup and accuracy of 1, 2 and 4 workers beside report M's; wrong shards."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from labs.launch import mpirun, supervisor
from labs.pages import plots
from labs.results import noise, records, scaling, tables
from labs.run import atomic
from labs.run.errors import LabError
from labs.run.paths import ROOT, results_dir

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

Runs = Sequence[dict[str, Any]]
SETTING = ["epochs", "size"]
ORDERS = {"sharded": "one order, sharded", "own_seeds": "own seeds", "unsharded": "unsharded"}
"""What each worker's images are, by the Config's `order`."""
RANK = re.compile(r"^\[(?:[^\]]*[,@])?(\d+)\]<std(?:out|err)>: ?", re.MULTILINE)
"""What horovodrun writes before each line of a worker."""
LIMIT = 300
"""Seconds after which a command is ended."""


def least_squares_paths(paths: Mapping[str, Sequence[ArrayLike]], x: np.ndarray, y: np.ndarray) -> Figure:
    """Draw each rank's path over the mean of (x w - y)^2, with the minimum of each rank's examples and that of all.

    Args:
        paths: As in `plots.loss_paths`, one per rank.
        x: The examples [n, 2]; of N ranks, rank r has those from r on, every N-th.
        y: Their targets [n, 1].
    """
    def loss(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return ((first[..., None] * x[:, 0] + second[..., None] * x[:, 1] - y[:, 0]) ** 2).mean(axis=-1)

    size = len(next(iter(paths.values())))
    figure = plots.loss_paths(paths, loss, [f"rank {rank}" for rank in range(size)])
    shards = [(slice(rank, None, size), "x", plots.RANK_COLOURS[rank], f"best for rank {rank}'s examples")
              for rank in range(size)]
    for rows, marker, colour, label in (*shards, (slice(None), "+", "black", "best for all examples")):
        best = np.linalg.lstsq(x[rows], y[rows], rcond=None)[0].ravel()
        for axes in figure.axes:
            axes.plot(*best, marker, color=colour, markersize=9, markeredgewidth=2, zorder=5, label=label)
    figure.axes[-1].legend(fontsize=9, **plots.BESIDE)
    return figure


# The student's own script.

class Result(NamedTuple):
    """What a script prints at its end."""

    steps: int
    """Per epoch."""
    loss: float
    """Mean loss of the test images."""


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
    """Run a command in the results folder, print it and its output, and return the results that it printed.

    Raises:
        LabError: The command failed or took too long. The last lines of its errors have been printed.
    """
    env = mpirun.environment(bar=False)
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    program, *words = shlex.split(command)
    print(f"$ {command}")
    try:
        done = supervisor.complete([shutil.which(program, path=env["PATH"]) or program, *words], LIMIT, env,
                                   results_dir())
    except OSError as problem:
        raise LabError(f"`{command}` failed: {problem}") from None
    text = RANK.sub(r"rank \1: ", done.out).strip()
    print(text)
    if done.code != 0:
        print(*RANK.sub(r"rank \1: ", done.err).splitlines()[-20:], sep="\n")
        how = f"had not ended after {LIMIT} s" if done.code is None else f"ended with code {done.code}"
        raise LabError(f"`{command}` {how}; the last lines above say why")
    return [Result(int(steps), float(loss)) for steps, loss in
            re.findall(r"(\d+) steps per epoch, test loss ([\d.]+)", text)]


# Speedup and accuracy.

def speedup_text(runs: Mapping[int, dict[str, Any]], seconds: Mapping[int, float], speedups: Mapping[int, float],
                 efficiencies: Mapping[int, float]) -> str:
    """Return a table of runs by their number of workers, T(N), S(N) and E(N), and what it says, as Markdown."""
    rows = [f"| {size} | {seconds[size]:.2f} | {speedups[size]:.2f} | {efficiencies[size]:.2f} |" for size in runs]
    table_ = "\n".join(["| N | T(N) in s | S(N) | E(N) |", "|---|---|---|---|", *rows])
    most = max(runs)
    if efficiencies[most] > 1:
        return f"{table_}\n\n**E({most}) is above 1**, so something disturbed the run of one worker. Repeat the cell."
    if disturbed := noise.warning(*runs.values()):
        return f"{table_}\n\n**{disturbed}**"
    steps = {size: run["history"][-1]["steps"] for size, run in runs.items()}
    step = {size: 1000 * seconds[size] / steps[size] for size in runs}
    why = ": the exchange, the waiting and the shared hardware take time. Lab 4 separates them" * (step[most] > step[1])
    return (f"{table_}\n\n**{most} workers train {speedups[most]:.2f} times as fast as one, not {most} times** (one "
            f"run each). Each takes {steps[most]} steps per epoch instead of {steps[1]}. A step takes "
            f"{step[most]:.1f} ms instead of {step[1]:.1f} ms{why}.")


def reference_table(runs: Runs) -> pd.DataFrame:
    """Return accuracy, seconds, speedup and efficiency by epochs and workers, of the runs with the kit's `fit`.

    Accuracies are means over the seeds. `train_seconds` is the time of all epochs, the first included; speedups are
    ratios of throughputs without it, with their 95 % interval.
    """
    frame = records.table([run for run in runs if run["config"]["code"] == "kit"])
    table = scaling.speedups(frame).set_index(SETTING)
    table["test_accuracy"] = frame.groupby(SETTING)["test_accuracy"].mean()
    later = table.index.get_level_values("epochs") - 1
    table["train_seconds"] = table["first_epoch_seconds"] + later * table["seconds_per_epoch"]
    return table


def report_m() -> pd.DataFrame:
    """Return report M's runs on one node in the same columns; its speedups are computed from its times."""
    import pandas as pd

    table = pd.read_csv(ROOT / "data/reference/lab02_mnist_accuracy.csv")
    table = table[table["nodes"] == 1].rename(columns={"workers": "size"}).set_index(SETTING)
    table["speedup"] = table["train_seconds"][40, 1] / table["train_seconds"]
    table["scaling_efficiency"] = table["speedup"] / table.index.get_level_values("size")
    return table


def text_table(ours: pd.DataFrame, report: pd.DataFrame) -> pd.DataFrame:
    """Return both tables side by side, as text."""
    import pandas as pd

    columns = {"accuracy": ("test_accuracy", "{:.4f}"), "train (s)": ("train_seconds", "{:.1f}"),
               "S": ("speedup", "{:.2f}"), "E": ("scaling_efficiency", "{:.2f}")}
    both = {who: pd.DataFrame({name: rows[column].map(form.format, na_action="ignore")
                               for name, (column, form) in columns.items()})
            for who, rows in (("two cores", ours), ("report M", report))}
    return pd.concat(both, axis=1).rename_axis(["epochs", "N"]).astype(object).fillna("")


def speedup_figure(ours: pd.DataFrame, report: pd.DataFrame, runs: Runs, cores: int) -> Figure:
    """Draw the speedup with its ceilings, and the accuracies of both sources in a panel each.

    Args:
        ours: From `reference_table`, of machines with this many cores and one thread per worker.
        report: From `report_m`.
        runs: The records behind `ours`; each is a dot of its accuracy.
        cores: Cores that the workers share.
    """
    result = plots.empty(9, 3.6)
    left, middle, right = result.subplots(1, 3)
    sizes = sorted(set(ours.index.get_level_values("size")))
    for number, (epochs, rows) in enumerate(ours.groupby("epochs")):
        rows, colour, shift = rows.droplevel("epochs"), plots.COLOURS[number], 0.12 * number
        bars = (rows[["speedup_low", "speedup_high"]].T - rows["speedup"]).abs().fillna(0)
        left.errorbar(rows.index + shift, rows["speedup"], bars, fmt="o", capsize=3, color=colour,
                      label=f"two cores, {epochs} epochs")
        mine = [run for run in runs if run["config"]["code"] == "kit" and run["config"]["epochs"] == epochs]
        middle.plot([run["layout"]["size"] + shift for run in mine], [run["metrics"]["test_accuracy"] for run in mine],
                    "o", color=colour)
        theirs = report.loc[epochs]
        left.plot(theirs["speedup"].dropna().index + shift, theirs["speedup"].dropna(), "s", color=colour, mfc="none",
                  label=f"report M, {epochs} epochs")
        right.plot(theirs.index + shift, theirs["test_accuracy"], "s", color=colour, mfc="none")
    left.plot(sizes, sizes, ":", color="0.5", label="ceiling, a GPU each: S = N")
    left.plot(sizes, [min(size, cores) for size in sizes], "--", color="0.5", label=f"ceiling, {cores} cores")
    left.set(title="speedup", ylabel="speedup S(N)", ylim=(0, None))
    middle.set(title="two cores, 1,024 images", ylabel="test accuracy")
    right.set(title="report M, 60,000 images", ylabel="test accuracy")
    for axes in result.axes:
        axes.set(xlabel="workers N", xticks=sizes)
        axes.grid(alpha=0.3)
    result.legend(*left.get_legend_handles_labels(), fontsize=8, ncols=3, loc="outside lower center")
    return result


def compare_accuracies(runs: Runs, epochs: int = 40) -> str:
    """Return whether the accuracies of several workers differ from those of one by more than noise, as text."""
    frame = records.table([run for run in runs if run["config"]["code"] == "kit"]).query("epochs == @epochs")
    by_size = {size: rows.set_index("seed")["test_accuracy"] for size, rows in frame.groupby("size")}
    one = by_size.pop(1)
    return "; ".join(f"{size} workers minus one: {noise.compare(each, one, comparisons=len(by_size), digits=3)}"
                     for size, each in by_size.items())


def speedup_caption(ours: pd.DataFrame, report: pd.DataFrame, runs: Runs) -> str:
    """Return the caption of `speedup_figure`, and what it says of speed and accuracy, as Markdown."""
    theirs = report.loc[40]
    two, four = (_speed(ours.xs(size, level="size")) for size in (2, 4))
    left_out = "; ".join(filter(None, ours["note"].unique()))
    step = 1000 * theirs["train_seconds"] / (18_750 / theirs.index)  # 40 x 60,000 / 128 steps, as the report counts.
    gpus = noise.compare_shares(theirs["test_accuracy"][4], theirs["test_accuracy"][1], 10_000)
    return (
        "*Left: the ratio of mean throughputs; bars: intervals over the seeds, 95 % for all four together. Middle and "
        "right: a point per run; the scales differ and do not begin at 0. Points of 40 epochs are moved to the right. "
        "Table: accuracy and train (s), first epoch included, are means.*\n\n"
        f"**Speed.** On two cores, S(2) = {two}. S(4), where four workers share the cores, = {four}"
        f"{f' ({left_out})' * bool(left_out)}. Report M's GPUs reach {theirs['speedup'][2]:.2f} and "
        f"{theirs['speedup'][4]:.2f}: by its count, a step takes {step[1]:.1f}, {step[2]:.1f} and {step[4]:.1f} ms on "
        "1, 2 and 4 of them, so most of the loss comes with the second.\n\n"
        f"**Accuracy.** On two cores after 40 epochs, {compare_accuracies(runs)}. Report M, four GPUs minus one: "
        f"{gpus}, by the noise of the test images. It ran each once; what another seed would change is not known.")


def _speed(rows: pd.DataFrame) -> str:
    """Return the speedups of one number of workers by epochs, each with its interval and verdict."""
    verdicts = {1: "faster by more than noise", 0: "not resolved", -1: "slower by more than noise"}
    return "; ".join(f"{text} after {epochs} epochs, {verdicts[rows.direction[epochs]]}"
                     for epochs, text in tables.intervals(rows, "speedup", 2).items())


# Wrong shards.

def share_figure(sizes: Sequence[int], counted: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the share of images used in an epoch over the number of workers, by order, and the formula of own seeds."""
    axes = plots.empty(9, 3.4).subplots()
    for (name, values), style, colour in zip(counted.items(), ("-o", "s", "-^"), plots.COLOURS, strict=False):
        axes.plot(sizes, values, style, label=name, color=colour)
    axes.plot(sizes, [1 - (1 - 1 / size) ** size for size in sizes], ":", color="0.3", label="$1 - (1 - 1/N)^N$")
    axes.set(xlabel="workers N", ylabel="share of images used per epoch", ylim=(0, 1.05), xticks=sizes)
    return plots.finish(axes)


def order_table(runs: Runs) -> pd.DataFrame:
    """Return a row per setting of the study of orders: mean accuracy, and by how much it is below that of right shards.

    Runs with one seed start from the same weights, so differences are taken within a seed. The intervals, `low` to
    `high`, hold together.

    Raises:
        LabError: No run has this study.
    """
    import pandas as pd

    rows = [{name: run["config"][name] for name in ("order", "reshuffle", "seed")}
            | {"accuracy": run["metrics"]["test_accuracy"]} for run in runs if run["config"]["code"] == "textbook"]
    if not rows:
        raise LabError("there are no runs of C5; make them with `labs sweep lab02 --preset laptop --only orders`")
    wide = pd.DataFrame(rows).pivot(index="seed", columns=["order", "reshuffle"], values="accuracy")
    right = wide["sharded", True]
    lost = {cell: noise.compare(right, wide[cell], comparisons=wide.shape[1] - 1)
            for cell in wide if cell != ("sharded", True)}
    table = {cell: {"lost": each.value, "low": each.low, "high": each.high, "noise": not each.resolved}
             for cell, each in lost.items()}
    table["sharded", True] = {"noise": True}
    result = pd.DataFrame.from_dict(table, orient="index").assign(accuracy=wide.mean())
    return result.reindex([(order, reshuffle) for order in ORDERS for reshuffle in (True, False)])


def order_figure(runs: Runs) -> Figure:
    """Draw the test accuracy of each run of the study of orders; hollow: the epoch was forgotten."""
    axes = plots.empty(9, 3.4).subplots()
    for column, order in enumerate(ORDERS):
        for reshuffle, shift, fill in ((True, -0.12, plots.COLOURS[0]), (False, 0.12, "none")):
            values = [run["metrics"]["test_accuracy"] for run in runs if run["config"]["code"] == "textbook"
                      and (run["config"]["order"], run["config"]["reshuffle"]) == (order, reshuffle)]
            axes.plot([column + shift] * len(values), values, "o" if reshuffle else "D", color=plots.COLOURS[0],
                      mfc=fill, label=None if column else "new order in each epoch" if reshuffle else "epoch forgotten")
    axes.set_xticks(range(len(ORDERS)), list(ORDERS.values()))
    axes.set(ylabel="test accuracy", xlim=(-0.5, len(ORDERS) - 0.5))
    return plots.finish(axes)


def order_lesson(table: pd.DataFrame) -> str:
    """Return what `order_table` says of a forgotten epoch, as Markdown."""
    alone = table.loc[("sharded", False)]
    cost = "costs nothing measurable" if alone["noise"] else f"changes the accuracy by {-alone['lost']:+.3f}"
    return (f"**A forgotten epoch {cost} as long as all shard one order.** Unsharded workers take different images "
            "in each epoch. With the epoch forgotten too, they always take the same quarter: "
            f"{order_change(table.loc[('unsharded', False)])} against sharded.")


def order_change(row: Mapping[str, Any]) -> str:
    """Return by how much the accuracy of a setting of `order_table` differs from that of right shards."""
    return f"{-row['lost']:+.3f} ± {row['high'] - row['lost']:.3f}" + " (not resolved)" * bool(row["noise"])
