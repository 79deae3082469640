"""Config hashes and names of a sweep's runs stay as they were (`before/names.json`), so that finished runs are found.

Most are those of commit 860e70b; four sweeps have got new runs since, and lab 7's "paper" has NCCL.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from labs import lab05_allreduce, lab11_multinode
from labs.run import catalogue, fields, sweeps

NAMES = json.loads((Path(__file__).parent / "before" / "names.json").read_text())
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


@pytest.mark.parametrize(("lab", "preset"), [(lab, preset) for lab in NAMES for preset in NAMES[lab]])
def test_a_config_and_a_sweeps_runs_have_the_hash_and_the_names_that_they_had(lab, preset):
    """The names of lab 8's runs depend on the machine's cores; labs 5 and 11 have new fields."""
    lab_, was, new = catalogue.load_lab(lab), NAMES[lab][preset], NEW_FIELD.get(lab, {})
    config = dataclasses.replace(lab_.presets[preset], **({"backend": BACKEND[lab]} if lab in BACKEND else {}))
    assert {name: getattr(config, name) for name in new} == new
    kept = [(each.name, object) for each in dataclasses.fields(config) if each.name not in new]
    old = dataclasses.make_dataclass("Config", kept)(*(getattr(config, name) for name, _ in kept))
    assert fields.config_hash(old) == was["config_hash"]
    if "names" in was:
        names = [cell.name for cell in sweeps.cells(lab_.sweeps[preset], config)]
        assert (len(names), hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]) == (was["runs"], was["names"])
