"""The links of a cluster: traffic control as requested, what a transfer takes, cut and restored links."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.run.paths import search_path
from tests.tools.cluster.client import NAMESPACES, Cluster

TRANSFER = Path(__file__).with_name("transfer.py")


def discipline(cluster: Cluster, node: str) -> list[dict]:
    """Return the queueing disciplines of a node's link: at the node, and at its port of the switch."""
    return [next(iter(json.loads(cluster.on(host, "tc", "-json", "qdisc", "show", "dev", device))))
            for host, device in ((node, "eth0"), ("head", node))]


def bits_per_second(ends: list[dict]) -> list[float | None]:
    """Return the bandwidth at both ends of a link; None is unlimited."""
    return [end["options"]["rate"] * 8 if end["kind"] == "tbf" else None for end in ends]


def links(cluster: Cluster) -> dict[str, str]:
    """Return the links that `labs cluster status` shows, by node."""
    return dict(re.findall(r"^(node\d+) +\S+ +\S+ +(.+)$", cluster.labs("status").stdout, re.MULTILINE))


@pytest.fixture
def pair(two) -> Iterator[Cluster]:
    """The two nodes, whose links are restored after the test."""
    yield two
    two.labs("link", "--bandwidth", "unlimited", "--up")


@contextlib.contextmanager
def receiver(cluster: Cluster, node: str) -> Iterator[None]:
    """Accept transfers on a node."""
    with cluster.start("shell", node, "--", sys.executable, "-u", TRANSFER, "receive") as process:
        try:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            yield
        finally:
            process.terminate()


def send(cluster: Cluster, source: str, target: str, megabytes: float) -> float:
    """Return the seconds of a transfer between two nodes."""
    return float(cluster.on(source, sys.executable, TRANSFER, "send", target, megabytes))


@pytest.mark.parametrize(("bandwidth", "bits"), [("1mbit", 1e6), ("40gbit", 4e10)])
def test_a_bandwidth_is_set_at_both_ends_of_one_link(pair, bandwidth, bits):
    pair.labs("link", "node2", "--bandwidth", bandwidth)
    ends = discipline(pair, "node2")
    assert bits_per_second(ends) == pytest.approx([bits, bits])
    assert all(end["options"]["burst"] > 0.99 * bits / 8 / 1000 for end in ends), "less than the link sends in a tick"
    assert bits_per_second(discipline(pair, "node1")) == [None, None]
    assert links(pair) == {"node1": "unlimited", "node2": bandwidth}
    pair.labs("link", "--bandwidth", "1gbit")
    assert links(pair) == {"node1": "1gbit", "node2": "1gbit"}


def test_a_cluster_starts_with_its_bandwidth(free):
    free.labs("up", "--nodes", 3, "--bandwidth", "50mbit")
    assert [bits_per_second(discipline(free, f"node{number}")) for number in (1, 2, 3)] == [[5e7, 5e7]] * 3
    assert set(links(free).values()) == {"50mbit"}


@pytest.mark.alone  # Other tests take the processor time that sender and receiver need.
@pytest.mark.parametrize(("source", "target"), [("node1", "node2"), ("node2", "node1")])
def test_a_transfer_takes_the_time_of_the_slower_link(pair, source, target):
    """Two megabytes are 0.8 s at 20 Mbit/s, less what the bucket holds."""
    with receiver(pair, target):
        unlimited = send(pair, source, target, 2)
        pair.labs("link", "node2", "--bandwidth", "20mbit")
        limited = send(pair, source, target, 2)
    print(f"| 2 MB from {source} to {target} | {unlimited:.3f} s | {limited:.3f} s |")
    assert unlimited < 0.6 < limited


def test_a_cut_link_carries_nothing_until_it_is_restored(pair):
    pair.labs("link", "node2", "--bandwidth", "50mbit")
    interface = pair.on("node2", "ip", "-o", "link", "show", "eth0")
    with receiver(pair, "node2"):
        assert send(pair, "node1", "node2", 0)
        pair.labs("link", "node2", "--down")
        assert pair.on("node2", "ip", "-o", "link", "show", "eth0") == interface, "as with a broken port of the switch"
        assert links(pair) == {"node1": "unlimited", "node2": "50mbit, down"}
        done = pair.labs("shell", "node1", "--", sys.executable, TRANSFER, "send", "node2", 0, code=1)
        assert re.search(r"TimeoutError|No route to host", done.stderr)
        pair.labs("link", "node2", "--up")
        assert send(pair, "node1", "node2", 0)
    assert links(pair) == {"node1": "unlimited", "node2": "50mbit"}
    assert bits_per_second(discipline(pair, "node2")) == [5e7, 5e7]


@pytest.fixture(scope="session")
def netem() -> bool:
    """Whether this kernel can delay packets."""
    words = ["unshare", "--user", "--map-root-user", *NAMESPACES, "tc", "qdisc", "add", "dev", "lo", "root", "netem"]
    return subprocess.run(words, env={"PATH": search_path()}, capture_output=True, check=False).returncode == 0


def test_a_latency_is_added_in_each_direction(pair, netem):
    if not netem:
        pytest.skip("this kernel has no netem")
    pair.labs("link", "node2", "--latency", "100ms")
    with receiver(pair, "node2"):
        assert send(pair, "node1", "node2", 0) >= 0.2
    assert links(pair)["node2"] == "unlimited +100ms"


def test_a_latency_that_the_kernel_cannot_add_changes_nothing(pair, netem):
    if netem:
        pytest.skip("this kernel has netem")
    pair.labs("link", "node2", "--bandwidth", "50mbit")
    done = pair.labs("link", "node2", "--bandwidth", "1mbit", "--latency", "5ms", code=1)
    assert done.stderr == ("labs: error: this kernel cannot delay packets: it has no netem (sch_netem); leave "
                           "--latency out\n")
    assert bits_per_second(discipline(pair, "node2")) == [5e7, 5e7]
    assert links(pair)["node2"] == "50mbit"
