"""The registry: every data set has a source, a licence, a checksum if one is published, and synthetic data."""

from __future__ import annotations

import pytest

from labs.datasets import registry, synthetic
from labs.run.errors import LabError
from labs.run.paths import ROOT


def test_every_set_is_documented_and_has_synthetic_data():
    assert set(synthetic.MAKERS) == set(synthetic.DIGESTS) == set(registry.DATASETS)
    text = (ROOT / "data" / "README.md").read_text()
    for dataset in registry.DATASETS.values():
        assert all(part in text for part in (f"`{dataset.name}`", dataset.licence, dataset.url))
        assert (dataset.size is None) == (dataset.checksum is None)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(LabError, match="unknown data set 'imagenet'; there are mnist, cifar10, fruits360"):
        registry.get("imagenet")
