"""The rules of `labs lint`: each looks at a whole table and yields what cannot be right in it.

A rule is a function `rule(table) -> Iterator[Finding]`; tables are from `lint.read_csv` and `lint.recorded`. The
rules about bytes are in `traffic`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from labs.report import scaling, traffic
from labs.report.findings import (
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
    near,
    number,
    on,
    over,
    rate,
    size,
    spread,
    typed,
    value,
)

Rule = Callable[[Table], Iterator[Finding]]
NOISE = 0.05
"""How far above 1 the efficiency of runs without repeats may be: one run has no interval."""
CONTROL = ("the base is slow for another reason (input?), or another number of workers ran than the row says; "
           "run synthetic data as the control")


def judge(table: Table, rules: Iterable[Rule]) -> list[Finding]:
    """Return what the rules find in a table, by row."""
    found = [finding for rule in rules for finding in rule(table)]
    return sorted(found, key=lambda finding: (finding.where, finding.rows))


# Speed.

def efficiency_above_1(table: Table) -> Iterator[Finding]:
    """More than n times as fast on n workers."""
    rule = "efficiency above 1"
    for by, family in families(table):
        base = min(family)
        bases = [rate(row, by) for row in family[base]]
        for place in sorted(set(family) - {base}):
            members, n = family[place], place[0] / base[0]
            ratio, low, _ = scaling.ratio([rate(row, by) for row in members], bases)
            if (ratio / (1 + NOISE) if math.isnan(low) else low) > n:
                yield finding(rule, f"{number(ratio)} times the rate of {on(family[base][0])} with {on(members[0])}: "
                              f"efficiency {ratio / n:.2f}; {CONTROL}", *members)
    for row in table.having("speedup"):
        if row["speedup"] > (1 + NOISE) * spread(row):
            unit = "nodes" if math.isnan(value(row, "size")) else "workers"
            yield finding(rule, f"speedup {number(row['speedup'])} with {unit} {number(spread(row))}: "
                          f"efficiency {row['speedup'] / spread(row):.2f}; {CONTROL}", row)
    for row in table.having("scaling_efficiency"):
        if 1 + NOISE < row["scaling_efficiency"] <= 2:  # Above that, it is in percent.
            yield finding(rule, f"scaling efficiency {number(row['scaling_efficiency'])}; {CONTROL}", row)


def wrong_speedup(table: Table) -> Iterator[Finding]:
    """A speedup that is not rate(n) / rate(1) of the same configuration; the text says what it is instead."""
    if "speedup" not in table.columns:
        return
    everything = [row for row in table.rows if rate(row, measure(table)) > 0]
    for by, family in families(table):
        one = min(family)[0]
        base = float(np.median([rate(row, by) for row in family[min(family)]]))
        for row in itertools.chain.from_iterable(family.values()):
            told, right = value(row, "speedup"), rate(row, by) / base
            if not math.isnan(told) and not typed(told, right):
                slower = "; it is slower than its base, and called faster" if right < 1 - NOISE and told > 1 else ""
                yield finding("wrong speedup", f"{number(told)} is not rate({number(size(row))}) / rate({number(one)}) "
                              f"= {right:.2f} (efficiency {right * one / size(row):.2f}): "
                              f"{_instead(told, row, base, family, everything, by)}{slower}", row)


def _instead(told: float, row: Row, base: float, family: Family, everything: list[Row], by: str) -> str:
    """Say which other ratio of the table a speedup is."""
    peers = [other for members in family.values() for other in members if other["row"] != row["row"]]
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

    for other in sorted((other for other in everything if other["row"] != row["row"]), key=far):
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


def wrong_efficiency(table: Table) -> Iterator[Finding]:
    """An efficiency that is not speedup / n."""
    for row in table.having("speedup", "scaling_efficiency"):
        right, told = over(row["speedup"], spread(row)), row["scaling_efficiency"]
        if right > 0 and not typed(told, right) and not typed(told, 100 * right):
            yield finding("wrong efficiency", f"{number(told)} is not speedup / n = {number(row['speedup'])} / "
                          f"{number(spread(row))} = {right:.2f}", row)


MODELS = {"resnet50": 219.0, "vgg16": 154.0, "resnet152": 91.8}
"""Images per second of one P100, from TensorFlow's benchmarks page. Other GPUs keep these ratios, roughly."""


def input_bound_baseline(table: Table) -> Iterator[Finding]:
    """Very different models at nearly one rate on one worker: what was measured is the input pipeline."""
    groups = defaultdict(list)
    others = [name for name in table.config if name not in ("model", "processes_per_node")]
    for row in table.having("model", "images_per_sec"):
        if (name := re.sub(r"[\W_]", "", str(row["model"]).lower())) in MODELS and size(row) == first_size(row):
            groups[key(row, others)].append(row | {"usual": MODELS[name]})
    for a, b in itertools.chain.from_iterable(itertools.combinations(group, 2) for group in groups.values()):
        if not near(a["usual"], b["usual"], 0.3) and near(a["images_per_sec"], b["images_per_sec"], 0.1):
            yield finding("input-bound baseline", f"{a['model']} {number(a['images_per_sec'])} and {b['model']} "
                          f"{number(b['images_per_sec'])} images/s, where one P100 trains them at {number(a['usual'])} "
                          f"and {number(b['usual'])}: the input was the limit, and this is no base for a speedup; "
                          "run synthetic data as the control", a, b)


def more_workers_longer(table: Table) -> Iterator[Finding]:
    """The most workers took longer than a row that does not even say how many it had."""
    timed = table.having("total_seconds") if "size" in table.columns else []
    most = max((size(row) for row in timed if size(row) > 1), default=math.nan)
    unknown = [row for row in timed if math.isnan(size(row))]
    for row, other in itertools.product([row for row in timed if size(row) == most], unknown):
        if other["total_seconds"] < row["total_seconds"]:
            yield finding("more workers, longer", f"{on(row)} took {number(row['total_seconds'])} s, longer than the "
                          f"{number(other['total_seconds'])} s of line {other['row']}: start-up and input dominate so "
                          "short a run; compare seconds per epoch, the first left out", row)


# Layout: how many workers ran, and on what.

def steps_of_other_workers(table: Table) -> Iterator[Finding]:
    """Steps that tell of another number of workers, or of images seen more or less often than there were epochs."""
    steps = "steps_per_epoch" if "steps_per_epoch" in table.columns else "steps"
    config = table.config
    counted = [row for row in table.having(steps, "batch_size") if row["batch_size"] > 0 and row[steps] > 0]
    alone = {key(row, config): row[steps] * row["batch_size"] for row in counted if size(row) == 1}
    for row in counted:
        known = value(row, "images") * (1.0 if steps == "steps_per_epoch" else value(row, "epochs"))
        images = known if known > 0 else alone.get(key(row, config), math.nan)
        last = over(global_batch(row), value(row, "images")) if known > 0 else 0.0  # That step may be a partial one.
        batches = over(images, row["batch_size"])
        if size(row) > 0 and batches > 0 and not near(row[steps] * size(row), batches, max(0.02, last)):
            told = over(batches, row[steps])
            whole = told > 0.97 and near(told, round(told), 0.03)
            ran = f"so {told:.0f} workers ran" if whole else "which is no number of workers"
            yield finding("steps of other workers", f"{number(row[steps])} steps with {on(row)}: {number(images)} "
                          f"images are {number(batches)} batches of {number(row['batch_size'])}, and "
                          f"{number(batches)} / {number(row[steps])} = {told:.2f}, {ran} "
                          f"(expected {batches / size(row):,.0f} steps)", row)


def impossible_layout(table: Table) -> Iterator[Finding]:
    """More nodes than workers, or numbers of workers that contradict each other."""
    for row in table.having("size", "nodes"):
        count = row["nodes"] * value(row, "processes_per_node")
        if row["nodes"] > row["size"]:
            yield finding("impossible layout", f"{on(row)} cannot be on {number(row['nodes'])} nodes; "
                          "hvd.size() is all workers, not those of a node", row)
        elif count > 0 and count != row["size"]:
            yield finding("impossible layout", f"{number(row['nodes'])} nodes x {number(row['processes_per_node'])} "
                          f"are {number(count)} workers, not {number(row['size'])}", row)


def other_layout_than_asked(table: Table) -> Iterator[Finding]:
    """Runs whose workers, nodes, threads or backend are not those that were asked for (records)."""
    rule = "other layout than asked"
    for row in table.rows:
        # What `labs run` and `labs sweep` call a run.
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


def wrong_global_batch(table: Table) -> Iterator[Finding]:
    """A global batch that is not batch x workers."""
    for row in table.having("global_batch_size", "batch_size"):
        right = row["batch_size"] * size(row)
        if row["global_batch_size"] and right > 0 and row["global_batch_size"] != right:
            yield finding("wrong global batch", f"{number(row['global_batch_size'])} is not "
                          f"{number(row['batch_size'])} x {on(row)} = {number(right)}", row)


def missing_workers(table: Table) -> Iterator[Finding]:
    """A row that does not say how many workers ran, in a table where the others do."""
    for row in table.rows if table.having("size") else ():
        if not known(row.get("size")):
            yield finding("missing workers", "the number of workers is missing: no speedup follows from this row", row)


# What else changed between rows that are compared.

def changed_learning_rate(table: Table) -> Iterator[Finding]:
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


def _changed(row: Row, kinds: Iterable[Row], name: str, most: float) -> Iterator[Finding]:
    """Yield a finding if no row with fewer workers leads to this row's learning rate."""
    fewer = [other for other in kinds if size(other) < size(row) or (size(other) == 1 and not size(row) > 0)]
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


def two_things_changed(table: Table) -> Iterator[Finding]:
    """Accuracies compared between rows that differ in workers and in batch per worker, and no learning rate told."""
    quality = [name for name in QUALITY if name in table.columns]
    if not quality or {"learning_rate", "base_lr", "scaling"} & table.columns:
        return
    shaped = [row for row in table.having(quality[0], "batch_size") if size(row) > 0]
    shapes = {(row["batch_size"], size(row)) for row in shaped}
    for row in shaped:
        others = shapes - {(row["batch_size"], size(row))}
        if others and size(row) > 1 and all(row["batch_size"] != b and size(row) != n for b, n in others):
            first = min(shaped, key=size)
            times = over(global_batch(row), global_batch(first))
            yield finding("two things changed", f"{on(first)} of batch {number(first['batch_size'])} against {on(row)} "
                          f"of batch {number(row['batch_size'])}: the global batch is {number(times)} times as large; "
                          "tell both learning rates, and the rule between them", first, row)


def strong_scaling_that_is_none(table: Table) -> Iterator[Finding]:
    """Rows called strong scaling whose global batch is not held."""
    groups = defaultdict(list)
    others = [name for name in table.config if name not in ("batch_size", "processes_per_node", "threads")]
    for row in table.having("experiment"):
        if "strong" in str(row["experiment"]).lower() and global_batch(row) > 0:
            groups[key(row, others)].append(row)
    for first, *later in groups.values():
        for row in later:
            if global_batch(row) != global_batch(first):
                yield finding("strong scaling that is none", f"global batch {number(global_batch(row))} against "
                              f"{number(global_batch(first))} in line {first['row']}; strong scaling holds it", row)


# Sums and spreads.

PARTS = ("input_seconds", "compute_seconds", "communication_seconds", "validation_seconds", "other_seconds")


def parts_that_do_not_sum(table: Table) -> Iterator[Finding]:
    """Parts of an epoch that are more, or less, than the whole."""
    for whole, prefix in (("epoch_seconds", ""), ("ledger_wall_seconds", "ledger_")):
        timed = table.having(whole, f"{prefix}compute_seconds", f"{prefix}communication_seconds")
        for row in (row for row in timed if row[whole] > 0):
            parts = {name: value(row, prefix + name) for name in PARTS if not math.isnan(value(row, prefix + name))}
            missing = row[whole] - sum(parts.values())
            if abs(missing) > 0.05 * row[whole]:
                told = " + ".join(f"{name.removesuffix('_seconds')} {number(part)}" for name, part in parts.items())
                yield finding("parts that do not sum", f"{told} = {number(row[whole] - missing)} s of "
                              f"{number(row[whole])} s: {number(abs(missing))} s ({abs(missing) / row[whole]:.0%}) are "
                              f"{'nowhere; show input and the rest' if missing > 0 else 'too many'}", row)
            elif parts.get("other_seconds", 0) < -0.15 * row[whole]:  # Less is the difference of two measurements.
                yield finding("parts that do not sum", f"other is {number(parts['other_seconds'])} s of "
                              f"{number(row[whole])} s: the parts were measured slower than the whole; repeat on an "
                              "idle machine", row)


SPREAD = re.compile(r"seed|repeats|runs|.*(_low|_high|_std|_sd|_ci95|_ci|_interval|_error)$|standard_error")


def difference_within_noise(table: Table) -> Iterator[Finding]:
    """Accuracies of single runs that differ by less than two standard errors, sqrt(p (1 - p) / n) each."""
    if "test_accuracy" not in table.columns or any(SPREAD.fullmatch(name) for name in table.columns):
        return
    groups = defaultdict(list)
    for row in table.having("test_accuracy"):
        if 0 < row["test_accuracy"] < 1:
            groups[key(row, [name for name in table.config if name != "batch_size"])].append(row)
    for group in groups.values():
        best = max(group, key=lambda row: row["test_accuracy"])
        limit = {id(row): 2 * math.hypot(_error(row), _error(best)) for row in group}
        alike = [row for row in group if best["test_accuracy"] - row["test_accuracy"] < limit[id(row)]]
        if len(alike) > 1:
            told = ", ".join(number(row["test_accuracy"]) for row in alike)
            yield finding("difference within noise", f"{told}: on {number(_images(best))} test images the standard "
                          f"error of each is {_error(best):.4f}, so they do not differ; repeat with seeds, and give "
                          "mean and interval", *alike)


def _images(row: Row) -> float:
    told = value(row, "test_images")
    return told if told > 0 else 10_000.0  # As many as the usual test sets have at most.


def _error(row: Row) -> float:
    return math.sqrt(row["test_accuracy"] * (1 - row["test_accuracy"]) / _images(row))


def impossible_figures(table: Table) -> Iterator[Finding]:
    """Times, rates and shares that no run can have."""
    for name in ("images_per_sec", *TIMES, "ledger_wall_seconds", "speedup", "scaling_efficiency"):
        for row in table.having(name):
            if row[name] <= 0:
                yield finding("impossible figure", f"{name} {number(row[name])} is not above 0", row)
    for name in sorted(name for name in table.columns if name.endswith("accuracy")):
        for row in table.having(name):
            if not 0 <= row[name] <= 100:
                yield finding("impossible figure", f"{name} {number(row[name])} is no share", row)


BOTH: tuple[Rule, ...] = (
    efficiency_above_1, input_bound_baseline, steps_of_other_workers, impossible_layout, wrong_global_batch,
    changed_learning_rate, parts_that_do_not_sum, impossible_figures,
)
TYPED: tuple[Rule, ...] = (
    *BOTH, wrong_speedup, wrong_efficiency, more_workers_longer, missing_workers, two_things_changed,
    strong_scaling_that_is_none, difference_within_noise, *traffic.RULES,
)
"""Rules for a table that somebody typed."""
RECORDED: tuple[Rule, ...] = (*BOTH, other_layout_than_asked)
"""Rules for records: what a run computed itself needs no check of its arithmetic."""
