"""`labs report`: one page that needs nothing else, and says what is there and what is not."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from labs import lab04_speedup
from labs.course import plots, studies
from labs.results import scaling, speed_tables
from labs.run import catalogue, sweeps
from labs.run.paths import ROOT
from labs.tools.report import page
from tests.lint.test_lint import sound, write_runs
from tests.results.test_records import HISTORY, record

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
        made["metrics"]["cpu_percent"] = 87.5
        result.append(made)
    return result


def question(text: str) -> str:
    """Return a question of lab 4 as the page has it: without its codes."""
    return text.partition(": ")[2].capitalize()


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """Write the page of a results folder with two sweeps, collectives, a foreign lab and damaged records."""
    root = tmp_path_factory.mktemp("results")
    foreign = record("<b>bold", 2) | {"lab": "lab77_other"}
    rows = [{"collective": "allreduce", "library": library, "bytes": 4**power, "seconds": 1e-3, "seconds_low": 9e-4,
             "seconds_high": 2e-3, "algbw": 4**power * 1e3, "busbw": 4**power * 1e3}
            for library in ("Horovod", "raw MPI") for power in (1, 8)]
    exchange = record("exchange", 2) | {"lab": "lab05_allreduce", "tables": {"collectives": rows}}
    write_runs(root, *cells("weak"), foreign, exchange)
    (root / "lab10_caltech/torn").mkdir(parents=True)
    (root / "lab10_caltech/torn/record.json").write_text(json.dumps(record())[:90])
    page.write(root, root / "out/page.html", root / "out/page.md")
    return root / "out"


def test_the_page_needs_nothing_else(written):
    text = (written / "page.html").read_text()
    addresses = re.findall(r'(?:src|href|srcset|data|action)="([^"]*)', text)
    assert addresses
    assert all(address.startswith(("#", "data:image/svg+xml;base64,")) for address in addresses)
    assert not re.search(r"<(script|link|iframe|object)|url\(|@import", text)
    for picture in re.findall("<img (.*?)>", text):
        address, alternative = re.search(r'base64,(.*?)" alt="(.+?)"', picture).groups()
        assert b"<svg" in base64.b64decode(address)
        assert alternative


def test_the_page_opens_with_a_summary_whose_links_lead_down(written):
    head = (written / "page.html").read_text().partition("<section")[0]
    rows = dict(re.findall(r"(?s)<dt>(.*?)</dt><dd>\s*(.*?)\s*</dd>", head))
    assert list(rows) == ["runs", "asked", "best efficiency", "what limits", "lint"]
    assert "of 3 labs" in rows["runs"]
    best = r'<a href="#lab04_speedup">lab04_speedup: 0\.7\d+.* on 2 workers, weak scaling<'
    assert re.search(best, rows["best efficiency"])
    assert "lab04_speedup: communication: 20% of an epoch on 2 workers" in rows["what limits"]
    text = (written / "page.html").read_text()
    assert all(f'id="{name}"' in text for name in re.findall('href="#(.*?)"', "".join(rows.values())))


def test_the_first_screen_shows_the_runs_and_folds_the_rest(tmp_path):
    page.write(write_runs(tmp_path, record("mine", 2)), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    overview, _, rest = text.partition("<section")
    assert "<td>1</td><td>mine</td><td>2</td><td>32</td><td>64</td><td>400</td>" in re.sub(r"\s*\n\s*", "", overview)
    own, _, others = rest.partition("</section>")
    assert own.startswith(' id="lab10_caltech"')
    assert others.count("<section") == len(catalogue.lab_names()) - 1
    assert others.lstrip().startswith("<details><summary>labs without runs")
    assert text.count("<details") == text.count("</details>")
    assert "`" not in text
    assert "<code>labs sweep lab02_horovod --only table</code>" in others


def test_an_interval_needs_three_repeats(tmp_path):
    page.write(write_runs(tmp_path, *(run for run in cells("weak") if run["config"]["seed"] < 3)),
               tmp_path / "page.html", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| 32 | 2 | 2 | 154 | 3 | 1.52 | 0.761 |" in text
    assert "none with fewer than 3 repeats" in text


def test_test_accuracies_have_a_verdict_within_the_seeds(tmp_path):
    runs = []
    for size, accuracies in ((1, (0.80, 0.90, 0.70)), (2, (0.81, 0.90, 0.70)), (4, (0.75, 0.851, 0.649))):
        for seed, accuracy in enumerate(accuracies, 1):
            made = sound(f"w{size}-seed{seed}", size, 100.0 * size + seed, seed=seed)
            runs.append(made | {"metrics": {"test_accuracy": accuracy}})
    page.write(write_runs(tmp_path, *runs), tmp_path / "page.html", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| 2 | 3 | 0.803 [0.555, 1.05] | not resolved |" in text
    assert "| 4 | 3 | 0.75 [0.499, 1] | more than noise |" in text, "its interval overlaps with that of the first row"


def test_a_question_is_answered_by_its_own_runs(written):
    text = (written / "page.md").read_text()
    lab = text.partition(lab04_speedup.__doc__.splitlines()[0])[2].partition("\n## ")[0]
    weak, strong = (lab.index(question(text)) for text in (lab04_speedup.WEAK, lab04_speedup.STRONG))
    assert lab.startswith("\n\nlab04_speedup: 12 runs")
    assert "| 32 | 2 | 3 | 153 [148, 159] | 3 | 1.5 [1.4, 1.62] | 0.752 [0.7, 0.809] |" in lab[weak:strong]
    assert "| 32 | 1 | 1 | 6 | 2 | 0 | 1 | 10 |" in lab[weak:strong], "the ledger"
    assert "| 32 | 1 | 87.5 |" in lab[weak:strong], "the utilization"
    assert "makes the others" not in lab
    assert "12 runs;" not in lab[weak:strong]


def test_a_question_that_lacks_runs_says_so(tmp_path):
    page.write(write_runs(tmp_path, *cells("strong")), tmp_path / "page.html", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "6 of 12 runs; `labs sweep lab04_speedup --only weak` makes the others" in text
    assert "no run of lab01_baseline; `labs run lab01_baseline --workers 1` makes one" in text


def test_what_the_lab_says_and_draws_of_a_sweep_stands_there(tmp_path, monkeypatch):
    values = pd.DataFrame([[1, 2]]).rename_axis(index="depth", columns="width")
    figure = plots.heatmaps("peak (MiB)", {"1 worker": (values, values < 2)})
    name, text = lab04_speedup.LAB.name, "two workers win\n  from <1,000> parameters"
    monkeypatch.setattr(studies, "SUMMARIES", {name: [lambda runs: text if len(runs) == 12 else "wrong"]})
    monkeypatch.setattr(studies, "FIGURES", {name: lambda runs: [(f"peaks of {len(runs)}", figure)]})
    page.write(write_runs(tmp_path, *cells("weak")), tmp_path / "page.html", tmp_path / "page.md")
    lab = (tmp_path / "page.md").read_text().partition(question(lab04_speedup.WEAK))[2].partition("\n### ")[0]
    assert lab.startswith(" (demo)\n\nIn the course reports, C1: How long is an epoch")
    assert lab.index(f"```\n{text}\n```") < lab.index("peaks of 12") < lab.index(speed_tables.TITLES["weak"])
    assert "<pre>two workers win\n  from &lt;1,000&gt; parameters</pre>" in (tmp_path / "page.html").read_text()


def test_the_course_report_stands_beside_with_what_lint_finds(written):
    text = (written / "page.html").read_text()
    assert "lab04_speedup.csv" in text
    assert "48.6125" in text
    assert "line 3: parts that do not sum" in text
    assert "(likewise lines 4, 6, 7, 9, 10)" in text


def test_lint_of_the_runs_is_in_their_section(tmp_path):
    wrong = sound("b", 2, 250.0)
    page.write(write_runs(tmp_path, sound("a", 1, 100.0), wrong), tmp_path / "page.html", tmp_path / "page.md")
    lab = (tmp_path / "page.md").read_text().partition("\nlab10_caltech: 2 runs")[2]
    assert "- lab10_caltech/b: efficiency above 1: 2.5 times the throughput" in lab.partition("\n## ")[0]


def test_what_a_record_says_is_text_and_no_markup(written):
    text = (written / "page.html").read_text()
    assert "<b>" not in text
    assert "&lt;b&gt;bold" in text
    assert "lab77_other (not a lab of this clone)" in text


def test_the_plots_of_the_markdown_lie_beside_it(written):
    text = (written / "page.md").read_text()
    names = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert any(name.startswith("page_plots/lab05_allreduce-") for name in names), "the collectives"
    assert sorted(path.name for path in (written / "page_plots").iterdir()) == sorted(Path(name).name for name in names)
    assert {path.name for path in written.iterdir()} == {"page.html", "page.md", "page_plots"}, "nothing half written"


def labs(*arguments: str) -> subprocess.CompletedProcess:
    program = "import sys; sys.argv = ['labs', *sys.argv[1:]]\nfrom labs import cli\ntry: cli.main()\nfinally:\n" \
              "    print('loaded', *sorted({'tensorflow', 'horovod', 'pandas'} & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, check=False)


@pytest.mark.slow
def test_the_commands(tmp_path, monkeypatch):
    done = labs("lint", write_runs(tmp_path / "sound", sound("a", 1, 100.0)))
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["nothing implausible", "loaded"])
    done = labs("lint", ROOT / "data/reference/lab08_speedup.csv", tmp_path / "none.csv")
    assert done.returncode == 1
    assert "\nlab08_speedup.csv, line 7: efficiency above 1: " in done.stdout
    assert done.stderr == f"labs: error: {tmp_path}/none.csv: No such file or directory; " \
                          "give a results folder or a CSV file\n"
    (tmp_path / "browser").write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    (tmp_path / "browser").chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{tmp_path}/browser %s")
    done = labs("report", "--open", "--results", write_runs(tmp_path / "results", *cells("strong")))
    assert done.returncode == 0, done.stderr
    address = f"file://{tmp_path}/results/report.html\n"
    assert done.stdout == f"{tmp_path}/results/report.html\n{address}loaded pandas\n"
    assert (tmp_path / "opened").read_text() == address
    assert "constant global batch" in (tmp_path / "results/report.html").read_text()
    (tmp_path / "file").touch()
    for arguments in (["--results", tmp_path / "none"], ["--results", tmp_path, "--output", tmp_path / "file/x.html"]):
        done = labs("report", *arguments)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("labs: error: ")


# Plots.

def speedups() -> pd.DataFrame:
    frame = pd.DataFrame([
        {"lab": "x", "batch_size": batch, "seed": seed, "size": size, "nodes": 1,
         "images_per_sec": batch * size**0.8 * (1 + 0.05 * seed)}
        for batch in (32, 128) for size in (1, 2, 4) for seed in (1, 2)
    ])
    frame.attrs["config"] = ["batch_size", "seed"]
    return scaling.speedups(frame)


def test_speedups_are_drawn_with_intervals_and_the_ideal():
    reference = pd.DataFrame({"batch_size": [32, 32], "size": [1, 8], "speedup": [1, 2.0]})
    axes = plots.speedup(speedups(), reference=reference).axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert sorted(labels) == ["batch 128", "batch 32", "ideal", "report, batch 32"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("workers", "speedup: throughput(n) / throughput(1)")
    bars = axes.containers[0].lines[2][0].get_segments()
    row = speedups().iloc[1]
    assert bars[1][:, 1].tolist() == pytest.approx([row["speedup_low"], row["speedup_high"]])
    assert axes.get_xticks().tolist() == [1, 2, 4, 8]
    assert axes.get_ylim()[0] == 0


def test_the_parts_of_a_ledger_stand_on_each_other():
    """Bars are means, as in the table: the medians of these three runs would not sum to the wall time."""
    parts = [LEDGER | {"wall": 7.0, "compute": 3.0}] * 2 + [LEDGER | {"wall": 16.0, "compute": 12.0}]
    frame = pd.DataFrame([{f"ledger_{part}_seconds": value for part, value in each.items()} | {"size": 2}
                          for each in parts])
    axes = plots.ledger(frame).axes[0]
    assert [bar.get_height() for bar in axes.patches] == [1, 6, 2, 0, 1]
    assert [bar.get_y() for bar in axes.patches] == [0, 1, 7, 9, 9]
    assert axes.get_ylabel() == "seconds of one epoch"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["workers 2"]


@pytest.mark.filterwarnings("error")
def test_curves_of_nothing_warn_of_nothing():
    plots.curves([record() | {"history": []}, record() | {"history": [HISTORY[0]]}])
    plots.curves([record() | {"history": []}])
    plots.curves([])
