"""`labs report`: one page that needs nothing else, with the tables, plots and warnings of all runs."""

import dataclasses
import html
import json
import re

import pytest

from labs import lab04_speedup
from labs.cli import commands
from labs.run import sweeps
from labs.run.errors import LabError
from tests.exercises.planted import write as write_runs
from tests.lint.test_lint import sound
from tests.results.test_records import record

LEDGER = {"wall": 10.0, "input": 1.0, "compute": 6.0, "communication": 2.0, "start": 0.0, "other": 1.0}


def cells(question: str) -> list[dict]:
    """Return records of the demo's cells of one of lab 4's sweeps, 1.5 times as fast with two workers."""
    chosen = next(one for one in lab04_speedup.SWEEPS["demo"] if one.name == question)
    result = []
    for cell in sweeps.cells([chosen], lab04_speedup.PRESETS["demo"]):
        varied = 1 + 0.01 * (cell.config.seed * cell.workers % 5)
        made = sound(cell.name, cell.workers, 100 * 1.5 ** (cell.workers > 1) * varied)
        made["lab"], made["config"] = cell.lab, dataclasses.asdict(cell.config)
        made["layout"]["global_batch_size"] = cell.config.batch_size * cell.workers
        made["metrics"] = {f"ledger_{part}_seconds": seconds for part, seconds in LEDGER.items()}
        made["metrics"]["test_accuracy"] = 0.9 + 0.01 * cell.config.seed - 0.05 * (cell.workers > 1)
        result.append(made)
    return result


EXPECTED = [
    r"14 runs in .*made 20",
    r"\(demo\)\n.*\n(.*\n)*32 \| 2 \| 3 \| 153 \[148, 159\] \| 3 \| 9 \| 1\.5 \[1\.4, 1\.62\] \| 0\.752 \[0\.7, 0\.8",
    r"32 \| 1 \| 1 \| 6 \| 2 \| 0 \| 1 \| 10 \|",  # The ledger.
    r"32 \| 2 \| 3 \| 0\.87 \[0\.8\d*, 0\.\d*\] \|",  # The test accuracy.
    r"lab10_caltech/b: efficiency above 1: 2\.5 times the throughput",
    r"lab77_other \(not a lab of this clone\)",
    r"<b>bold",  # As text.
]


def test_the_page_has_tables_plots_and_warnings_and_needs_nothing_else(tmp_path):
    """An incomplete sweep, an efficiency above 1, a foreign lab, a damaged record."""
    confused = [{"class": "cat", "predicted": "dog", "images": 1}, {"class": "cat", "predicted": "cat", "images": 3}]
    write_runs(tmp_path, *cells("weak")[:-1], sound("a", 1, 100.0), sound("b", 2, 250.0),
               record("<b>bold", 2) | {"lab": "lab77_other", "tables": {"confusion": confused}})
    (tmp_path / "lab10_caltech/torn").mkdir(parents=True)
    (tmp_path / "lab10_caltech/torn/record.json").write_text(json.dumps(record())[:90])
    commands.dispatch(["report", "--results", str(tmp_path)])
    page = (tmp_path / "report.html").read_text()
    addresses = re.findall(r'(?:src|href)="([^"]*)', page)
    assert len(addresses) >= 3
    assert all(address.startswith("data:image/svg+xml;base64,") for address in addresses)
    assert not re.search(r"<(script|link|iframe|object|b)\b|url\(|@import", page)
    text = re.sub(r"<style.*?</style>|<[^>]*>", "", re.sub(r"</td>", " | ", page), flags=re.DOTALL)
    assert [each for each in EXPECTED if not re.search(each, html.unescape(text))] == [], html.unescape(text)


def test_a_folder_without_runs_has_no_page(tmp_path):
    with pytest.raises(LabError, match="`labs run lab10_caltech --workers 2` makes some"):
        commands.dispatch(["report", "--results", str(tmp_path / "none")])
