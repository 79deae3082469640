"""Which networks fit into memory: heatmaps over depth and width, remedies, and the largest that fits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from labs.run.text import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TITLES = {"peak_mb": "peak memory of a worker (MiB)", "seconds_per_epoch": "seconds per epoch",
          "test_psnr": "PSNR (dB)"}
"""The heatmaps' titles, by the column that they show."""


def summary(runs: Sequence[dict[str, Any]]) -> str:
    """Return the results of lab 6's sweeps as text: heatmaps in figures, the remedies, and the largest that fits.

    Args:
        runs: Records of lab 6.
    """
    from labs.results import records

    frame = records.table(runs)
    return "\n\n".join([*_grids(frame), *_remedies(frame), *_limits(frame)])


def figures(runs: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Figure]]:
    """Yield the heatmaps of the grid with their titles, one figure per value and one heatmap per number of workers."""
    from labs.course import plots
    from labs.results import records

    for title, group in itertools.groupby(heatmaps(records.table(runs)), key=lambda heatmap: heatmap[0]):
        yield title, plots.heatmaps(title, {plural(size, "worker"): (table, fits) for _, size, table, fits in group})


def heatmaps(frame: pd.DataFrame) -> Iterator[tuple[str, int, pd.DataFrame, pd.DataFrame]]:
    """Yield title, number of workers, values and whether they fit, both as tables of depth x width."""
    if "search" not in frame:
        return
    frame = frame[(frame["search"] == "no") & (frame["remedy"] == "none")]
    if not len(frame):
        return
    alike = frame.groupby(["data", "image_size", "noise_level", "global_batch_size"])
    frame = max((rows for _, rows in alike), key=lambda rows: rows["depth"].nunique() * rows["width"].nunique())
    if frame["depth"].nunique() < 2 or frame["width"].nunique() < 2:
        return
    for value, title in TITLES.items():
        if value == "test_psnr" and "noisy_psnr" in frame:
            title += f"; the noisy images have {frame['noisy_psnr'].median():.2f}"
        for size, rows in frame.groupby("size"):
            table = rows.pivot_table(index="depth", columns="width", values=value, aggfunc="median", dropna=False)
            fits = rows.pivot_table(index="depth", columns="width", values="fits", aggfunc="min").reindex_like(table)
            yield title, size, table, fits


def _grids(frame: pd.DataFrame) -> Iterator[str]:
    """Yield each heatmap as a table of figures."""
    for title, size, table, fits in heatmaps(frame):
        shown = table.round(1).astype(object).mask(fits == 0, "no fit").mask(fits.isna(), "no run")
        yield f"{title}, {plural(size, 'worker')}, depth x width:\n{shown.to_string()}"


def _remedies(frame: pd.DataFrame) -> Iterator[str]:
    """Yield a table of peak, time and PSNR with each remedy, without any, and with a smaller batch."""
    runs = frame[(frame["size"] == 1) & (frame["search"] == "no")]
    remedied = runs[runs["remedy"] != "none"]
    if not len(remedied):
        return
    alike = remedied[["depth", "width", "image_size", "noise_level"]].iloc[0]
    runs = runs[(runs[alike.index] == alike).all(axis=1)].sort_values(["batch_size", "peak_mb"], ascending=False)
    columns = {"remedy": "remedy", "batch_size": "batch", "peak_mb": "peak MiB", "seconds_per_epoch": "s/epoch",
               "test_psnr": "PSNR dB", "fits": "fits"}
    table = runs[list(columns)].rename(columns=columns).round(2)
    yield f"what helps at depth {alike['depth']}, width {alike['width']}:\n{table.to_string(index=False)}"


def _limits(frame: pd.DataFrame) -> Iterator[str]:
    """Yield the largest batch, width and depth that the searches found to fit."""
    for name in ("batch_size", "width", "depth"):
        if f"largest_{name}" in frame:
            rows = frame.dropna(subset=[f"largest_{name}"]).sort_values("size")
            each = [f"{int(row[f'largest_{name}'])} on {plural(row['size'], 'worker')}" for _, row in rows.iterrows()]
            yield f"largest {name} that fits {int(rows['memory_limit_mb'].iloc[0])} MiB per worker: {', '.join(each)}"
