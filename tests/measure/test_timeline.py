"""Horovod's timeline: read and added up."""

import pytest

from labs.measure import timeline

GRADIENTS = ("HorovodAllreduce_DistributedSGD_0", "HorovodAllreduce_DistributedSGD_1")


def tensor(number: int, name: str) -> dict:
    return {"name": "process_name", "ph": "M", "pid": number, "args": {"name": name}}


def begin(number: int, name: str, ts: int) -> dict:
    return {"ph": "B", "name": name, "ts": ts, "pid": number}


def end(number: int, ts: int, **args: str) -> dict:
    return {"ph": "E", "ts": ts, "pid": number} | ({"args": args} if args else {})


def negotiated(number: int, kind: str, began: int, ended: int) -> list[dict]:
    ready = {"ph": "X", "name": "1", "ts": ended - 1, "pid": number, "dur": 0}
    return [begin(number, f"NEGOTIATE_{kind}", began), ready, end(number, ended)]


def fused(at: int) -> list[dict]:
    """Two gradients of 24 and 8 bytes in one message of 300 microseconds, 100 of copying before it."""
    inner = [[begin(1, name, t), begin(2, name, t + 1), end(1, t + took), end(2, t + took + 1)]
             for name, t, took in (("MEMCPY_IN_FUSION_BUFFER", at + 60, 90), ("MPI_ALLREDUCE", at + 160, 299))]
    return [
        *negotiated(1, "ALLREDUCE", at, at + 50), *negotiated(2, "ALLREDUCE", at + 10, at + 50),
        begin(1, "ALLREDUCE", at + 55), begin(2, "ALLREDUCE", at + 55), *inner[0], *inner[1],
        end(1, at + 460, dtype="float32", shape="[2, 3]"), end(2, at + 460, dtype="float64", shape="[]"),
    ]


EVENTS = [
    tensor(1, GRADIENTS[0]), tensor(2, GRADIENTS[1]), tensor(3, "HorovodBroadcast_dense_kernel_0"),
    *negotiated(3, "BROADCAST", 0, 20), begin(3, "BROADCAST", 30), begin(3, "MPI_BCAST", 31), end(3, 41), end(3, 45),
    *fused(1000), *fused(2000),
]


def test_what_was_exchanged_is_added_up():
    rows = list(timeline.exchanges(EVENTS, {"HorovodBroadcast_dense_kernel_0": 400}))
    assert [row["bytes"] for row in rows] == [400, 24, 8, 24, 8]
    assert [row["message"] for row in rows] == [1, 2, 2, 3, 3]
    weights, gradients = timeline.summary(rows)
    assert (weights["kind"], weights["exchanges"]) == ("initial weights and optimizer state", 1)
    assert weights["negotiating_seconds"] == pytest.approx(20e-6)
    assert weights["transfer_seconds"] == pytest.approx(10e-6)
    assert weights["waiting_seconds"] == pytest.approx(15e-6)
    assert weights["share"] == pytest.approx(400 / 464)
    assert (gradients["kind"], gradients["exchanges"], gradients["messages"]) == ("gradients", 4, 2)
    assert gradients["bytes"] == 64
    assert gradients["negotiating_seconds"] == pytest.approx(45e-6)
    assert gradients["transfer_seconds"] == pytest.approx(2 * 300e-6)


def test_an_exchange_of_which_the_end_is_missing_does_not_count():
    assert len(list(timeline.exchanges(EVENTS[:-1]))) == 4
    assert len(list(timeline.exchanges(EVENTS[8:]))) == 4, "nor one that began before the timeline"
