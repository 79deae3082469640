"""What the kit wrote before its renovation (commit 860e70b, in `before/`): config hashes, run names, records.

The records and weights are those with which the kit changed over to Keras 3. Four sweeps have got new runs
since, the "demo" of labs 4 and 6 and both of lab 9: their names are those of 26 November 2026, and so is the
configuration of lab 4's "demo". The "paper" of lab 7 has NCCL since 27 November.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from labs import lab05_allreduce, lab11_multinode
from labs.cli import commands
from labs.results import records
from labs.run import catalogue, fields, sweeps

BEFORE = Path(__file__).parent / "before"
NAMES = json.loads((BEFORE / "names.json").read_text())
NEW_FIELD = {
    "lab01_baseline": {"images": 0},
    "lab02_horovod": {"images": 0, "threads": 0, "order": "sharded", "reshuffle": True},
    "lab03_lr_scaling": {"images": 0, "study": "training"},
    "lab05_allreduce": {"fp16_allreduce": False, "bandwidths": lab05_allreduce.Config.bandwidths},
    "lab11_multinode": {"study": "training", "bandwidths": lab11_multinode.Config.bandwidths,
                        "fixed_ms": lab11_multinode.Config.fixed_ms, "image_ms": lab11_multinode.Config.image_ms,
                        "validation_split": 0.0, "backend": "auto"},
    "lab12_elastic": {"save_every": 0.12, "mean_life": 1.0, "kills": 67},
}
"""Fields that a Config has got since: its hash must be the old one without them."""
BACKEND = {"lab05_allreduce": "mpi", "lab07_vit": "mpi"}
"""What "auto" was called until 27 November 2026, when "mpi" became what it says on GPUs too."""
RECORDS = ("lab02_horovod", "lab10_caltech")


def as_it_was(lab, preset):
    config = catalogue.load_lab(lab).presets[preset]
    return dataclasses.replace(config, backend=BACKEND[lab]) if lab in BACKEND else config


@pytest.mark.parametrize(("lab", "preset"), [(lab, preset) for lab in NAMES for preset in NAMES[lab]])
def test_a_config_has_the_hash_that_it_had(lab, preset):
    config = as_it_was(lab, preset)
    new = NEW_FIELD.get(lab, {})
    assert {name: getattr(config, name) for name in new} == new
    kept = [(each.name, object) for each in dataclasses.fields(config) if each.name not in new]
    old = dataclasses.make_dataclass("Config", kept)(*(getattr(config, name) for name, _ in kept))
    assert fields.config_hash(old) == NAMES[lab][preset]["config_hash"]


@pytest.mark.parametrize(("lab", "preset"), [(lab, preset) for lab in NAMES for preset in NAMES[lab]
                                             if "names" in NAMES[lab][preset]])
def test_a_sweep_gives_its_runs_the_names_that_they_had(lab, preset):
    """Labs 5 and 11 have new fields; the names of lab 8's runs depend on the machine's cores."""
    lab_ = catalogue.load_lab(lab)
    names = [cell.name for cell in sweeps.cells(lab_.sweeps[preset], as_it_was(lab, preset))]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    assert {"runs": len(names), "names": digest} == {name: NAMES[lab][preset][name] for name in ("runs", "names")}


@pytest.mark.parametrize("lab", RECORDS)
def test_an_old_record_is_read(lab):
    record, lab_ = records.read(BEFORE / lab / "keras3"), catalogue.load_lab(lab)
    assert lab_.Config(**record["config"]) == dataclasses.replace(lab_.presets["demo"], epochs=2)


def test_commands_take_old_records(tmp_path, monkeypatch, capsys):
    for lab in RECORDS:
        shutil.copytree(BEFORE / lab, tmp_path / "results" / lab)
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "results"))
    assert commands.dispatch(["lint"]) == 0
    assert commands.dispatch(["report", "--output", str(tmp_path / "report.html")]) == 0
    capsys.readouterr()
    assert commands.dispatch(["results"]) == 0
    for text in (capsys.readouterr().out, (tmp_path / "report.html").read_text()):
        assert all(lab in text for lab in RECORDS), text
