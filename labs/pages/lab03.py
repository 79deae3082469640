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


def largest_factors(table: pd.DataFrame, allowed: float) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the mean accuracies by k and rule, and the largest k up to which each rule loses at most `allowed`."""
    mean = table.groupby(["k", "rule"])["val_accuracy"].mean().unstack()
    kept = mean.loc[1] - mean <= allowed
    return mean, {rule: int(max(k for k in mean.index if kept[rule].loc[:k].all())) for rule in mean}


def accuracy_figure(table: pd.DataFrame, allowed: float) -> Figure:
    """Draw the accuracy over k: a line per rule, a dot per run (hollow: no warmup), and what counts as kept."""
    (axes,) = plots.panels(1, 4)
    baseline = float(table.loc[table["k"] == 1, "val_accuracy"].mean())
    axes.axhspan(baseline - allowed, baseline, color="0.9", label=f"baseline, and {allowed:g} below")
    axes.axhline(0.1, color="0.5", linestyle=":", label="chance")
    for number, (rule, (colour, style)) in enumerate(STYLES.items()):
        beside = 1.03 ** (number - 2)  # So that no dot hides another.
        plots.draw_runs(axes, table[table["rule"] == rule], "k", "val_accuracy", colour, rule, style, beside)
    _set_k_axis(axes, sorted(table["k"].unique()))
    axes.set(ylabel="accuracy on the held-out images", ylim=(0, None))
    return plots.finish(axes)


def accuracy_text(table: pd.DataFrame, allowed: float) -> str:
    """Return what `accuracy_figure` shows, as Markdown."""
    mean, until = largest_factors(table, allowed)
    best, most = longest_rules(until), max(until.values())
    others = [f"{rule} {k}" for rule, k in until.items() if rule not in best]
    text = (f"**{' and '.join(best).capitalize()} keeps the accuracy longest: up to $k$ = {most}.** The others keep it "
            f"up to: {'; '.join(others)}. The baseline has {mean['linear'][1]:.2f}.")
    plain = best[0].removesuffix(", warmup")
    if most > 1 and plain != "no scaling":
        text += f" At $k$ = {most}, warmup changes {plain} by {change(table, f'{plain}, warmup', plain, most)}."
    return text


def longest_rules(until: Mapping[str, int]) -> list[str]:
    """Return the rules that keep the accuracy up to the largest k; `until` is from `largest_factors`."""
    return [rule for rule in RULES if until[rule] == max(until.values())]


def change(table: pd.DataFrame, one: str, other: str, k: int) -> str:
    """Return whether one rule is better than another at k by more than noise, and by how much, as text."""
    by_seed = table[table["k"] == k].pivot(index="seed", columns="rule", values="val_accuracy")
    verdict = noise.compare(by_seed[one], by_seed[other], digits=3)
    return f"{verdict.figures}, {'more than noise' if verdict.resolved else 'not resolved'}"


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
