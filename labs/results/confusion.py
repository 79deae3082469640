"""Which classes of the test images a run's network takes for which others, as a table."""

from __future__ import annotations

from labs.results.records import Record
from labs.results.tables import Grid
from labs.run.text import printable

HEAD = ("class", "test images", "right", "share right", "most often taken for")


def by_class(record: Record) -> Grid | None:
    """Return a row for each class, those with the most errors first; None if the run has counted no test images."""
    classes: dict[str, dict[str, int]] = {}
    for row in record.get("tables", {}).get("confusion", []):
        classes.setdefault(row["class"], {})[row["predicted"]] = row["images"]
    rows = sorted((_row(name, guesses) for name, guesses in classes.items()), key=lambda row: float(row[3]))
    return Grid(f"Confusions on the test images, run {record['run']}", HEAD, rows) if rows else None


def _row(name: str, guesses: dict[str, int]) -> list[str]:
    right, images = guesses.get(name, 0), sum(guesses.values())
    wrong = sorted(((count, guess) for guess, count in guesses.items() if guess != name), reverse=True)
    taken_for = ", ".join(f"{printable(guess)} ({count})" for count, guess in wrong[:2])
    return [printable(name), str(images), str(right), f"{right / images:.3f}", taken_for]
