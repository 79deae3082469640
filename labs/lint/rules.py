"""The rules of `labs lint`: each looks at a whole table and yields what cannot be right in it.

A rule is a function that yields one item per comparison: a Finding, or None where the comparison holds. A rule that
yields nothing had nothing to compare. Tables are from `reading.read_csv` and `lint.recorded`. The rules about bytes
are in `traffic`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from labs.lint import traffic
from labs.lint.findings import (
    TIMES,
    Family,
    Finding,
    Row,
    Table,
    families,
    finding,
    first_size,
    global_batch,
    key,
    known,
    measure,
    measures,
    near,
    number,
    on,
    over,
    rate,
    size,
    slack,
    spread,
    value,
)
from labs.measure import ledger_columns
from labs.results import statistics

Rule = Callable[[Table], Iterator[Finding | None]]
CLOSE = 20
"""How many rows are searched for the one that a wrong speedup was divided by."""
NOISE = 0.1
"""How far above 1 the efficiency of runs without repeats may be: one run has no interval, and caches help."""
CONTROL = ("the base is slow for another reason (input?), or another number of workers ran than the row says; "
           "run synthetic data as the control")


def judge(table: Table, rules: Iterable[Rule]) -> list[Finding]:
    """Return what the rules find in a table, by row."""
    return apply(table, rules)[0]


def apply(table: Table, rules: Iterable[Rule]) -> tuple[list[Finding], list[str]]:
    """Return what the rules find in a table, by row, and the names of those that had something to compare."""
    found: list[Finding] = []
    applied = []
    for rule in rules:
        compared = list(rule(table))
        found += [finding for finding in compared if finding]
        applied += [rule.__name__.replace("_", " ")] * bool(compared)
    return sorted(found, key=lambda finding: (finding.where, finding.rows)), applied


# Speed.

def efficiency_above_1(table: Table) -> Iterator[Finding | None]:
    """More than n times as fast on n workers."""
    rule = "efficiency above 1"
    for by, family in families(table):
        base = min(family)
        bases = [rate(row, by) for row in family[base]]
        for place in sorted(set(family) - {base}):
            members, n = family[place], place[0] / base[0]
            ratio, low, _ = statistics.ratio([rate(row, by) for row in members], bases)
            margin = NOISE + slack(members[0], by) + slack(family[base][0], by)
            above = ratio > (1 + margin) * n if math.isnan(low) else low > n and ratio > (1 + NOISE / 2) * n
            yield finding(rule, f"{number(ratio)} times the rate of {on(family[base][0])} with {on(members[0])}: "
                          f"efficiency {ratio / n:.2f}; {CONTROL}", *members) if above and n > 1 else None
    bases_told = _told_bases(table)
    for row in table.having("speedup"):
        most = _most(row, bases_told[key(row, _apart(table))], table)
        if most > 0:
            unit = "nodes" if math.isnan(value(row, "size")) else "workers"
            yield finding(rule, f"speedup {number(row['speedup'])} with {unit} {number(spread(row))}: "
                          f"efficiency {row['speedup'] / most:.2f}; {CONTROL}", row
                          ) if row["speedup"] > (1 + NOISE) * most else None
    for row in table.having("scaling_efficiency"):
        yield finding(rule, f"scaling efficiency {number(row['scaling_efficiency'])}; {CONTROL}", row
                      ) if row["scaling_efficiency"] > 1 + NOISE else None


def _told_bases(table: Table) -> dict[tuple, Row]:
    """Return the row with the fewest workers of each configuration that has a speedup."""
    found: dict[tuple, Row] = defaultdict(dict)
    for row in sorted((row for row in table.having("speedup") if spread(row) > 0), key=spread):
        found.setdefault(key(row, _apart(table)), row)
    return found


def _apart(table: Table) -> list[str]:
    """Return the columns that tell apart what has speedups of its own: not the batch, nor the layout."""
    return [name for name in table.config if name not in ("batch_size", "global_batch_size", "processes_per_node")]


def _most(row: Row, base: Row, table: Table) -> float:
    """Return the speedup of a row at efficiency 1, by what its configuration's smallest row is called.

    Four nodes of 8 GPUs may be compared with one node, and GPUs with a CPU.
    """
    first, told = (spread(base), value(base, "speedup")) if base else (math.nan, math.nan)
    if first > 1 and near(told, 1.0):
        return spread(row) / first
    return spread(row) * (told if first == 1 and told > 1 + NOISE and DEVICES & set(table.config) else 1.0)


DEVICES = {"device", "gpu", "gpus", "hardware", "machine", "accelerator", "gpu_type", "gpu_model", "platform", "system"}
"""Columns that tell a CPU from a GPU; a speedup may be against the other."""


def wrong_speedup(table: Table) -> Iterator[Finding | None]:
    """A speedup that is not rate(n) / rate(1) of the same configuration; the text says what it is instead."""
    if "speedup" not in table.columns:
        return
    best = measure(table)
    everything = [row for row in table.rows if rate(row, best) > 0]
    fits = {by: _fitting(table, by) for by in measures(table)}
    unread = sorted({name for row in table.rows for name in row if name.startswith("unread_")})
    stated = {row["id"] for row in table.having("speedup")}
    fits |= {by: fitting for by in unread if (fitting := _fitting(table, by)) >= stated}
    for by, family in families(table):
        one, scale = min(family)[0], _scale(family, table, by)
        base = float(np.median([rate(row, by) for row in family[min(family)]]))
        for row in itertools.chain.from_iterable(family.values() if scale > 0 else ()):
            told, right = value(row, "speedup"), scale * rate(row, by) / base
            if math.isnan(told):
                continue
            if any(row["id"] in fitting for fitting in fits.values()):
                yield None
                continue
            slower = "; it is slower than its base, and called faster" if right < 0.95 and told > 1 else ""
            yield finding("wrong speedup", f"{number(told)} is not rate({number(size(row))}) / rate({number(one)}) "
                          f"= {right:.2f} (efficiency {right * first_size(row) / size(row):.2f}): "
                          f"{_instead(told, row, base, family, everything, by)}{slower}", row)


def _scale(family: Family, table: Table, by: str) -> float:
    """Return the speedup of a family's base: 1, or what it is told to be if it has a right to be compared itself.

    That is so if it has several workers, and if it runs on another device than the row whose speedup is 1.
    """
    rows = family[min(family)]
    told = [value(row, "speedup") for row in rows if value(row, "speedup") > 0]
    if min(family)[0] != first_size(rows[0]):
        return float(np.median(told)) if told else math.nan
    same = [name for name in table.config if name not in DEVICES]
    devices = [name for name in table.config if name in DEVICES]
    for other in table.having("speedup") if devices and told else ():
        apart = key(other, same) == key(rows[0], same) and key(other, devices) != key(rows[0], devices)
        ratio, loose = over(rate(rows[0], by), rate(other, by)), slack(rows[0], by) + slack(other, by)
        if apart and near(other["speedup"], 1.0) and _typed(rows[0], "speedup", ratio, loose):
            return told[0]
    return 1.0


def _fitting(table: Table, by: str) -> set[int]:
    """Return the rows whose speedup is what the column `by` gives, but for the digits that were typed."""
    found: set[int] = set()
    for _, family in families(table, by):
        scale, first = _scale(family, table, by), min(family)
        bases = [rate(row, by) for row in family[first]]
        rows = [row for members in family.values() for row in members if value(row, "speedup") > 0]
        for base in {float(np.median(bases)), float(np.mean(bases)), *bases[:CLOSE]}:
            rights = {row["id"]: scale * rate(row, by) / base for row in rows}
            loose = {row["id"]: slack(row, by) + slack(family[first][0], by) for row in rows}
            found |= {row["id"] for row in rows if _typed(row, "speedup", rights[row["id"]], loose[row["id"]])}
            # Data that grow with the workers: each does as much in the same time, and together they do n times as much.
            grown = {row["id"] for row in rows
                     if _typed(row, "speedup", rights[row["id"]] * size(row) / first[0], loose[row["id"]])}
            if by != "images_per_sec" and grown == set(rights) and max(rights.values()) < 1 + NOISE:
                found |= grown
    return found


def _typed(row: Row, name: str, right: float, loose: float = 0.0) -> bool:
    """Whether a figure is what it should be, but for the digits that were typed of it and of its sources."""
    told, rounding = value(row, name), row.get("rounding", {}).get(name, 0.0)
    whole = rounding >= 0.5 and told >= 2 and abs(told - right) <= 0.5
    return whole or abs(told - right) <= max(0.02 * abs(right), 0.0051, loose * abs(right) + min(rounding, 0.05))


def _instead(told: float, row: Row, base: float, family: Family, everything: list[Row], by: str) -> str:
    """Say which other ratio of the table a speedup is."""
    members = itertools.islice(itertools.chain.from_iterable(family.values()), CLOSE)
    peers = [other for other in members if other["id"] != row["id"]]
    for ratio, text in itertools.chain(_own(row, base, peers, by), _strange(row, everything, by)):
        if near(told, ratio, 0.005) or abs(told - ratio) < 0.0051:
            return text
    return "no ratio of this table gives it"


def _own(row: Row, base: float, peers: list[Row], by: str) -> Iterator[tuple[float, str]]:
    """Yield the ratios within one configuration that are taken for its speedup."""
    mine = rate(row, by)
    yield 1.0, "every row was taken for its own base"
    yield base / mine, "that is rate(1) / rate(n), inverted"
    for other in peers:
        yield rate(other, by) / base, f"that is the speedup of line {other['row']}, labels swapped"
    for other in peers:
        name = f"line {other['row']} ({on(other)})"
        yield mine / rate(other, by), f"it was divided by {name}, not by one worker"
        yield rate(other, by) / mine, f"inverted, and against {name}, not one worker"
    for a, b in itertools.permutations(peers[:20], 2):
        yield rate(a, by) / rate(b, by), f"that compares line {a['row']} with line {b['row']}, labels swapped"


def _strange(row: Row, everything: list[Row], by: str) -> Iterator[tuple[float, str]]:
    """Yield the ratios to rows of other configurations, those of as many workers first."""
    def far(other: Row) -> tuple:
        return size(other) != size(row), abs(other["row"] - row["row"])

    close = (other for other in everything if 0 < abs(other["id"] - row["id"]) < CLOSE)
    for other in sorted(close, key=far):
        name = f"line {other['row']}, {_difference(row, other)}"
        yield rate(row, by) / rate(other, by), f"it was divided by {name}"
        yield rate(other, by) / rate(row, by), f"inverted, and against {name}"


def _difference(row: Row, other: Row) -> str:
    """Say in what two rows' configurations differ."""
    for name in ("batch_size", "global_batch_size", "model", "device", "epochs"):
        if name in row and row[name] != other[name]:
            told, mine = (number(word) if isinstance(word, int | float) else word for word in (other[name], row[name]))
            return f"which has {name} {told}, not {mine}"
    return "another configuration"


def upside_down(table: Table) -> Iterator[Finding | None]:
    """A speedup below 1 with more workers, and no times that show a slow-down."""
    timed = {row["id"] for by in measures(table) for row in table.having(by)}
    for row in table.having("speedup"):
        if spread(row) > 1 and row["id"] not in timed and row["speedup"] > 0:
            yield finding("speedup below 1", f"{number(row['speedup'])} with {on(row)}: is it upside down, T(n) / T(1) "
                          f"instead of T(1) / T(n) = {1 / row['speedup']:.2f}? If they were slower, show the times", row
                          ) if row["speedup"] < 1 - NOISE / 2 else None


def slower_than_in_turns(table: Table) -> Iterator[Finding | None]:
    """More workers so slow that they would have been faster one after the other."""
    for by, family in families(table):
        places = sorted(family)
        for before, place in itertools.pairwise(places):
            fewer, more = (float(np.median([rate(row, by) for row in family[at]])) for at in (before, place))
            times, row = over(fewer, more), family[place][0]
            waits = [over(value(row, "communication_seconds"), value(row, "epoch_seconds")) for row in family[place]]
            if place[0] > before[0] and not max(waits) > 0.5:  # Then the table says what they did.
                yield finding("slower than in turns", f"{on(row)} took {times:.3g} times as long as "
                              f"{number(before[0])}: they would have been faster one after the other; too many "
                              "threads on the cores, a slow link, or a busy machine? Measure again", row
                              ) if times > 1.1 * place[0] / before[0] else None


def uneven_epochs(table: Table) -> Iterator[Finding | None]:
    """Epochs of one run, the first left out, that differ by more than 1.5 times."""
    for row in table.rows:
        later = row.get("clocks", ())[1:]
        clocks = [over(seconds, steps) for seconds, steps in later]
        if len(clocks) > 1 and min(clocks) > 0:
            # Below half a second another program's moment on the processor is enough.
            yield _uneven(clocks, row) if max(later)[0] - min(later)[0] > 0.5 else None
    by = next((name for name in ("epoch_seconds", "train_seconds", "total_seconds") if table.having("epoch", name)), "")
    run: list[Row] = []
    for row in [*(table.having("epoch", by) if by else ()), None]:
        same = run and row and row["epoch"] > run[-1]["epoch"] and (
            key(row, ("size", *table.config)) == key(run[-1], ("size", *table.config)))
        if not same and len(run) > 1:
            later = [row for row in run if row["epoch"] > run[0]["epoch"] or run[0]["epoch"] > 1]
            clocks = [row[by] for row in later]
            growing = by != "epoch_seconds" and all(a < b for a, b in itertools.pairwise([row[by] for row in run]))
            if len(later) > 1 and min(clocks) > 0 and not growing:  # What grows is the time since the start.
                yield _uneven(clocks, max(later, key=lambda row: row[by]))
        run = [*run, row] if same and row else [row] if row else []


def _uneven(clocks: list[float], row: Row) -> Finding | None:
    ratio = max(clocks) / min(clocks)
    return finding("uneven epochs", f"the slowest epoch took {ratio:.3g} times as long as the fastest, the first left "
                   "out: was the machine busy? Measure again", row) if ratio > 1.5 else None


def identical_clocks(table: Table) -> Iterator[Finding | None]:
    """Different runs with the same times to the last digit: copied, not measured."""
    seen: dict[tuple, Row] = {}
    for row in (row for row in table.rows if _clock(row)):
        yield _copy(row, seen[_clock(row)]) if _clock(row) in seen else None
        seen.setdefault(_clock(row), row)
    for by in ("epoch_seconds", "train_seconds", "total_seconds", "images_per_sec"):
        groups = defaultdict(list)
        for row in table.having(by) if "epoch" not in table.columns else ():
            if row[by] > 0 and row[by] != round(row[by]) and "rounding" in row:
                groups[row[by]].append(row)
        for first, *others in groups.values():
            others = [row for row in others if _another_run(first, row)]
            digits = math.log10(0.5 / slack(first, by)) if slack(first, by) > 0 else 0.0
            if others and digits > (4 if len(others) == 1 else 3):  # Fewer digits coincide.
                yield finding("identical clocks", f"{by.replace('_', ' ')} {first[by]:.10g} in {len(others) + 1} runs, "
                              "to the last digit: copied, not measured", first, *others)


def _another_run(row: Row, other: Row) -> bool:
    """Whether two rows claim to be different runs."""
    pairs = [(row.get(name), other.get(name)) for name in ("size", "seed")]
    return any(known(a) and known(b) and a != b for a, b in pairs)


def copied(earlier: list[Row], rows: list[Row]) -> list[Finding]:
    """Return a finding for each record that has its clocks from one of an earlier results folder."""
    seen = {_clock(row): row for row in reversed(earlier)}
    return [_copy(row, seen[_clock(row)]) for row in rows if _clock(row) and _clock(row) in seen]


def _copy(row: Row, other: Row) -> Finding:
    return finding("identical clocks", f"its {len(row['clocks'])} epochs took the same times as those of "
                   f"{other['where']}, to the last digit: copied, not measured", row)


def _clock(row: Row) -> tuple[float, ...]:
    """Return the seconds of a record's epochs; nothing if they are round, or those of the best trial of a search."""
    if row.get("chosen"):
        return ()
    seconds = tuple(seconds for seconds, _ in row.get("clocks", ()))
    return seconds if any(second != round(second, 3) for second in seconds) else ()


def wrong_efficiency(table: Table) -> Iterator[Finding | None]:
    """An efficiency that is not speedup / n."""
    bases = _told_bases(table)
    for row in table.having("speedup", "scaling_efficiency"):
        right = over(row["speedup"], spread(row))
        smallest = bases[key(row, _apart(table))]
        other = over(right * spread(smallest), value(smallest, "speedup")) if smallest else math.nan
        if right > 0:
            loose = slack(row, "speedup")
            fits = any(_typed(row, "scaling_efficiency", each, loose) for each in (right, other))
            yield None if fits else finding(
                "wrong efficiency", f"{number(row['scaling_efficiency'])} is not speedup / n = "
                f"{number(row['speedup'])} / {number(spread(row))} = {right:.2f}", row)
    timed = {row["id"] for row in table.having("speedup", "scaling_efficiency")}
    for by, family in families(table):
        base, first = min(family), family[min(family)]
        for row in itertools.chain.from_iterable(family.values()):
            if row["id"] in timed or not value(row, "scaling_efficiency") > 0:
                continue
            ratio = rate(row, by) / float(np.median([rate(other, by) for other in first]))
            right, loose = ratio * base[0] / size(row), slack(row, by) + slack(first[0], by)
            told_base = value(first[0], "scaling_efficiency")
            rights = [right, right * told_base] + [ratio] * (by != "images_per_sec")  # Data that grow with the workers.
            yield None if any(_typed(row, "scaling_efficiency", each, loose) for each in rights) else finding(
                "wrong efficiency", f"{number(row['scaling_efficiency'])} is not rate(n) / rate(1) / n = {ratio:.3g} / "
                f"{number(size(row) / base[0])} = {right:.2f}", row)


MODELS = {"resnet50": 219.0, "vgg16": 154.0, "resnet152": 91.8}
"""Images per second of one P100, from TensorFlow's benchmarks page. Other GPUs keep these ratios, roughly."""


def input_bound_baseline(table: Table) -> Iterator[Finding | None]:
    """Very different models at nearly one rate on one worker: what was measured is the input pipeline."""
    groups = defaultdict(list)
    others = [name for name in table.config if name not in ("model", "processes_per_node")]
    for row in table.having("model", "images_per_sec"):
        if (name := re.sub(r"[\W_]", "", str(row["model"]).lower())) in MODELS and size(row) == first_size(row):
            groups[key(row, others)].append(row | {"usual": MODELS[name]})
    for a, b in itertools.chain.from_iterable(itertools.combinations(group, 2) for group in groups.values()):
        if not near(a["usual"], b["usual"], 0.3):
            yield finding("input-bound baseline", f"{a['model']} {number(a['images_per_sec'])} and {b['model']} "
                          f"{number(b['images_per_sec'])} images/s, where one P100 trains them at {number(a['usual'])} "
                          f"and {number(b['usual'])}: the input was the limit, and this is no base for a speedup; "
                          "run synthetic data as the control", a, b
                          ) if near(a["images_per_sec"], b["images_per_sec"], 0.1) else None


def more_workers_longer(table: Table) -> Iterator[Finding | None]:
    """The most workers took longer than a row that does not even say how many it had."""
    timed = table.having("total_seconds") if "size" in table.columns else []
    most = max((size(row) for row in timed if size(row) > 1), default=math.nan)
    unknown = [row for row in timed if math.isnan(size(row))]
    for row, other in itertools.product([row for row in timed if size(row) == most], unknown):
        yield finding("more workers, longer", f"{on(row)} took {number(row['total_seconds'])} s, longer than the "
                      f"{number(other['total_seconds'])} s of line {other['row']}: start-up and input dominate so "
                      "short a run; compare seconds per epoch, the first left out", row
                      ) if other["total_seconds"] < row["total_seconds"] else None


# Layout: how many workers ran, and on what.

def steps_of_other_workers(table: Table) -> Iterator[Finding | None]:
    """Steps that tell of another number of workers, or of images seen more or less often than there were epochs."""
    steps = "steps_per_epoch" if "steps_per_epoch" in table.columns else "steps"
    config = table.config
    counted = [row for row in table.having(steps, "batch_size") if row["batch_size"] > 0 and row[steps] > 0]
    alone = {key(row, config): row[steps] * row["batch_size"] for row in counted if size(row) == 1}
    same = len({row[steps] for row in counted}) == 1 and len({size(row) for row in counted}) > 1
    # A benchmark of so many steps for all; or a batch that is the global one, though its column does not say so.
    fixed = same and not {"images", "epochs", "epoch_seconds", *QUALITY} & table.columns
    global_held = same and table.reading and "local" not in table.columns
    for row in counted:
        known = value(row, "images") * (1.0 if steps == "steps_per_epoch" else value(row, "epochs"))
        images = known if known > 0 else alone.get(key(row, config), math.nan)
        last = over(global_batch(row), value(row, "images")) if known > 0 else 0.0  # That step may be a partial one.
        batches = over(images, row["batch_size"])
        if not (size(row) > 0 and batches > 0) or fixed or global_held:
            continue
        yield None
        if not near(row[steps] * size(row), batches, max(0.02, last)):
            told = over(batches, row[steps])
            whole = told > 0.97 and near(told, round(told), 0.03)
            ran = f"so {told:.0f} workers ran" if whole else "which is no number of workers"
            yield finding("steps of other workers", f"{number(row[steps])} steps with {on(row)}: {number(images)} "
                          f"images are {number(batches)} batches of {number(row['batch_size'])}, and "
                          f"{number(batches)} / {number(row[steps])} = {told:.2f}, {ran} "
                          f"(expected {batches / size(row):,.0f} steps)", row)


def impossible_layout(table: Table) -> Iterator[Finding | None]:
    """More nodes than workers, or numbers of workers that contradict each other."""
    for row in table.having("size", "nodes"):
        count = row["nodes"] * value(row, "processes_per_node")
        yield None
        if row["nodes"] > row["size"]:
            yield finding("impossible layout", f"{on(row)} cannot be on {number(row['nodes'])} nodes; "
                          "hvd.size() is all workers, not those of a node", row)
        elif count > 0 and count != row["size"]:
            yield finding("impossible layout", f"{number(row['nodes'])} nodes x {number(row['processes_per_node'])} "
                          f"are {number(count)} workers, not {number(row['size'])}", row)


def other_layout_than_asked(table: Table) -> Iterator[Finding | None]:
    """Runs whose workers, nodes, threads or backend are not those that were asked for (records)."""
    rule = "other layout than asked"
    for row in table.rows:
        # What `labs run` and `labs sweep` call a run.
        yield None
        named = re.match(r"(?:\d{8}-\d{6}|sweep)-w(\d+)(?:-n(\d+))?", row["run"])
        if named and int(named[1]) != row["size"]:
            yield finding(rule, f"started as {named[1]} workers, and {on(row)} ran: were they started apart?", row)
        if named and named[2] and int(named[2]) != row["nodes"]:
            yield finding(rule, f"started for {named[2]} nodes, and ran on {number(row['nodes'])}", row)
        if 0 < value(row, "asked_threads") != row.get("threads"):
            yield finding(rule, f"{number(row['asked_threads'])} threads asked for, {row.get('threads')} used", row)
        asked, used = str(row.get("asked_backend", "")).lower(), str(row.get("backend", "")).lower()
        if {asked, used} == {"mpi", "gloo"}:
            yield finding(rule, f"backend {asked} asked for, {used} used", row)


def wrong_global_batch(table: Table) -> Iterator[Finding | None]:
    """A global batch that is not batch x workers."""
    for row in table.having("global_batch_size", "batch_size"):
        right = row["batch_size"] * size(row)
        if row["global_batch_size"] and right > 0:
            yield finding("wrong global batch", f"{number(row['global_batch_size'])} is not "
                          f"{number(row['batch_size'])} x {on(row)} = {number(right)}", row
                          ) if row["global_batch_size"] != right else None


def missing_workers(table: Table) -> Iterator[Finding | None]:
    """A row that does not say how many workers ran, in a table where the others do."""
    figures = [name for name in ("images_per_sec", *TIMES, "speedup") if name in table.columns]
    for row in table.rows if table.having("size") else ():
        if not known(row.get("size")) and any(known(row.get(name)) for name in figures):
            yield finding("missing workers", "the number of workers is missing: no speedup follows from this row", row)


# What else changed between rows that are compared.

def changed_learning_rate(table: Table) -> Iterator[Finding | None]:
    """A learning rate that no scaling rule brings from the compared rows with fewer workers: two things changed."""
    most = max((size(row) for row in table.rows if size(row) > 0), default=1.0)
    for name, free in (("learning_rate", {"batch_size", "global_batch_size"}), ("base_lr", {"base_lr"})):
        groups = defaultdict(list)
        for row in (row for row in table.having(name) if row[name] > 0):
            groups[key(row, [column for column in table.config if column not in free])].append(row)
        for group in groups.values():
            kinds = {(row[name], size(row), global_batch(row)): row for row in reversed(group)}.values()
            for row in group if len({row[name] for row in group}) > 1 else ():
                yield from _changed(row, kinds, name, most)


def _changed(row: Row, kinds: Iterable[Row], name: str, most: float) -> Iterator[Finding | None]:
    """Yield a finding if no row with fewer workers leads to this row's learning rate."""
    fewer = [other for other in kinds if size(other) < size(row) or (size(other) == 1 and not size(row) > 0)]
    if fewer:
        yield None
    if fewer and not any(_scaled(other, row, name, most) for other in fewer):
        other = min(fewer, key=lambda other: (size(other), other[name]))
        times = row[name] / other[name]
        place = f"line {other['row']}" if other["row"] else other["where"]
        yield finding("changed learning rate", f"{number(row[name])} against {number(other[name])} in {place}: "
                      f"{number(times) if times > 1 else '1/' + number(1 / times)} times, which no scaling rule "
                      f"gives for {on(row)}; the rows do not compare numbers of workers", row)


def _scaled(other: Row, row: Row, name: str, most: float) -> bool:
    """Whether a learning rate follows from another's by a rule: none, linear or square root in the global batch."""
    ratio = row[name] / other[name]
    k = over(global_batch(row), global_batch(other))
    if not k > 0:
        k = over(size(row), size(other))
    if not k > 0:
        return 0.98 / most <= ratio <= 1.02 * most
    return any(near(ratio, right) for right in (1.0, k, math.sqrt(k)))


QUALITY = ("test_accuracy", "train_accuracy", "test_loss", "train_loss")


def two_things_changed(table: Table) -> Iterator[Finding | None]:
    """Accuracies compared between rows that differ in workers and in batch per worker, and no learning rate told."""
    quality = [name for name in QUALITY if name in table.columns]
    if not quality or {"learning_rate", "base_lr", "scaling"} & table.columns:
        return
    shaped = [row for row in table.having(quality[0], "batch_size") if size(row) > 0]
    shapes = {(row["batch_size"], size(row)) for row in shaped}
    for row in shaped:
        others = {(b, n) for b, n in shapes if b * n != row["batch_size"] * size(row)}
        if others and size(row) > 1 and all(row["batch_size"] != b and size(row) != n for b, n in others):
            first = min(shaped, key=size)
            times = over(global_batch(row), global_batch(first))
            yield finding("two things changed", f"{on(first)} of batch {number(first['batch_size'])} against {on(row)} "
                          f"of batch {number(row['batch_size'])}: the global batch is {number(times)} times as large; "
                          "tell both learning rates, and the rule between them", first, row)


def strong_scaling_that_is_none(table: Table) -> Iterator[Finding | None]:
    """Rows called strong scaling whose global batch is not held."""
    groups = defaultdict(list)
    others = [name for name in table.config if name not in ("batch_size", "processes_per_node", "threads")]
    for row in table.having("experiment"):
        if "strong" in str(row["experiment"]).lower() and global_batch(row) > 0:
            groups[key(row, others)].append(row)
    for first, *later in groups.values():
        for row in later:
            yield finding("strong scaling that is none", f"global batch {number(global_batch(row))} against "
                          f"{number(global_batch(first))} in line {first['row']}; strong scaling holds it", row
                          ) if global_batch(row) != global_batch(first) else None


# Sums and spreads.

PARTS = ("input_seconds", "compute_seconds", "communication_seconds", "validation_seconds", "other_seconds")


def parts_that_do_not_sum(table: Table) -> Iterator[Finding | None]:
    """Parts of an epoch that are more, or less, than the whole."""
    ledger = ledger_columns.WALL, ledger_columns.PREFIX
    for whole, prefix in (("epoch_seconds", ""), ledger, ("step_seconds", "step_")):
        timed = table.having(whole, f"{prefix}compute_seconds", f"{prefix}communication_seconds")
        shares = [over(value(row, f"{prefix}compute_seconds"), row[whole]) for row in timed]
        if max(shares, default=0) < 0.05:  # The parts of a step beside the whole of an epoch.
            continue
        for row in (row for row in timed if row[whole] > 0):
            parts = {name: value(row, prefix + name) for name in PARTS if not math.isnan(value(row, prefix + name))}
            missing = row[whole] - sum(parts.values())
            yield None
            if abs(missing) > 0.05 * row[whole]:
                told = " + ".join(f"{name.removesuffix('_seconds')} {number(part)}" for name, part in parts.items())
                yield finding("parts that do not sum", f"{told} = {number(row[whole] - missing)} s of "
                              f"{number(row[whole])} s: {number(abs(missing))} s ({abs(missing) / row[whole]:.0%}) are "
                              f"{'nowhere; show input and the rest' if missing > 0 else 'too many'}", row)
            elif parts.get("other_seconds", 0) < -0.15 * row[whole]:  # Less is the difference of two measurements.
                yield finding("parts that do not sum", f"other is {number(parts['other_seconds'])} s of "
                              f"{number(row[whole])} s: the parts were measured slower than the whole; repeat on an "
                              "idle machine", row)


def difference_within_noise(table: Table) -> Iterator[Finding | None]:
    """Accuracies of single runs that differ by less than two standard errors, sqrt(p (1 - p) / n) each.

    Only where accuracies are what the rows compare: beside times they say that nothing was lost.
    """
    if "test_accuracy" not in table.columns or {"spread", "seed", "repeats"} & table.columns:
        return
    groups = defaultdict(list)
    for row in table.having("test_accuracy"):
        if 0 < row["test_accuracy"] < 1:
            groups[key(row, ["learning_rate", *(name for name in table.config if name != "batch_size")])].append(row)
    for group in groups.values():
        timed = all(any(value(row, name) > 0 for name in ("images_per_sec", *TIMES, "speedup")) for row in group)
        digits = min(row.get("rounding", {}).get("test_accuracy", 0.0) for row in group)
        if timed or digits > 0.1 * _error(group[0]):  # Digits that are noise claim that it is none.
            continue
        best = max(group, key=lambda row: row["test_accuracy"])
        limit = {id(row): 2 * math.hypot(_error(row), _error(best)) for row in group}
        alike = [row for row in group if best["test_accuracy"] - row["test_accuracy"] < limit[id(row)]]
        if len(group) > 1:
            told = ", ".join(number(row["test_accuracy"]) for row in alike)
            yield finding("difference within noise", f"{told}: on {number(_images(best))} test images the standard "
                          f"error of each is {_error(best):.4f}, so they do not differ; repeat with seeds, and give "
                          "mean and interval", *alike) if len({size(row) for row in alike}) > 1 else None


def _images(row: Row) -> float:
    told = value(row, "test_images")
    return told if told > 0 else 10_000.0  # As many as the usual test sets have at most.


def _error(row: Row) -> float:
    return math.sqrt(row["test_accuracy"] * (1 - row["test_accuracy"]) / _images(row))


def rate_against_time(table: Table) -> Iterator[Finding | None]:
    """Images/s x seconds per epoch that are not the images of an epoch."""
    for row in table.having("images_per_sec", "epoch_seconds", "images"):
        seen = row["images_per_sec"] * row["epoch_seconds"]
        ratio = over(max(seen, row["images"]), min(seen, row["images"]))
        if ratio > 0:  # An epoch's seconds may hold its validation too, and a rate may leave out the first steps.
            yield finding("rate against time", f"{number(row['images_per_sec'])} images/s x "
                          f"{number(row['epoch_seconds'])} s are {number(seen)} images, not {number(row['images'])}: "
                          "is one of them of a single worker, or of another run?", row) if ratio > 1.5 else None


def impossible_figures(table: Table) -> Iterator[Finding | None]:
    """Times, rates and shares that no run can have."""
    for name in ("images_per_sec", *TIMES, ledger_columns.WALL, "speedup", "scaling_efficiency", "size"):
        for row in table.having(name):
            yield finding("impossible figure", f"{name} {number(row[name])} is not above 0", row
                          ) if row[name] <= 0 else None
    for name in sorted(name for name in table.columns if name.endswith("accuracy") or name == "utilization"):
        for row in table.having(name):
            yield finding("impossible figure", f"{name} {number(row[name])} is no share", row
                          ) if not 0 <= row[name] <= 1 else None


BOTH: tuple[Rule, ...] = (
    efficiency_above_1, input_bound_baseline, steps_of_other_workers, impossible_layout, wrong_global_batch,
    changed_learning_rate, parts_that_do_not_sum, slower_than_in_turns, uneven_epochs, identical_clocks,
    traffic.bandwidth_above_the_machines, impossible_figures,
)
TYPED: tuple[Rule, ...] = (
    *BOTH, wrong_speedup, wrong_efficiency, upside_down, rate_against_time, more_workers_longer, missing_workers,
    two_things_changed, strong_scaling_that_is_none, difference_within_noise, *traffic.RULES,
)
"""Rules for a table that somebody typed."""
RECORDED: tuple[Rule, ...] = (*BOTH, other_layout_than_asked)
"""Rules for records: what a run computed itself needs no check of its arithmetic."""
