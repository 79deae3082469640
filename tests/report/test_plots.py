"""What a figure says must be what the tables say: one colour for one setting."""

from __future__ import annotations

import pandas as pd

from labs.report import plots


def test_measured_and_reported_lines_of_one_batch_size_have_one_colour():
    measured = pd.DataFrame({"batch_size": [16, 16, 32, 32], "size": [1, 2, 1, 2], "speedup": [1, 1.4, 1, 1.5]})
    reported = pd.DataFrame({"batch_size": [32, 32, 128, 128], "size": [1, 2, 1, 2], "speedup": [1, 1.6, 1, 1.3]})
    figure = plots.speedup(measured, reference=reported)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    colours = {label: (each.lines[0] if hasattr(each, "lines") else each).get_color()
               for each, label in zip(handles, labels, strict=True)}
    assert colours["batch 32"] == colours["report, batch 32"]
    assert len({colours[name] for name in ("batch 16", "batch 32", "report, batch 128")}) == 3
