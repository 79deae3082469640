"""The arithmetic of scaling: rates with their spread, speedups, laws, and a model that predicts efficiency.

A configuration is everything that was chosen but the seed (a repeat is a run with another seed) and the number of
workers. Nothing here compares one configuration with another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from labs.run.errors import LabError

if TYPE_CHECKING:
    import pandas as pd

LEDGER_WALL = "ledger_wall_seconds"
SECONDS = ("seconds_per_epoch", "first_epoch_seconds", "total_seconds")


def configuration(frame: pd.DataFrame) -> list[str]:
    """Return the columns that name a run's configuration: those of its Config that hold something, less the seed.

    Args:
        frame: From `records.load`, which notes in `frame.attrs["config"]` what came from a Config.

    Raises:
        LabError: The frame has lost that note (`pd.concat` and `merge` drop it): name the columns yourself.
    """
    if "config" not in frame.attrs:
        raise LabError("this table does not say which columns are its configuration; name them: by=['batch_size', ...]")
    columns = [column for column in ("lab", *frame.attrs["config"]) if column != "seed" and column in frame]
    return [column for column in columns if frame[column].notna().any()]


def summary(frame: pd.DataFrame, by: Sequence[str] | None = None) -> pd.DataFrame:
    """Return one row per configuration and number of workers, over its repeats.

    `images_per_sec` is the median; `_low` and `_high` are Student's 95 % interval of the geometric mean, computed on
    the logarithms because rates are ratios (NaN for a single run: one run has no spread). Seconds, the first epoch's
    apart from the others', and the parts of the ledger are medians.

    Args:
        frame: Runs, one row each, from `records.load`.
        by: The columns that name a configuration; by default all of the runs' Configs but the seed.
    """

    by = list(by if by is not None else configuration(frame))
    by += [column for column in ("size", "nodes") if column in frame and column not in by]
    frame = comparable(_timed(frame), by)
    medians = [name for name in frame if name not in by and (name in SECONDS or name.startswith("ledger_"))]
    groups = frame.groupby(by, dropna=False, sort=True)
    table = groups.size().rename("repeats").to_frame()
    table["images_per_sec"] = groups["images_per_sec"].median()
    table["images_per_sec_low"], table["images_per_sec_high"] = _interval(*_logs(groups))
    for name in medians:
        table[name] = groups[name].median()
    return table.reset_index()


def _timed(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out runs without a rate, those of a single epoch, and make figures figures."""
    if "images_per_sec" not in frame:
        frame = frame.assign(images_per_sec=np.nan)
    figures = ("images_per_sec", *SECONDS)
    frame = numbers(frame, [name for name in frame if name in figures or name.startswith("ledger_")])
    frame = frame[np.isfinite(frame["images_per_sec"]) & (frame["images_per_sec"] > 0)]
    return frame.assign(_log=np.log(frame["images_per_sec"]))


def numbers(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame with some columns as numbers; what is none becomes NaN."""
    import pandas as pd

    return frame.assign(**{name: pd.to_numeric(frame[name], errors="coerce").astype(float) for name in columns})


def comparable(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame some columns of which can be grouped by: lists as text."""
    lists = {name: frame[name].map(lambda value: str(value) if isinstance(value, list | dict) else value)
             for name in columns if frame[name].dtype == object}
    return frame.assign(**lists)


def _logs(groups) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Return mean, squared standard error and degrees of freedom of the logarithms of the rates of groups."""
    return groups["_log"].mean(), groups["_log"].var() / groups.size(), groups.size() - 1


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return Student's 95 % interval of the geometric mean of positive values; NaN for fewer than two."""
    logs = np.log(np.asarray(values, float))
    low, high = _interval(logs.mean(), *_spread(logs))
    return float(low), float(high)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return Student's 95 % interval of the mean; NaN for fewer than two values."""
    found = np.asarray(values, float)
    half = _half(*_spread(found))
    return float(found.mean() - half), float(found.mean() + half)


def _spread(logs: np.ndarray) -> tuple[float, float]:
    """Return the squared standard error of the mean, and its degrees of freedom."""
    return (float(logs.var(ddof=1) / len(logs)), len(logs) - 1) if len(logs) > 1 else (math.nan, math.nan)


def _interval(centre, variance, freedom):
    """Return the ends of Student's interval around the mean of logarithms, back from the logarithms."""
    half = _half(variance, freedom)
    return np.exp(centre - half), np.exp(centre + half)


def _half(variance, freedom):
    from scipy.special import stdtrit  # The quantile alone: scipy.stats takes a second to load.

    return stdtrit(freedom, 0.975) * np.sqrt(variance)


def speedups(frame: pd.DataFrame, base: int = 1, by: Sequence[str] | None = None,
             scaling: Literal["weak", "strong"] = "weak") -> pd.DataFrame:
    """Return `summary` with each row's speedup, rate(n) / rate(base), and scaling_efficiency, speedup / (n / base).

    Both with a 95 % interval over repeats (Welch's, on the logarithms: Welch 1947; NaN if either side ran once). A row
    is compared with the runs of `base` workers of its own configuration alone; where there are none it has NaN, and
    the column `why` says so.

    Args:
        frame: Runs, one row each, from `records.load`.
        base: Number of workers to compare with.
        by: The columns that name a configuration; by default all of the runs' Configs but the seed.
        scaling: "weak": the batch of one worker is held, so n workers do n times the work in a step; "strong": the
            global batch is held, so `global_batch_size` stands in the configuration in place of `batch_size`.
    """
    by = list(by if by is not None else configuration(frame))
    if scaling == "strong":
        by = ["global_batch_size", *(name for name in by if name not in ("batch_size", "global_batch_size"))]
    elif "batch_size" in by:
        by = [name for name in by if name != "global_batch_size"]
    table = summary(frame, by)
    # As `summary` has its rows: as many workers on other nodes are another row.
    places = [*by, *(name for name in ("size", "nodes") if name in table and name not in by)]
    rates = comparable(_timed(frame), by).groupby(places, dropna=False)["images_per_sec"]
    ratios = _ratios({_key(key): values.to_numpy() for key, values in rates}, table[places], len(by), base)
    for place, name in enumerate(("speedup", "speedup_low", "speedup_high")):
        table[name] = [ratio[place] for ratio in ratios]
        table[name.replace("speedup", "scaling_efficiency")] = table[name] / (table["size"] / base)
    missing = f"no run of {base} worker{'s' * (base > 1)} of this configuration to compare with"
    table["why"] = [missing if math.isnan(ratio[0]) else "" for ratio in ratios]
    return table


def _ratios(rates: dict, places: pd.DataFrame, by: int, base: int) -> list[tuple[float, float, float]]:
    """Return rate(size) / rate(base) of each row's configuration, with its interval; NaN where there is no base.

    Args:
        rates: By configuration, size and nodes.
        places: The same of each row.
        by: Number of columns that name the configuration.
        base: Number of workers; on the fewest nodes, if they ran on several numbers of them.
    """
    bases: dict[tuple, np.ndarray] = {}
    for key in sorted((key for key in rates if key[by] == base), key=lambda key: key[-1] or 0):
        bases.setdefault(key[:by], rates[key])
    ratios = []
    for row in places.itertuples(index=False):
        key = _key(row)
        mine, alone = rates[key], bases.get(key[:by])
        same = (math.nan if alone is None else 1.0), math.nan, math.nan
        ratios.append(same if alone is None or mine is alone else ratio(mine, alone))
    return ratios


def _key(values) -> tuple:
    """Make values comparable: a NaN equals a NaN here."""
    return tuple(None if isinstance(value, float) and math.isnan(value) else
                 str(value) if isinstance(value, list | dict) else value for value in values)


def ratio(rates: Sequence[float] | np.ndarray, base: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of two medians, and Welch's 95 % interval of the ratio of the geometric means."""
    _, low, high = difference(np.log(np.asarray(rates, float)), np.log(np.asarray(base, float)))
    return float(np.median(rates) / np.median(base)), float(np.exp(low)), float(np.exp(high))


def difference(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Return the difference of two means and its 95 % interval (Welch 1947); NaN if either has only one value."""
    mine, theirs = np.asarray(first, float), np.asarray(second, float)
    (a, free_a), (b, free_b) = _spread(mine), _spread(theirs)
    freedom = (a + b) ** 2 / (a**2 / free_a + b**2 / free_b) if a + b > 0 else 1.0
    centre, half = float(mine.mean() - theirs.mean()), float(_half(a + b, freedom))
    return centre, centre - half, centre + half


def excess(one: Mapping[str, float], many: Mapping[str, float], workers: int) -> dict[str, float]:
    """Return by how many seconds each part of an epoch exceeds the ideal, an n-th of one worker's; largest first.

    The sum is what keeps the speedup below n: the wall time on n workers less an n-th of that on one.

    Args:
        one: Ledger of one worker, `ledger_<part>_seconds` as in a record's metrics; other keys are ignored.
        many: Ledger of `workers` workers, with the same batch per worker.
        workers: How many.
    """
    keys = [key for key in many if key.startswith("ledger_") and key.endswith("_seconds") and key != LEDGER_WALL]
    parts = {key.removeprefix("ledger_").removesuffix("_seconds"): many[key] - one[key] / workers for key in keys}
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


# What bounds a speedup.

def amdahl(n, serial: float):
    """Return the speedup of n workers on work of fixed size: 1 / (serial + (1 - serial) / n).

    Source: Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities", 1967.

    Args:
        n: Number of workers, or an array of them.
        serial: Share of one worker's time that no worker can be spared: from 0 to 1.
    """
    return 1 / (serial + (1 - serial) / np.asarray(n, float))


def gustafson(n, serial: float):
    """Return the speedup of n workers on work that grows with n: n - serial * (n - 1).

    Source: Gustafson, "Reevaluating Amdahl's law", Communications of the ACM 31(5), 1988.

    Args:
        n: Number of workers, or an array of them.
        serial: Share of the time on n workers that is not spent side by side: from 0 to 1.
    """
    n = np.asarray(n, float)
    return n - serial * (n - 1)


def amdahl_share(n, speedup):
    """Return the serial share that Amdahl's law needs for a speedup on n workers; below 0 if the speedup is above n."""
    n, speedup = np.asarray(n, float), np.asarray(speedup, float)
    return (1 / speedup - 1 / n) / (1 - 1 / n)


def gustafson_share(n, speedup):
    """Return the serial share that Gustafson's law needs for a speedup on n workers; below 0 if it is above n."""
    n, speedup = np.asarray(n, float), np.asarray(speedup, float)
    return (n - speedup) / (n - 1)


def fit_amdahl(sizes: Sequence[int], speedups: Sequence[float]) -> float:
    """Return the serial share that explains the speedups of a strong scaling best (least squares in 1 / speedup).

    Raises:
        LabError: Fewer than two numbers of workers above 1, or a speedup that no serial share explains.
    """
    n, s = _fittable(sizes, speedups)
    return _slope(1 - 1 / n, 1 / s - 1 / n)


def fit_gustafson(sizes: Sequence[int], speedups: Sequence[float]) -> float:
    """Return the serial share that explains the speedups of a weak scaling best (least squares in the speedup).

    Raises:
        LabError: Fewer than two numbers of workers above 1, or a speedup that no serial share explains.
    """
    n, s = _fittable(sizes, speedups)
    return _slope(n - 1, n - s)


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the slope of the line through the origin: a weighted mean of the shares y / x of the points."""
    return float((x * y).sum() / (x * x).sum())


def _fittable(sizes, speedups) -> tuple[np.ndarray, np.ndarray]:
    """Return the points above n = 1, where every law says 1, or raise if a fit to them would say nothing."""
    n, s = _points(sizes, speedups)
    if beyond := _beyond(n, s):
        raise LabError(beyond)
    if len(np.unique(n)) < 2:
        raise LabError("a law is fitted to speedups of at least two numbers of workers above 1; "
                       "it passes through a single point whether it holds or not")
    return n, s


def _points(sizes, speedups) -> tuple[np.ndarray, np.ndarray]:
    n, s = np.asarray(sizes, float), np.asarray(speedups, float)
    use = np.isfinite(n) & np.isfinite(s) & (n > 1) & (s > 0)
    if not use.any():
        raise LabError("no speedup of more than one worker; run the sweep with at least two numbers of workers")
    return n[use], s[use]


def _beyond(n: np.ndarray, speedups: np.ndarray) -> str:
    """Return which speedups no serial share from 0 to 1 explains, and where to look; "" if there are none."""
    found = []
    for size, speedup in zip(n, speedups, strict=True):
        if speedup > size * (1 + 1e-9):
            found.append(f"S({size:g}) = {speedup:.2f} is above {size:g}: no serial share explains it; "
                         "look for what slowed down the base")
        elif speedup < 1 - 1e-9:
            found.append(f"S({size:g}) = {speedup:.2f} is below 1: no serial share explains it; "
                         "dividing the work costs more than it saves")
    return "; ".join(found)


LAWS = {"strong": ("Amdahl", amdahl, amdahl_share, fit_amdahl),
        "weak": ("Gustafson", gustafson, gustafson_share, fit_gustafson)}
"""By the kind of scaling: the law's name, its speedup, the share that one point needs, the fit to several points."""


def explain(kind: Literal["weak", "strong"], sizes: Sequence[int], speedups: Sequence[float]) -> str:
    """Return what a law says about measured speedups, as a sentence.

    If the law holds, every point needs the same share. A share that changes with n shows that the law does not hold.

    Args:
        kind: "strong" for Amdahl's law, "weak" for Gustafson's.
        sizes: Numbers of workers.
        speedups: Their speedups over one worker.
    """
    name, law, share, fit = LAWS[kind]
    n, s = _points(sizes, speedups)
    if beyond := _beyond(n, s):
        return beyond
    shares = ", ".join(f"{each:.2f} at n = {size:g}" for size, each in zip(n, share(n, s), strict=True))
    if len(np.unique(n)) < 2:
        return f"{name} needs s = {shares}: a single point, nothing is tested"
    serial = fit(n.tolist(), s.tolist())
    miss = law(n, serial) / s - 1
    worst = np.abs(miss).argmax()
    return f"{name} needs s = {shares}; the fit, s = {serial:.2f}, is off by {miss[worst]:+.0%} at n = {n[worst]:g}"


def trend(sizes: Sequence[int], efficiencies: Sequence[float], tolerance: float = 0.1) -> str:
    """Return a sentence on efficiencies: whether the most workers keep what the fewest reach, and how many are fastest.

    Args:
        sizes: Numbers of workers (or nodes), from 1 on.
        efficiencies: Of each.
        tolerance: How far an efficiency may fall and still be called kept.
    """
    held = dict(zip(sizes, efficiencies, strict=True))
    first, *_, last = several = sorted(size for size in held if size > 1)
    kept = f"{last} keep what {first} reach" if held[last] >= held[first] - tolerance else (
        f"{last} do not keep what {first} reach")
    fastest = max(held, key=lambda size: size * held[size])
    shown = ", ".join(f"{held[size]:.2f}" for size in several)
    return (f"efficiency {shown} on {', '.join(map(str, several))}: {kept}; "
            f"the fastest is {fastest}, {fastest * held[fastest]:.1f} times 1")


# The alpha-beta model: a message of S bytes takes latency + S / bandwidth. Source of the collectives' costs: Thakur,
# Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19(1), 2005.

def ring_seconds(nbytes: float, n: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of a ring all-reduce: 2 (n - 1) (latency + nbytes / (n bandwidth)).

    Source: the reduce-scatter and all-gather of Thakur et al. 2005; Patarasuk and Yuan 2009 show that no all-reduce
    sends fewer bytes.

    Args:
        nbytes: Bytes to reduce, per worker.
        n: Number of workers.
        latency: Seconds of an empty message.
        bandwidth: Bytes per second of one worker's link.
    """
    return 2 * (n - 1) * (latency + nbytes / (n * bandwidth))


def tree_seconds(nbytes: float, n: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of a binomial tree's reduce and broadcast: 2 ceil(log2 n) (latency + nbytes / bandwidth).

    Few messages, each whole: for small tensors on many workers. Arguments as of `ring_seconds`.
    """
    return 2 * math.ceil(math.log2(n)) * (latency + nbytes / bandwidth)


def halving_seconds(nbytes: float, n: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of recursive halving and doubling: 2 log2(n) latency + 2 (n - 1) / n nbytes / bandwidth.

    Rabenseifner's algorithm (Thakur et al. 2005), used by Goyal et al. 2017: a tree's messages, a ring's bytes.
    Arguments as of `ring_seconds`; exact for powers of two.
    """
    return 2 * math.ceil(math.log2(n)) * latency + 2 * (n - 1) / n * nbytes / bandwidth


ALGORITHMS: dict[str, Callable[[float, int, float, float], float]] = {
    "ring": ring_seconds, "tree": tree_seconds, "halving": halving_seconds,
    "best": lambda *message: min(cost(*message) for cost in (ring_seconds, tree_seconds, halving_seconds)),
}
FUSED_BYTES = 64 * 2**20
"""Bytes that Horovod sends as one message at most: HOROVOD_FUSION_THRESHOLD, 64 MiB for most of its life."""
BACKWARD = 2 / 3
"""Share of a step that is its backward pass: two products with the weights' size against the forward pass's one."""
LOCAL_BANDWIDTH, LOCAL_LATENCY = 10e9, 5e-6
"""Bytes per second and seconds between the GPUs of one node over PCI Express 3 x16, whose peak is 15.75 GB/s."""


def allreduce_seconds(nbytes: float, workers: int, latency: float, bandwidth: float, workers_per_node: int = 1,
                      algorithm: Literal["ring", "tree", "halving", "best"] = "best",
                      local_bandwidth: float = LOCAL_BANDWIDTH, local_latency: float = LOCAL_LATENCY) -> float:
    """Return the seconds of an all-reduce over nodes, in two levels where a node has several workers.

    The workers of a node make one sum over their bus (a ring), the nodes one over the network. The bytes are divided
    into messages of at most FUSED_BYTES.

    Args:
        nbytes: Bytes to reduce, per worker.
        workers: How many, of all nodes.
        latency: Seconds of an empty message between two nodes.
        bandwidth: Bytes per second of a node's link.
        workers_per_node: How many of them share a node.
        algorithm: Between nodes; "best" is the one that takes least.
        local_bandwidth: Bytes per second between two workers of a node.
        local_latency: Seconds of an empty message between them.
    """
    local = min(workers_per_node, workers)
    nodes = math.ceil(workers / local)
    messages = max(1, math.ceil(nbytes / FUSED_BYTES))
    part = nbytes / messages
    between = ALGORITHMS[algorithm](part, nodes, latency, bandwidth) if nodes > 1 else 0.0
    return messages * (between + ring_seconds(part, local, local_latency, local_bandwidth))


def predicted_efficiency(images_per_sec: float, batch_size: int, gradient_bytes: float, workers: int, latency: float,
                         bandwidth: float, workers_per_node: int = 1, overlap: float = 0.7, **links) -> float:
    """Return the scaling efficiency of n workers in weak scaling: step / (step + communication that is not hidden).

    A step takes batch_size / images_per_sec. Of the communication the share `overlap` hides behind the backward pass,
    which is BACKWARD of the step and can hide no more than its own length.

    Why 0.7: the first gradients have to be computed before any can be sent, and the last ones are sent when nothing is
    left to compute, so it is below 1; no source publishes the share. Every value from 0.5 to 0.8 comes within 10
    percentage points of all rows of data/reference/published_scaling.csv, with one set of constants; 0.7 also does so
    for the figures that an earlier edition of Horovod's README gave for 128 GPUs; 0.5 does not (VGG16 0.66, not 0.79).
    Not in the model: the spread between workers, of which the slowest is waited for, and input.

    Args:
        images_per_sec: Rate of one worker alone.
        batch_size: Images per worker and step.
        gradient_bytes: Bytes of all gradients: 4 per trainable parameter.
        workers: How many.
        latency: Seconds of an empty message between two nodes.
        bandwidth: Bytes per second of a node's link.
        workers_per_node: How many share a node and its link.
        overlap: Share of the communication that can hide: 0 for none.
        links: `algorithm`, `local_bandwidth`, `local_latency` of `allreduce_seconds`.
    """
    step = batch_size / images_per_sec
    communication = allreduce_seconds(gradient_bytes, workers, latency, bandwidth, workers_per_node, **links)
    return step / (step + max((1 - overlap) * communication, communication - BACKWARD * step))
