"""Results of a question: rows with ratios and intervals."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from labs.results.noise import geometric_interval


@dataclasses.dataclass(frozen=True)
class Row:
    """The kit against one other contender, in one case."""

    question: str
    case: str
    against: str
    kit: float
    other: float
    unit: str
    ratio: float
    """Median over the rounds of the kit's figure divided by the other's of the same round; above 1 the kit is ahead."""
    low: float
    high: float
    """95 % interval of the geometric mean of those ratios."""
    rounds: int
    required: float | None
    target: float | None


def rows(question: str, unit: str, rounds: Sequence[Mapping[str, Mapping[str, float]]], bounds: Mapping,
         kit: str = "kit", smaller_is_better: bool = False) -> list[Row]:
    """Return a row for each case and each other contender.

    Args:
        question: In a few words.
        unit: Of the figures.
        rounds: From `interleaved`.
        bounds: (required, target) by other contender, or by (other contender, case).
        kit: The contender that is compared.
        smaller_is_better: Whether a smaller figure is better, as for seconds.
    """
    table = []
    for case in rounds[0][kit]:
        for other in [name for name in rounds[0] if name != kit]:
            pairs = [(each[kit][case], each[other][case]) for each in rounds if case in each[other]]
            if not pairs:
                continue
            ratios = [b / max(a, 1e-9) if smaller_is_better else a / b for a, b in pairs]
            required, target = bounds.get((other, case)) or bounds.get(other) or (None, None)
            low, high = geometric_interval(ratios) if len(ratios) > 1 else (float("nan"), float("nan"))
            ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
            table.append(Row(question, case, other, ours, theirs, unit, statistics.median(ratios), low, high,
                             len(ratios), required, target))
    return table
