"""Analysis of Horovod's timeline: which tensors were exchanged, how many bytes, and where their time went.

The file is a list of Chrome trace events; ui.perfetto.dev opens it. Each tensor is a "process" in it. Times are those
of rank 0, in microseconds.
"""

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Row = dict[str, Any]
KINDS = (
    (r"Horovod\w+_Distributed", "gradients"),
    (r"HorovodBroadcast_", "initial weights and optimizer state"),
    (r"HorovodBroadcast", "decisions of rank 0"),
    (r"HorovodAllgather_asked", "questions: save, stop, pace"),
    (r"HorovodAllgather", "checks: config, data, digests of weights"),
    (r"HorovodGroupedAllreduce", "batch-norm statistics"),
    (r"HorovodAllreduce", "metrics"),
)
"""Kinds of `fit`'s tensors, by the first pattern that matches a name; outside a graph Horovod chooses the names."""
COLLECTIVE = re.compile(r"(?!MEMCPY|NEGOTIATE)\w+_(ALLREDUCE|ALLGATHER|BCAST|ALLTOALL|REDUCESCATTER)")
BYTES = {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4,
         "float32": 4, "int64": 8, "float64": 8}


def exchanges(events: Iterable[Row], sizes: Mapping[str, int] | None = None) -> Iterator[Row]:
    """Yield a row for each exchange of each tensor, with times in seconds.

    `negotiating` ends when all workers have the tensor; the transfer is from `began` to `ended`; `waiting` is the time
    before and after it, in the queue and the fusion buffer. Tensors with the same `message` were fused.

    Args:
        sizes: Bytes of the tensors that rank 0 broadcasts, whose size Horovod does not write.
    """
    names: dict[int, str] = {}
    opened: dict[int, list[Row]] = {}  # By tensor: the open phases, innermost last.
    rows: dict[int, Row] = {}
    message, fusing = 0, False
    for event in events:
        tensor, phase = event.get("pid", -1), event["ph"]
        if phase == "M":
            names[tensor] = event["args"].get("name", names.get(tensor, ""))
        elif phase == "B":
            transfer = bool(COLLECTIVE.fullmatch(event["name"]))
            message += transfer and not fusing  # A fused transfer begins for all its tensors in a row.
            fusing = transfer
            opened.setdefault(tensor, []).append(event)
            rows.setdefault(tensor, {"tensor": names.get(tensor, ""), "negotiating": 0.0})
            if transfer:
                rows[tensor] |= {"message": message, "began": event["ts"] / 1e6}
        elif phase == "E" and opened.get(tensor):  # Phases that began before the timeline are left out.
            fusing = False
            begin, end, row = opened[tensor].pop(), event["ts"] / 1e6, rows[tensor]
            if COLLECTIVE.fullmatch(begin["name"]):
                row["ended"] = end
            elif begin["name"].startswith("NEGOTIATE_"):
                row |= {"agreed": end, "negotiating": end - begin["ts"] / 1e6}
            if not opened[tensor] and "ended" in row:
                yield _complete(rows.pop(tensor), event, sizes or {})


def _complete(row: Row, last: Row, sizes: Mapping[str, int]) -> Row:
    """Return the row of an exchange, completed by its last event."""
    transfer, args = row["ended"] - row["began"], last.get("args")
    row["waiting"] = last["ts"] / 1e6 - row.get("agreed", row["began"]) - transfer
    # Horovod describes a tensor as "float32" and "[3, 3, 16]".
    row["bytes"] = BYTES[args["dtype"]] * math.prod(map(int, re.findall(r"\d+", args["shape"]))) if args else \
        sizes.get(row["tensor"])
    row["kind"] = next((kind for pattern, kind in KINDS if re.search(pattern, row["tensor"])), row["tensor"])
    return row


def summary(rows: Iterable[Row]) -> list[Row]:
    """Return one row per kind of message, the most bytes first.

    `exchanges` counts tensors, `messages` the messages into which they were fused; `bytes` and `share` exclude
    transport overhead. `negotiating_seconds` and `waiting_seconds` are means per exchange, `transfer_seconds` is the
    sum over messages.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["kind"], []).append(row)
    table: list[Row] = [{"kind": kind} | _sum(group) for kind, group in groups.items()]
    total = sum(row["bytes"] or 0 for row in table)
    return [row | {"share": (row["bytes"] or 0) / total if total else 0.0}
            for row in sorted(table, key=lambda row: -(row["bytes"] or 0))]


def _sum(group: list[Row]) -> Row:
    """Return the sums and means of a kind's exchanges."""
    ended, began = dict[int, float](), dict[int, float]()
    for row in group:
        ended[row["message"]] = max(row["ended"], ended.get(row["message"], -math.inf))
        began[row["message"]] = min(row["began"], began.get(row["message"], math.inf))
    known = [row["bytes"] for row in group if row["bytes"] is not None]
    return {
        "exchanges": len(group),
        "messages": len(ended),
        "bytes": sum(known) if known else None,
        "negotiating_seconds": statistics.fmean(row["negotiating"] for row in group),
        "waiting_seconds": statistics.fmean(row["waiting"] for row in group),
        "transfer_seconds": sum(ended.values()) - sum(began.values()),
    }
