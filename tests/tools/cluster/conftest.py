"""Clusters: one that is not up, and one of two nodes for all tests of a file."""

from collections.abc import Iterator

import pytest

from tests.tools.cluster.client import Cluster, ending, running


@pytest.fixture
def free(tmp_path) -> Iterator[Cluster]:
    """A cluster that is not up; it is ended after the test."""
    with ending(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Iterator[Cluster]:
    """Two nodes."""
    with running(tmp_path_factory.mktemp("two") / "cluster", "--nodes", 2) as cluster:
        yield cluster
