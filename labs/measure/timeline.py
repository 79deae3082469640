"""What workers have exchanged, from Horovod's timeline: tensors, messages and bytes by kind.

The file is a list of Chrome trace events; ui.perfetto.dev opens it. Each tensor is a "process" in it.
"""

import collections
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from labs.training import hvd_ops
from labs.training.workers import Job

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


def exchanged(job: Job) -> list[Row]:
    """End the run's timeline and return a row per kind of exchange so far, on rank 0, which wrote it; else none.

    `exchanges` counts tensors, `messages` the messages into which they were fused; `bytes`, the most first, and their
    `share` exclude transport overhead.
    """
    hvd_ops.stop_timeline()
    if job.rank:
        return []
    kinds: dict[str, list[Row]] = {}
    for row in _exchanges(json.loads((job.folder / hvd_ops.TIMELINE).read_bytes())):
        kind = next((kind for pattern, kind in KINDS if re.search(pattern, row["tensor"])), row["tensor"])
        kinds.setdefault(kind, []).append(row)
    rows: list[Row] = []
    for kind, group in kinds.items():
        known = [row["bytes"] for row in group if row["bytes"] is not None]
        rows.append({"kind": kind, "exchanges": len(group), "messages": len({row["message"] for row in group}),
                     "bytes": sum(known) if known else None})
    total = sum(row["bytes"] or 0 for row in rows)
    return [row | {"share": (row["bytes"] or 0) / total} for row in sorted(rows, key=lambda row: -(row["bytes"] or 0))]


def _exchanges(events: Iterable[Row]) -> Iterator[Row]:
    """Yield tensor, message and bytes of each exchange; tensors with the same `message` were fused."""
    names: dict[int, str] = {}
    depths, messages = collections.Counter[int](), dict[int, int]()
    message, fusing = 0, False
    for event in events:
        tensor, phase = event.get("pid", -1), event["ph"]
        if phase == "M":
            names[tensor] = event["args"].get("name", names.get(tensor, ""))
        elif phase == "B":
            transfer = bool(COLLECTIVE.fullmatch(event["name"]))
            message += transfer and not fusing  # A fused transfer begins for all its tensors in a row.
            fusing = transfer
            depths[tensor] += 1
            if transfer:
                messages[tensor] = message
        elif phase == "E" and depths[tensor]:  # Phases that began before the timeline are left out.
            fusing = False
            depths[tensor] -= 1
            if not depths[tensor] and tensor in messages:
                yield {"tensor": names[tensor], "message": messages.pop(tensor),
                       "bytes": _bytes(names[tensor], event.get("args"))}


def _bytes(name: str, args: dict[str, str] | None) -> int | None:
    """Return a tensor's bytes; Horovod describes it as "float32" and "[3, 3, 16]", but not if rank 0 broadcasts it."""
    return BYTES[args["dtype"]] * math.prod(map(int, re.findall(r"\d+", args["shape"]))) if args else \
        hvd_ops.BROADCAST_BYTES.get(name)
