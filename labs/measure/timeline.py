"""What Horovod's timeline tells: which tensors were exchanged, how many bytes, and where their time went.

The file is a list of Chrome trace events; ui.perfetto.dev opens it. Each tensor is a "process" of it, whose times are
those of rank 0, in microseconds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from labs.run import atomic

Row = dict[str, Any]
KINDS = (
    (r"Distributed\w+_Allreduce", "gradients"),
    (r"HorovodBroadcast_", "initial weights and optimizer state"),
    (r"HorovodBroadcast", "decisions of rank 0"),
    (r"HorovodAllgather_asked", "questions: save, stop, pace"),
    (r"HorovodAllgather", "checks: config, data, digests of weights"),
    (r"HorovodGroupedAllreduce", "batch-norm statistics"),
    (r"HorovodAllreduce", "metrics"),
)
"""What the tensors of `fit` are, by the first pattern that their name matches; outside a graph Horovod names them."""
COLLECTIVE = re.compile(r"(?!MEMCPY|NEGOTIATE)\w+_(ALLREDUCE|ALLGATHER|BCAST|ALLTOALL|REDUCESCATTER)")
BYTES = {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4,
         "float32": 4, "int64": 8, "float64": 8}


def read(path: Path) -> list[Row]:
    """Return the events of a timeline: all that are whole, of a run that was killed while it wrote."""
    text = Path(path).read_text(errors="replace")
    decoder, events, at = json.JSONDecoder(), [], text.find("{")
    while at >= 0:
        try:
            event, end = decoder.raw_decode(text, at)
        except ValueError:
            break
        events.append(event)
        at = text.find("{", end)
    return events


def repair(path: Path) -> list[Row]:
    """Make a timeline valid JSON, as Perfetto wants it, if it is not, and return its events."""
    events = read(path)
    try:
        json.loads(Path(path).read_text(errors="replace"))
    except ValueError:
        atomic.write_text(path, "[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    return events


def exchanges(events: Iterable[Row], sizes: Mapping[str, int] | None = None) -> Iterator[Row]:
    """Yield a row for each exchange of each tensor, with times in seconds.

    `negotiating` ends when all workers have the tensor; `began` and `ended` enclose the transfer; `waiting` is what
    passes between the two, and after, in the queue and the fusion buffer. Tensors with one `message` were fused.

    Args:
        events: From `read`.
        sizes: Bytes of tensors whose size Horovod does not write, which are those that rank 0 broadcasts.
    """
    names: dict[int, str] = {}
    opened: dict[int, list[Row]] = {}  # By tensor: the phases that have begun, the inner ones last.
    rows: dict[int, Row] = {}
    message, fusing = 0, False
    for event in events:
        tensor, phase = event.get("pid", -1), event["ph"]
        if phase == "M":
            names[tensor] = event["args"].get("name", names.get(tensor, ""))
        elif phase == "B":
            transfer = bool(COLLECTIVE.fullmatch(event["name"]))
            message += transfer and not fusing  # A fused transfer begins for all its tensors before anything else does.
            fusing = transfer
            opened.setdefault(tensor, []).append(event)
            rows.setdefault(tensor, {"tensor": names.get(tensor, "")})
            if transfer:
                rows[tensor] |= {"message": message, "began": event["ts"] / 1e6}
        elif phase == "E" and opened.get(tensor):  # What began before the timeline did is left out.
            fusing = False
            _end(rows[tensor], opened[tensor].pop(), event["ts"] / 1e6)
            if not opened[tensor] and "ended" in rows[tensor]:
                yield _whole(rows.pop(tensor), event, sizes or {})


def _end(row: Row, begin: Row, end: float) -> None:
    """Note the end of a phase of an exchange."""
    if COLLECTIVE.fullmatch(begin["name"]):
        row["ended"] = end
    elif begin["name"].startswith("NEGOTIATE_"):
        row |= {"asked": begin["ts"] / 1e6, "agreed": end}


def _whole(row: Row, last: Row, sizes: Mapping[str, int]) -> Row:
    """Complete the row of an exchange with its last event."""
    agreed = row.pop("agreed", row["began"])
    row["negotiating"] = agreed - row.pop("asked", agreed)
    row["waiting"] = last["ts"] / 1e6 - agreed - (row["ended"] - row["began"])
    told = last.get("args")
    row["bytes"] = size_of(told["dtype"], told["shape"]) if told else sizes.get(row["tensor"])
    row["kind"] = next((kind for pattern, kind in KINDS if re.search(pattern, row["tensor"])), row["tensor"])
    return row


def size_of(dtype: str, shape: str) -> int:
    """Return the bytes of a tensor from what Horovod writes of it, such as "float32" and "[3, 3, 16]"."""
    return BYTES[dtype] * math.prod(int(side) for side in re.findall(r"\d+", shape))


def summary(rows: Iterable[Row], by: str = "kind") -> list[Row]:
    """Return one row per kind of message (or per tensor), the heaviest first.

    `exchanges` counts tensors, `messages` what they were fused to; `bytes` and `share` are without what the transport
    adds. `negotiating_seconds` and `waiting_seconds` are means per exchange, `transfer_seconds` the sum over messages.

    Args:
        rows: From `exchanges`.
        by: "kind" or "tensor".
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[by], []).append(row)
    table: list[Row] = [{by: name} | _sums(group) for name, group in groups.items()]
    total = sum(row["bytes"] or 0 for row in table)
    for row in table:
        row["share"] = (row["bytes"] or 0) / total if total else 0.0
    return sorted(table, key=lambda row: -(row["bytes"] or 0))


def _sums(group: list[Row]) -> Row:
    ends: dict[int, tuple[float, float]] = {}
    for row in group:
        began, ended = ends.get(row["message"], (row["began"], row["ended"]))
        ends[row["message"]] = min(began, row["began"]), max(ended, row["ended"])
    known = [row["bytes"] for row in group if row["bytes"] is not None]
    return {
        "exchanges": len(group),
        "messages": len(ends),
        "bytes": sum(known) if known else None,
        "negotiating_seconds": sum(row["negotiating"] for row in group) / len(group),
        "waiting_seconds": sum(row["waiting"] for row in group) / len(group),
        "transfer_seconds": sum(ended - began for began, ended in ends.values()),
    }
