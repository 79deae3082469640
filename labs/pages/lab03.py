"""Page 3: figures of the rules that scale the learning rate, from the records of its studies."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labs.pages import plots
from labs.pages.plots import Runs
from labs.results import noise

RULES = {"no scaling": ("none", False), "square root": ("sqrt", False), "square root, warmup": ("sqrt", True),
         "linear": ("linear", False), "linear, warmup": ("linear", True)}
"""The lines of the figures: scaling, and whether there is a warmup."""
STYLES = dict(zip(RULES, (("0.45", "-"), (plots.COLOURS[0], "--"), (plots.COLOURS[0], "-"), (plots.COLOURS[1], "--"),
                          (plots.COLOURS[1], "-")), strict=True))
"""Each rule's colour and line style: a warmup is solid."""
ONE, PHOTOGRAPHS_LR = "one worker with 128", 0.03
"""The baseline of the runs on photographs, and the learning rate that their search found for it."""
ENDED = ("loss", "accuracy", "val_accuracy")
"""What their last epochs are compared by."""


def miss_figure(miss: pd.DataFrame, losses: pd.DataFrame, before: float) -> Figure:
    """Draw the miss of one large step over k, a line per moment of the training, and the losses at both ends."""
    left, right = plots.panels(2, 3.5)
    for axes, frame, colours in ((left, miss, plots.COLOURS), (right, losses, plots.COLOURS[3:])):
        for name, colour in zip(frame, colours, strict=False):
            axes.plot(frame.index, frame[name], "-o", color=colour, markersize=4, label=name)
    left.axhline(0.5, color="0.5", linestyle=":")
    left.set(ylabel="miss (share of the distance)", ylim=(0, None))
    right.axhline(before, color="0.5", linestyle=":", label="before")
    right.set(ylabel="training loss (nats)", title="from the start")
    for axes in (left, right):
        _set_k_axis(axes, list(miss.index))
        figure = plots.finish(axes, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def mean_misses(runs: Runs) -> pd.DataFrame:
    """Return the mean miss of one large step: a row per seed, columns (k, completed epochs)."""
    rows = [row | {"seed": run["config"]["seed"]} for run in runs for row in run["tables"].get("miss", ())]
    return pd.DataFrame(rows).groupby(["seed", "k", "epochs"])["miss"].mean().unstack(["k", "epochs"])


def study_table(runs: Runs, study: str, optimizer: str) -> pd.DataFrame:
    """Return a row per seed and setting of a study; a run with k = 1 belongs to every rule, and is there for each."""
    rows = [{"seed": run["config"]["seed"], "rule": rule} | row
            for run in runs
            if (run["config"].get("study"), run["config"]["optimizer"]) == (study, optimizer)
            for row in run["tables"]["settings"]
            for rule, key in RULES.items()
            if key == (row["scaling"], row["warmup_epochs"] > 0) or (row["k"] == 1 and study == "rules")]
    return pd.DataFrame(rows)


def compare_rules(table: pd.DataFrame, one: str, other: str, k: int, comparisons: int = 1) -> noise.Comparison:
    """Compare the held-out accuracies of two rules at k, within seeds; `table` is from `study_table`."""
    by_seed = table[table["k"] == k].pivot(index="seed", columns="rule", values="val_accuracy")
    return noise.compare(by_seed[one], by_seed[other], digits=3, comparisons=comparisons)


def photographs_by_seed(runs: Runs) -> pd.DataFrame:
    """Return the last held-out accuracies of the runs on photographs: a row per seed, columns ONE and the rules.

    Four workers with 512 images each are compared with one with 128, so k = 16.
    """
    return _photographs(runs).pivot(index="seed", columns="setting", values="val_accuracy")


def compare_photographs(runs: Runs) -> pd.DataFrame:
    """Return the means of the same runs, a row per setting, the best first; `minus_one` compares it with ONE."""
    by_seed, means = photographs_by_seed(runs), _photographs(runs).groupby("setting")[list(ENDED)].mean()
    means["minus_one"] = [None if name == ONE else noise.compare(by_seed[name], by_seed[ONE], digits=3,
                                                                 comparisons=len(means) - 1) for name in means.index]
    return means.sort_values("val_accuracy", ascending=False)


def _photographs(runs: Runs) -> pd.DataFrame:
    kept = [run for run in runs if run["config"]["data"] == "real" and run["config"]["base_lr"] == PHOTOGRAPHS_LR]
    names = {key: name for name, key in RULES.items()}
    rows = []
    for run in kept:
        config, last = run["config"], run["history"][-1]
        rule = names[config["scaling"], config["warmup_epochs"] > 0]
        rows.append({"setting": ONE if run["layout"]["size"] == 1 else rule, "seed": config["seed"],
                     **{name: last[name] for name in ENDED}})
    return pd.DataFrame(rows)


def accuracy_figure(table: pd.DataFrame) -> Figure:
    """Draw the accuracy over k: a line per rule, a dot per run (hollow: no warmup)."""
    (axes,) = plots.panels(1, 4)
    baseline = float(table.loc[table["k"] == 1, "val_accuracy"].mean())
    axes.axhline(baseline, color="0.7", label="k = 1")
    axes.axhline(0.1, color="0.5", linestyle=":", label="chance")
    for number, (rule, (colour, style)) in enumerate(STYLES.items()):
        beside = 1.03 ** (number - 2)  # So that no dot hides another.
        plots.draw_runs(axes, table[table["rule"] == rule], "k", "val_accuracy", colour, rule, style, beside)
    _set_k_axis(axes, sorted(table["k"].unique()))
    axes.set(ylabel="accuracy on the held-out images", ylim=(0, None))
    return plots.finish(axes)


def format_difference(difference: noise.Comparison) -> str:
    """Return a difference and its interval, bold if it is more than noise."""
    text = f"{difference.value:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"
    return f"**{text}**" if difference.resolved else text


def rules_text(table: pd.DataFrame) -> str:
    """Return what `accuracy_figure` shows, as Markdown: linear against square root, and each rule against k = 1."""
    mean, factors = table.groupby(["rule", "k"])["val_accuracy"].mean(), sorted(set(table["k"]) - {1})
    lines = [f"| $k$ | {' | '.join(map(str, factors))} |", "|---" * (1 + len(factors)) + "|"]
    for ending in ("", ", warmup"):
        pairs = [compare_rules(table, f"linear{ending}", f"square root{ending}", k, 2 * len(factors)) for k in factors]
        lines.append(f"| linear minus square root{ending} | {' | '.join(map(format_difference, pairs))} |")
    lines += [f"| {rule} | " + " | ".join(f"{mean[rule, k]:.2f}" for k in factors) + " |" for rule in RULES]
    return "\n".join(lines) + (f"\n\nBold: more than noise (95 % for all {2 * len(factors)} together). Below: mean "
                              f"accuracies; the one at $k$ = 1 is {mean['linear', 1]:.2f}.")


def dead_figure(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the share of dead ReLUs over k: linear with and without warmup; a dot per seed, a panel per table."""
    row = plots.panels(len(tables), 3.2, sharey=True)
    for axes, (title, table) in zip(row, tables.items(), strict=True):
        for rule in ("linear", "linear, warmup"):
            colour, style = STYLES[rule]
            plots.draw_runs(axes, table[table["rule"] == rule], "k", "dead", colour, rule, style)
        _set_k_axis(axes, sorted(table["k"].unique()))
        axes.set(title=title, ylim=(0, 1))
    row[0].set_ylabel("dead ReLUs (share)")
    return plots.finish(row[-1])


def _set_k_axis(axes: Axes, factors: Sequence[int]) -> None:
    plots.set_log_ticks(axes, "x", factors)
    axes.set_xlabel("k: batch / $B_0$ (log scale)")
