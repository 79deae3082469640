"""The registry: the source and the checksum of every data set."""

from __future__ import annotations

import re

import pytest

from labs.datasets.registry import DATASETS, get
from labs.datasets.synthetic import embedded
from labs.run.errors import LabError


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
def test_an_entry_is_complete(dataset):
    assert dataset.url.startswith("https://")
    assert dataset.citation.endswith(".")
    assert dataset.licence
    assert dataset.layout
    assert dataset.required
    assert dataset.filename.endswith(dataset.url.rsplit("/", 1)[1])
    assert (dataset.size is None) == (dataset.checksum is None)
    if dataset.checksum:
        algorithm, digits = dataset.checksum.split(":")
        assert re.fullmatch("[0-9a-f]+", digits)
        assert len(digits) == {"sha256": 64, "sha512": 128}[algorithm]


def test_every_set_has_synthetic_data():
    assert set(embedded.MAKERS) == set(embedded.DIGESTS) == set(DATASETS)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(
        LabError, match="no data set is called 'imagenet'; there are mnist, cifar10, fruits360"
    ):
        get("imagenet")


def test_the_readme_of_the_data_names_every_set():
    from labs.run.paths import ROOT

    text = (ROOT / "data" / "README.md").read_text()
    for dataset in DATASETS.values():
        assert f"`{dataset.name}`" in text
        assert dataset.licence in text
        assert dataset.url in text
