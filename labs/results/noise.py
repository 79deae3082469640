"""The verdict on noise: whether two settings differ by more than their runs do, and whether a run was disturbed.

    print(compare(two, one, "images_per_sec", ratio=True))      more than noise: 1.93 (1.81 to 2.05)
    print(warning(run) or "two workers are faster")

Pages, tables, the report, lint and graders decide by `compare` and by nothing else. docs/how-we-measure.md has the
sources of the methods, with an example each.
"""

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from labs.results.run_record import Record
from labs.run.errors import LabError, plural, printable

LEVEL = 0.05
"""The chance that a sentence or a table calls any difference more than noise although there is none."""
PAIRS = 3  # Fewest common seeds that are compared seed by seed: for two differences Student's factor is 12.7.
UNEVEN, MOMENT = 1.5, 0.5
"""How many times as long as the fastest epoch the slowest of an undisturbed run may take, the first left out; and
seconds: a smaller difference may come from one moment of another program."""


class Comparison(NamedTuple):
    """A difference of two means, or a ratio of geometric means, its interval, and the verdict; `str` has it in words.

    `low` and `high` are NaN if there is no interval; `problem` says why. `comparisons` is the number of intervals that
    hold together with 95 %, `left_out` the disturbed runs.
    """

    value: float
    low: float
    high: float
    ratio: bool = False
    comparisons: int = 1
    problem: str = ""
    left_out: tuple[str, ...] = ()
    unit: str = ""
    digits: int = 2

    @property
    def direction(self) -> int:
        """1 if `one` is larger by more than noise, -1 if it is smaller, 0 if that is not resolved."""
        equal = float(self.ratio)
        return int(self.low > equal) - int(self.high < equal)

    @property
    def resolved(self) -> bool:
        """Whether the difference is more than noise."""
        return self.direction != 0

    @property
    def figures(self) -> str:
        """The value and its interval as text: "+0.14 s (0.05 to 0.23)"."""
        # Enough decimals to show the interval's width, and on which side of equality it lies.
        half, nearest = (self.high - self.low) / 2, self.low if self.direction > 0 else self.high
        digits = max(self.digits, math.ceil(-math.log10(half / 2.5))) if half > 0 else self.digits
        while self.resolved and round(nearest, digits) == float(self.ratio):
            digits += 1
        value = f"{self.value:{'' if self.ratio else '+'}.{digits}f} {self.unit}".strip()
        if math.isnan(self.low):
            return f"{value}, {self.problem}" if math.isfinite(self.value) else self.problem
        both = "both" if self.comparisons == 2 else f"all {self.comparisons}"
        together = f"; 95 % for {both} together" * (self.comparisons > 1)
        return f"{value} ({self.low:.{digits}f} to {self.high:.{digits}f}{together})"

    def __str__(self) -> str:
        verdict = "more than noise" if self.resolved else "not resolved"
        without = f"; left out, disturbed: {', '.join(self.left_out)}" if self.left_out else ""
        return f"{verdict}: {self.figures}{without}"


def compare(one: Any, other: Any, of: str | Callable[[Record], float] | None = None, *, ratio: bool = False,
            timed: bool = True, comparisons: int = 1, unit: str = "", digits: int = 2) -> Comparison:
    """Compare two settings over their runs: return the difference one - other, or the ratio one / other.

    With at least `PAIRS` common seeds, at least half of those on either side, the comparison is paired: Student's
    interval of the mean difference within a seed. Otherwise it is Welch's interval over all runs. Ratios are compared
    by their logarithms. Of several comparisons each has the level 1 - 0.05 / comparisons, so that all hold together
    (Bonferroni). Runs with the same seed and, to the last digit, the same value count once.

    Args:
        one, other: Values by seed (a mapping or a Series); values without seeds; or runs (records or a table of them).
        of: The value of a run: the name of a column or a metric, or a function of a record.
        timed: Whether to leave out disturbed runs, as for all but accuracies.
        comparisons: How many comparisons the sentence or the table makes with this one.
        unit, digits: The unit and the fewest decimals in the text.
    """
    sides = [list(_runs(side, of)) for side in (one, other)]
    quiet = [[run for run in side if not (timed and run[2])] for side in sides]
    first, second = (_values(some or side, ratio) for some, side in zip(quiet, sides, strict=True))
    centre, half, problem = _difference(first, second, LEVEL / comparisons)
    if any(side and not some for some, side in zip(quiet, sides, strict=True)):
        half, problem = math.nan, "all runs of one side were disturbed"
    if ratio and half > math.log(1000):  # Of two runs each, Student's factor is in the thousands.
        half, problem = math.nan, "the runs are too few for an interval"
    ends = (centre, centre - half, centre + half)
    value, low, high = map(math.exp, ends) if ratio else ends
    left_out = tuple(why for some, side in zip(quiet, sides, strict=True) for *_, why in side if some and timed and why)
    return Comparison(value, low, high, ratio, comparisons, problem, left_out, unit, digits)


def _runs(side: Any, of: Any) -> Iterator[tuple[Hashable, Any, str]]:
    """Yield each run's seed and value, and its name if it was disturbed; a run without a seed gets its own key."""
    if of is None:
        pairs = side.items() if hasattr(side, "items") else ((object(), value) for value in side)
        yield from ((seed, value, "") for seed, value in pairs)
        return
    for run in side.to_dict("records") if hasattr(side, "columns") else side:
        if "config" in run:  # A record.
            value = of(run) if callable(of) else {**run["metrics"], **run["timings"]}.get(of)
            seed, why = run["config"].get("seed", object()), disturbance(run)
        else:
            value, seed, why = run[of], run.get("seed", object()), run.get("disturbed", "")
        yield seed, value, f"{run.get('run', '')} ({why})" if why else ""


def _values(runs: Iterable[tuple[Hashable, Any, str]], ratio: bool) -> dict[Hashable, list[float]]:
    """Return the values of runs by seed, as logarithms for a ratio."""
    values: dict[Hashable, list[float]] = {}
    for seed, value, _ in runs:
        if value is None or not math.isfinite(value) or (ratio and value <= 0):
            raise LabError(f"{value} cannot be compared; a {'ratio' if ratio else 'difference'} needs "
                           f"{'numbers above 0' if ratio else 'finite numbers'}: leave out runs without one")
        same_seed = values.setdefault(seed, [])
        number = math.log(value) if ratio else float(value)
        same_seed += [number] * (number not in same_seed)
    return values


def _difference(one: Mapping, other: Mapping, level: float) -> tuple[float, float, str]:
    """Return the difference of two means, half of its interval, and why there is no interval."""
    common = one.keys() & other.keys()
    first, second = (np.concatenate([[], *each.values()]) for each in (one, other))
    if not (len(first) and len(second)):
        return math.nan, math.nan, "one side has no run"
    if len(common) >= PAIRS and 2 * len(common) >= max(len(one), len(other)):
        differences = np.array([np.mean(one[seed]) - np.mean(other[seed]) for seed in common])
        centre, half = differences.mean(), half_width(*_spread(differences), level)
    else:
        (a, freedom_a), (b, freedom_b) = _spread(first), _spread(second)
        freedom = (a + b) ** 2 / (a**2 / freedom_a + b**2 / freedom_b) if a + b > 0 else 1.0
        centre, half = first.mean() - second.mean(), half_width(a + b, freedom, level)
    problem = ""
    if min(len(first), len(second)) < 2:
        problem = f"one run{' each' * (len(first) == len(second))} decides nothing"
    elif half <= 1e-9 * max(1e-300, np.abs([*first, *second]).max()):
        problem = "the runs do not vary, so their noise is unknown"
    return float(centre), math.nan if problem else float(half), problem


def standard_error(share: float, images: int) -> float:
    """Return the standard error of a share of right answers on independent images, sqrt(p (1 - p) / n)."""
    return math.sqrt(share * (1 - share) / images)


def compare_shares(one: float, other: float, images: int, other_images: int | None = None,
                   comparisons: int = 1) -> Comparison:
    """Compare two accuracies, on two independent sets of images, by the standard error of their difference.

    On the same images two models tend to make the same errors: `compare_answers` finds smaller differences.
    """
    from scipy.special import ndtri

    # With one more right and one more wrong image, so that a share of 0 or 1 has an error too (Agresti and Caffo 2000).
    error = math.hypot(*(standard_error((share * count + 1) / (count + 2), count + 2)
                         for share, count in ((one, images), (other, other_images or images))))
    half = float(ndtri(1 - LEVEL / comparisons / 2)) * error
    return Comparison(one - other, one - other - half, one - other + half, comparisons=comparisons, digits=3)


def compare_answers(one: ArrayLike, other: ArrayLike, comparisons: int = 1) -> Comparison:
    """Compare two models by whether each is right on each of the same images, in the same order, by McNemar's test.

    The interval is that of Clopper and Pearson for the share that favours the first among the images that differ.
    """
    from scipy.special import betaincinv

    only_one, only_other, n = _discordant(one, other)
    differing, tail = only_one + only_other, LEVEL / comparisons / 2
    low = float(betaincinv(only_one, only_other + 1, tail)) if only_one else 0.0
    high = float(betaincinv(only_one + 1, only_other, 1 - tail)) if only_other else 1.0
    low, high = ((2 * share - 1) * differing / n if differing else math.nan for share in (low, high))
    return Comparison((only_one - only_other) / n, low, high, comparisons=comparisons, digits=3,
                      problem="both are right on the same images")


def mcnemar(one: ArrayLike, other: ArrayLike) -> float:
    """Return the p-value of McNemar's exact test: the chance of a split at least this uneven between equal models."""
    from scipy.special import bdtr

    only_one, only_other, _ = _discordant(one, other)
    differing = only_one + only_other
    return min(1.0, 2 * float(bdtr(min(only_one, only_other), differing, 0.5))) if differing else 1.0


def _discordant(one: ArrayLike, other: ArrayLike) -> tuple[int, int, int]:
    """Return the numbers of images that only the first gets right, that only the second gets right, and of all."""
    first, second = np.asarray(one, bool), np.asarray(other, bool)
    return int((first & ~second).sum()), int((second & ~first).sum()), len(first)


def mean_interval(values: Sequence[float], together: int = 1) -> tuple[float, float]:
    """Return Student's interval of the mean, one of `together` that hold with 95 %; NaN for fewer than two values."""
    numbers = np.asarray(values, float)
    half = half_width(*_spread(numbers), LEVEL / together)
    return float(numbers.mean() - half), float(numbers.mean() + half)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive values."""
    return float(np.exp(np.log(np.asarray(values, float)).mean()))


def geometric_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return Student's 95 % interval of the geometric mean of positive values; NaN for fewer than two."""
    low, high = mean_interval(np.log(np.asarray(values, float)))
    return math.exp(low), math.exp(high)


def half_width(variance, freedom, level: float = LEVEL):
    """Return half the width of Student's interval of estimates with these squared standard errors and freedoms."""
    from scipy.special import stdtrit  # The quantile alone: scipy.stats takes a second to load.

    return stdtrit(freedom, 1 - level / 2) * np.sqrt(variance)


def _spread(values: np.ndarray) -> tuple[float, float]:
    """Return the squared standard error of the mean, and its degrees of freedom; NaN for fewer than two values."""
    return (float(values.var(ddof=1) / len(values)), len(values) - 1) if len(values) > 1 else (math.nan, math.nan)


def warning(*measured: Any) -> str:
    """Return a sentence to print beside a figure, instead of a conclusion, if a measurement was disturbed; else "".

    A measurement is a record, or the times of repeats of the same work, of which the middle half must agree.
    """
    problems = "; ".join(dict.fromkeys(problem for each in measured for problem in _problems(each)))
    return f"Disturbed: {problems}. Measure again; these figures allow no conclusion." if problems else ""


def _problems(measured: Any) -> list[str]:
    if isinstance(measured, dict) and "history" in measured:
        clauses = disturbance(measured), _shared_cores(measured)
        return [f"{printable(measured['run'])}: {clause}" for clause in clauses if clause]
    # A quarter at either end may be outliers, since pages take medians.
    turns = np.sort(np.asarray(measured, float))
    middle = turns[len(turns) // 4:len(turns) - len(turns) // 4]
    of = f"the middle {len(middle)} of " * (len(middle) < len(turns)) + plural(len(turns), "repeat")
    return [clause] if (clause := _uneven(middle, of)) else []


def disturbance(run: Record) -> str:
    """Return a clause on how far the epochs of a run differ, if the machine must have been busy; otherwise ""."""
    for epochs in epochs_by_size(run).values():
        seconds = [taken for taken, _ in epochs]
        clause = _uneven([taken / steps for taken, steps in epochs], f"{len(epochs)} epochs")
        if clause and max(seconds) - min(seconds) > MOMENT:
            return clause
    return ""


def _shared_cores(run: Record) -> str:
    """Return a clause on workers that had less than a core each, on no GPU; otherwise ""."""
    workers, cores = run["layout"].get("local_size", 0), run["machine"].get("cores")
    shared = cores and workers > cores and not run["machine"].get("gpus")
    return f"{workers} workers on a node took turns on {plural(cores, 'core')}" if shared else ""


def _uneven(seconds: Collection[float], of: str) -> str:
    """Return a clause on how far repeats of the same work differ, if the machine must have been busy; otherwise ""."""
    ratio = max(seconds) / min(seconds) if len(seconds) > 1 and min(seconds) > 0 else 1.0
    return f"the slowest of {of} took {ratio:.3g} times as long as the fastest" if ratio > UNEVEN else ""


def epochs_by_size(run: Record) -> dict[int, list[tuple[float, float]]]:
    """Return the seconds and steps of a run's epochs, but its first, by number of workers.

    Left out are the epochs in which an elastic run changed its size, and all of a run that was killed and resumed.
    """
    tables = run.get("tables", {})
    progress = tables.get("progress", [])
    changed = {math.floor(before["epochs"]) + 1 for before, after in itertools.pairwise(progress)
               if before["size"] != after["size"]}
    epochs: dict[int, list[tuple[float, float]]] = {}
    for row in run.get("history", [])[1:] if progress or "events" not in tables else []:
        if row["epoch"] not in changed and row.get("train_seconds") is not None:
            epochs.setdefault(row.get("size", run["layout"]["size"]), []).append((row["train_seconds"],
                                                                                  row.get("steps", 1)))
    return epochs
