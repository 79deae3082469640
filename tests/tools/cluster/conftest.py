"""Clusters: one that is not up, one of two nodes for all tests, and what the machine had before."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.run.paths import search_path
from tests.tools.cluster.client import Cluster, ending, running, sharing


@pytest.fixture
def free(tmp_path) -> Iterator[Cluster]:
    """A cluster that is not up; it is ended after the test."""
    with ending(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def two(tmp_path_factory) -> Iterator[Cluster]:
    """Two nodes that see the tests' temporary folder."""
    folder = tmp_path_factory.mktemp("two") / "cluster"
    with running(folder, "--nodes", 2, *sharing(tmp_path_factory.getbasetemp())) as cluster:
        yield cluster


def machine() -> dict[str, object]:
    """Return what a cluster must not change on the machine outside it."""
    env = {"PATH": search_path()}
    links, spaces = (subprocess.run(["ip", *words], env=env, capture_output=True, text=True, check=True).stdout
                     for words in (["-o", "link"], ["netns", "list"]))
    mounts = [line.split(maxsplit=1)[1] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {"interfaces": links, "named network namespaces": spaces, "mounts": mounts,
            "/etc/hosts": Path("/etc/hosts").read_text(), "/etc/netns": sorted(Path("/etc/netns").glob("**/*")),
            "/dev/shm": Path("/dev/shm").stat().st_dev, "host name": Path("/proc/sys/kernel/hostname").read_text()}


@pytest.fixture
def unchanged() -> Iterator[None]:
    """Compare the machine before and after a test."""
    before = machine()
    yield
    assert machine() == before
