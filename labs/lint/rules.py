"""Rules about figures that cannot be right, or that do not support a comparison, and the check of rows by them.

A rule is a function that yields a tuple per finding: a text with cause and cure, and the rows that it is about.
"""

import math
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from labs.lint.tables import SPEEDS, Row, families, group, measured_by, text
from labs.results import noise, scaling
from labs.results.ledger import ENTRIES

Found = Iterator[tuple[Any, ...]]
MOST = 1 + scaling.ROUNDED  # The largest efficiency that rounding explains.


class Finding(NamedTuple):
    """Figures that cannot be right or prove nothing: in which file or run, by which rule, why, and the cure."""

    where: str
    lines: tuple[int, ...]
    rule: str
    text: str

    def __str__(self) -> str:
        lines = f", line{'s' * (len(self.lines) > 1)} {', '.join(map(str, self.lines))}" if self.lines else ""
        return f"{self.where}{lines}: {self.rule}: {self.text}"


def judge(rows: list[Row]) -> list[Finding]:
    """Return what the rules find in some rows, by row."""
    found = [Finding(about[0]["where"], tuple(row["line"] for row in about if row["line"]),
                     rule.__name__.replace("_", " "), text) for rule in RULES for text, *about in rule(rows)]
    return sorted(found, key=lambda finding: (finding.where, finding.lines))


def brief(findings: Iterable[Finding]) -> list[str]:
    """Return a line per rule: the first finding in full, and the number of the others."""
    groups = group(findings, lambda each: each.rule)
    return [f"{first}" + f" (and {len(others)} more)" * bool(others) for first, *others in groups]


def near(a: float, b: float, tolerance: float = 0.02) -> bool:
    """Return whether two figures agree except for rounding."""
    return abs(a - b) <= tolerance * abs(b)


def efficiency_above_1(rows: list[Row]) -> Found:
    """Find n workers that are more than n times as fast as one."""
    by = measured_by(rows)
    compared = [(base, cell) for base, cell in families(rows, by) if cell[0].size > base[0].size]
    for base, cell in compared:
        n = cell[0].size / base[0].size
        speedup = noise.compare(_by_seed(cell, by), _by_seed(base, by), ratio=True, comparisons=len(compared))
        if speedup.value > MOST * n and not speedup.low <= n:
            yield (f"{text(speedup.value)} times the throughput of {base[0]['workers']} with {cell[0]['workers']}: "
                   f"{_cause(speedup.value / n)}", *cell)
    for row in rows:
        for what, efficiency in (f"speedup {text(row.speedup)} with {row['workers']}:", row.speedup / row.size), (
                "scaling", row.scaling_efficiency):
            if efficiency > MOST:
                yield f"{what} {_cause(efficiency)}", row


def _by_seed(rows: list[Row], by: str) -> dict[Hashable, float]:
    """Return throughputs by seed, or by row if seeds repeat, without disturbed runs where there are others."""
    rows = [row for row in rows if not row.get("disturbed")] or rows
    unique = len({row.seed for row in rows if not math.isnan(row.seed)}) == len(rows)
    return {row["seed"] if unique else object(): row.throughput(by) for row in rows}


def _cause(efficiency: float) -> str:
    """Return an efficiency above 1 with its probable cause and the cure."""
    return f"efficiency {efficiency:.2f}; " + (
        "write 0.95 for 95 %" if efficiency > 5 else "the base is slow for another reason (input, a single run), or "
        "another number of workers ran than the row says: repeat both")


def wrong_speedup(rows: list[Row]) -> Found:
    """Find speedups that are not throughput(n) / throughput(1) of one configuration, and say what they are instead."""
    by = measured_by(rows)
    for base, cell in families(rows, by):
        for row in (row for row in cell if not math.isnan(row.speedup)):
            # A base of several workers may have a speedup itself.
            scale = base[0].speedup if base[0].size > 1 and base[0].speedup > 0 else 1.0
            rights = [scale * row.throughput(by) / other.throughput(by) for other in base]
            if not any(near(row.speedup, right, 0.03) for right in (*rights, noise.geometric_mean(rights))):
                yield _instead(row, base[0], rights[0], rows, by), row


def _instead(row: Row, base: Row, right: float, rows: list[Row], by: str) -> str:
    """Say which other ratio of the table a speedup is."""
    others = sorted((other for other in rows if other.throughput(by) > 0 and other is not row),
                    key=lambda other: (other.agree() != row.agree(), other.size != row.size))
    ratios = [(row, row, "every row was used as its own baseline"), (base, row, "inverted"),
              *((other, base, "labels swapped") for other in others
                if other.agree() == row.agree() and base.batch in (other.batch, other.global_batch)),
              *((row, other, "the wrong base") for other in others)]
    what = next((f"{cause}: it is that of {a['place']} over that of {b['place']} (batch {text(b.batch)}, "
                 f"{b['workers']})" for a, b, cause in ratios
                 if near(row.speedup, a.throughput(by) / b.throughput(by), 0.005)),
                "no ratio of this table gives it")
    return f"{text(row.speedup)} is not the throughput over that of {base['place']}, {right:.2f}; {what}"


def steps_of_other_workers(rows: list[Row]) -> Found:
    """Find steps that fit another number of workers: steps x batch x workers are not the images of an epoch."""
    counted = [row for row in rows if row.steps_per_epoch * row.batch_size > 0 and row.size > 0]
    # A smaller batch counts the images better: its last step pads fewer.
    alone = {row.agree(): row for row in sorted(counted, key=lambda row: -row.batch_size) if row.size == 1}
    for row in counted:
        steps, images = row.steps_per_epoch, _images(row, alone.get(row.agree()))
        batches, last = images / row.batch_size, row.global_batch / images  # The last step may be a partial one.
        if abs(steps * row.size - batches) > max(0.02, last) * batches:
            yield (f"{text(steps)} steps with {row['workers']}: {text(images)} images are {text(batches)} batches of "
                   f"{text(row.batch_size)}, and {text(batches)} / {text(steps)} = {batches / steps:.2f} workers ran "
                   f"(expected {batches / row.size:,.0f} steps)"), row


def _images(row: Row, alone: Row | None) -> float:
    """Return the images of an epoch: as stated, or those that one worker saw; NaN if a fixed number of steps ran."""
    if row.images > 0 or alone is None:
        return row.images or math.nan
    fixed = alone.steps_per_epoch == row.steps_per_epoch and not row.epochs > 0
    return math.nan if fixed else alone.steps_per_epoch * alone.batch_size


def other_workers_than_asked(rows: list[Row]) -> Found:
    """Find runs of other workers than the run's name says."""
    for row in rows:
        if row.get("asked") and row["asked"] != row["size"]:
            yield (f"{row['asked']} workers asked for, {text(row.size)} ran; each process may have trained alone: "
                   "start them with one `labs run`"), row


def changed_learning_rate(rows: list[Row]) -> Found:
    """Find a learning rate that no scaling rule gives from the rows with fewer workers: two things changed."""
    most = max((row.size for row in rows if row.size > 0), default=1.0)
    for same in group((row for row in rows if row.learning_rate > 0), lambda row: row.agree("base_lr")):
        kinds = {(row.learning_rate, row.size, row.global_batch): row for row in reversed(same)}.values()
        for row in same:
            fewer = [each for each in kinds if each.size < row.size or (each.size == 1 and not row.size > 0)]
            if fewer and not any(_is_scaled(other, row, most) for other in fewer):
                other = min(fewer, key=lambda other: (other.size, other.learning_rate))
                yield (f"{text(row.learning_rate)} against {text(other.learning_rate)} in {other['place']}: "
                       f"{text(row.learning_rate / other.learning_rate)} times, which no scaling rule gives for "
                       f"{row['workers']}; the rows do not compare numbers of workers"), row


def _is_scaled(other: Row, row: Row, most: float) -> bool:
    """Return whether a learning rate follows from another's by a rule (none, linear, sqrt) in the global batch."""
    ratio = row.learning_rate / other.learning_rate
    known = [k for k in (row.global_batch / other.global_batch, row.size / other.size) if k > 0]
    if not known:
        return 0.98 / most <= ratio <= 1.02 * most
    return any(near(ratio, right) for right in (1.0, known[0], math.sqrt(known[0])))


def two_things_changed(rows: list[Row]) -> Found:
    """Find accuracies of rows that differ in workers and in batch per worker, in a table without learning rates."""
    shaped = [row for row in rows if row.global_batch > 0 and (row.test_accuracy > 0 or row.train_accuracy > 0)]
    for row in shaped if not any(row.learning_rate > 0 for row in rows) else ():
        others = [other for other in shaped if other.global_batch != row.global_batch]
        if row.size > 1 and others and all(row.batch != each.batch and row.size != each.size for each in others):
            first = min(shaped, key=lambda row: row.size)
            yield (f"{first['workers']} of batch {text(first.batch)} against {row['workers']} of batch "
                   f"{text(row.batch)}: the global batch is {text(row.global_batch / first.global_batch)} times as "
                   "large; state both learning rates, and the rule between them"), first, row


IMAGES = 10_000  # The test images of MNIST and of CIFAR-10; the other sets of the course have fewer.


def difference_within_noise(rows: list[Row]) -> Found:
    """Find accuracies of single runs, without times, that differ by no more than the noise of their test images."""
    single = [row for row in rows if 0 < row.test_accuracy < 1 and "seed" not in row]
    for same in group(single, lambda row: (row.agree(), str(row.batch), str(row.learning_rate))):
        best = max(row.test_accuracy for row in same)
        alike = [row for row in same if not noise.compare_shares(
            best, row.test_accuracy, IMAGES, comparisons=max(1, len(same) - 1)).resolved]
        timed = all(any(row.get(name) for name in (*SPEEDS, "speedup")) for row in same)
        if not timed and len({row.test_accuracy for row in alike}) > 1 and len({row.size for row in alike}) > 1:
            yield (f"{', '.join(text(row.test_accuracy) for row in alike)}: on {text(IMAGES)} test images the "
                   f"standard error of each is {noise.standard_error(best, IMAGES):.4f}, so the difference may be "
                   "chance; repeat with several seeds, and give mean and interval"), *alike


def busy_machine(rows: list[Row]) -> Found:
    """Find runs whose times allow no conclusion."""
    yield from ((row["warning"].removeprefix("Disturbed: "), row) for row in rows if row.get("warning"))


def identical_clocks(rows: list[Row]) -> Found:
    """Find records of different runs with the same times to the last digit."""
    for first, *others in group((row for row in rows if row.get("clocks")), lambda row: row["clocks"]):
        yield from ((f"its {len(row['clocks'])} epochs took the same times as those of {first['where']}, to the last "
                     "digit: copied, not measured", row) for row in others)


def parts_that_do_not_sum(rows: list[Row]) -> Found:
    """Find parts of an epoch whose sum is not the whole."""
    for row in (row for row in rows if not math.isnan(row.compute_seconds + row.communication_seconds)):
        whole = row.seconds_per_epoch
        parts = {part: row[f"{part}_seconds"] for part in ENTRIES if f"{part}_seconds" in row}
        missing = whole - sum(parts.values())
        if abs(missing) > 0.05 * whole > 0:
            terms = " + ".join(f"{part} {text(taken)}" for part, taken in parts.items())
            verdict = "not accounted for; show input and the rest" if missing > 0 else "too many"
            yield (f"{terms} = {text(whole - missing)} s of {text(whole)} s: {text(abs(missing))} s "
                   f"({abs(missing) / whole:.0%}) are {verdict}"), row


def bandwidth_above_the_machine(rows: list[Row]) -> Found:
    """Find bandwidths that the row's link, or any link, cannot have."""
    for row in rows:
        # GB/s: nccl-tests measured 475 between eight H200, and NVLink 5 of a B200 carries 900.
        most, reason = 100.0 if row.get("device") == "cpu" else 1000.0, "no all-reduce reaches"
        if row.link_gb_per_sec > 0:
            most, reason = row.link_gb_per_sec, "the link has"
        if row.bandwidth_gb_per_sec > 1.05 * most:
            yield (f"{text(row.bandwidth_gb_per_sec)} GB/s; {reason} {text(most)}: bits for bytes, or a step for an "
                   "epoch?"), row


def bytes_by_batch(rows: list[Row]) -> Found:
    """Find bytes that fall as the batch grows: they were added up over the steps of an epoch."""
    for name in ("forward_bytes", "backward_bytes", "allreduce_bytes"):
        sent = [row for row in rows if row.get(name) and row.batch_size > 0]
        for same in group(sent, lambda row: (row.agree(), str(row.size))):
            products = [row[name] * row.batch_size for row in same]
            if len({row.batch_size for row in same}) > 1 and near(max(products), min(products), 0.1):
                yield from ((f"{name} {text(row[name])}: per step they are the same for every batch; an epoch has "
                             "fewer steps when the batch is larger (which of the two is it?)", row) for row in same)


RULES = (efficiency_above_1, wrong_speedup, steps_of_other_workers, other_workers_than_asked,
         changed_learning_rate, two_things_changed, difference_within_noise, busy_machine, identical_clocks,
         parts_that_do_not_sum, bandwidth_above_the_machine, bytes_by_batch)
