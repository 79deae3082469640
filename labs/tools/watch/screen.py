"""The screen of `labs watch`: the lines that describe a status."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from labs.run import terminal
from labs.run.heartbeat import Beat
from labs.run.node_load import NodeLoad
from labs.run.text import plural, printable
from labs.tools.watch.status import SILENT, Status

SLOW = 0.1
"""From this part of a step on, in which the fastest rank waits for the slowest, the slow ones are named."""
IDLE = 1.0
"""Below this percentage a GPU is idle."""
MOST_ROWS = 16
"""The most ranks in the table; of more, those that work longest are shown."""


def lines(status: Status) -> list[str]:
    """Return the screen as lines, the most important first, folded to the terminal's width."""
    parts = [f"{printable(status.lab)}/{printable(status.run)}: {state(status)}", *_progress(status), *slow(status),
             *idle_gpus(status)]
    tables = [_nodes(status.loads), _ranks(status)] if status.beats and not status.over else []
    text = [*(terminal.folded(part, 2) for part in parts), *("\n" + terminal.table(rows) for rows in tables if rows)]
    return "\n".join(text).split("\n")


def state(status: Status) -> str:
    """Return what the run does, or how it has ended."""
    where = status.last
    if status.finished:
        return "finished"
    if where is None:
        return "no heartbeat: its workers are starting, or have ended; they start within a minute"
    if status.silent == math.inf:
        return f"ended at {where.position()} without a record; its own output says why{_continue(status)}"
    if status.silent > SILENT:
        return (f"no heartbeat for {status.silent:.0f} s, the last one at {where.position()}: killed, stopped (Ctrl-Z) "
                f"or lost with its nodes{_continue(status)}")
    nodes = len({beat.host for beat in status.beats})
    return f"{_phase(status, where)}, {plural(len(status.beats), 'worker')} on {plural(nodes, 'node')}"


def _continue(status: Status) -> str:
    command = f"labs run {printable(status.lab)} --resume --name {printable(status.run)}"
    return f"; to continue with the same options: {command}" if status.saved else ""


def _phase(status: Status, where: Beat) -> str:
    """Return what a running run does at the place of its last worker."""
    if not where.epoch:
        return "reading data and building the model"
    if status.training:
        return "training"
    if where.epoch < where.epochs:
        return "validating between two epochs"
    return "training has ended; evaluating, measuring or writing the record"


def _progress(status: Status) -> Iterator[str]:
    """Yield a line on the position, the throughput and the time left."""
    beat = status.last
    if beat is None or not beat.epoch or status.over:
        return
    of_epochs, of_steps = (f" of {total}" if total else "" for total in (beat.epochs, beat.steps))
    items = [f"epoch {min(beat.epoch, beat.epochs or beat.epoch)}{of_epochs}, step {beat.step}{of_steps}"]
    if seconds := _step_seconds(status):
        items.append(f"{beat.images / seconds:,.0f} images/s" if beat.images else f"{1 / seconds:.3g} steps/s")
        later = max(0, beat.epochs - beat.epoch)
        left = (later * beat.steps + max(0, beat.steps - beat.step)) * seconds + later * beat.between_seconds
        if left and beat.epoch <= beat.epochs:
            items.append(f"about {duration(left)} left")
    yield "; ".join(items)


def duration(seconds: float) -> str:
    """Return seconds as "45 s", "12 min" or "3 h 20 min"."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def _step_seconds(status: Status) -> float:
    """Return the seconds per step; 0 before they are known."""
    return statistics.median(beat.step_seconds for beat in status.beats)


def _work(beat: Beat) -> float:
    """Return the seconds of a step in which a worker does not wait for the exchange of gradients."""
    return beat.step_seconds - beat.exchange_seconds


def _timed(status: Status) -> list[Beat]:
    """Return the heartbeats with times, the longest own work first; none unless an exchange was timed."""
    beats = [beat for beat in status.beats if beat.step_seconds]
    return sorted(beats, key=_work, reverse=True) if any(beat.exchange_seconds for beat in beats) else []


def slow(status: Status) -> Iterator[str]:
    """Yield a sentence on the spread between the ranks, and on who is slow."""
    beats = _timed(status) if status.silent < SILENT and not status.finished else []
    if len(beats) < 2:
        return
    longest, shortest = _work(beats[0]), _work(beats[-1])
    spread = longest - shortest
    share = spread / _step_seconds(status)
    if share < SLOW:
        yield (f"no rank is slow: own work per step {1e3 * shortest:.3g} to {1e3 * longest:.3g} ms, the fastest waits "
               f"{share:.0%} of a step for the slowest")
        return
    late = [beat for beat in beats if _work(beat) > shortest + spread / 2]
    names = ", ".join(str(beat.rank) for beat in sorted(late, key=lambda beat: beat.rank)[:8])
    hosts = ", ".join(sorted({printable(beat.host) for beat in late})[:4])
    yield (f"slow: rank{'s' * (len(late) > 1)} {names}{' ...' * (len(late) > 8)} on {hosts}, up to "
           f"{1e3 * longest:.3g} ms of own work per step; the fastest, rank {beats[-1].rank}, has {1e3 * shortest:.3g} "
           f"ms and waits {share:.0%} of a step")


def idle_gpus(status: Status) -> Iterator[str]:
    """Yield a sentence if GPUs of the run are idle while it trains."""
    percents = [gpu["percent"] for load in status.loads for gpu in load.gpus.values() if "percent" in gpu]
    idle = sum(percent < IDLE for percent in percents)
    if not idle or not status.training or status.silent > SILENT or not _step_seconds(status):
        return
    cure = (f"a worker uses one GPU: start {len(percents)} workers, not {len(status.beats)}"
            if len(status.beats) < len(percents) else "`labs check` says whether TensorFlow finds them")
    yield f"{idle} of {len(percents)} GPUs {'is' if idle == 1 else 'are'} idle; {cure}"


def _nodes(loads: Sequence[NodeLoad]) -> list[list[str]]:
    """Return the table of the nodes, with its heading; empty before there are samples."""
    gpus = any(load.gpus for load in loads)
    rows = [["node", "processor", "memory, GiB", *(["GPUs busy, %", "GPU memory, GiB"] if gpus else [])]]
    for load in loads:
        memory = f"{load.memory_bytes / 2**30:.1f} of {load.memory_total_bytes / 2**30:.1f}"
        cells = [[f"{gpu[name] / unit:.0f}" if name in gpu else "?" for gpu in load.gpus.values()]
                 for name, unit in (("percent", 1), ("memory_bytes", 2**30))] if gpus else []
        rows.append([printable(load.host), f"{load.cpu_percent:.0f} % of {plural(load.cpus, 'core')}", memory,
                     *map(" ".join, cells)])
    return rows if loads else []


def _ranks(status: Status) -> list[list[str]]:
    """Return the table of the ranks, with its heading."""
    timed = _timed(status)
    chosen = sorted((timed or status.beats)[:MOST_ROWS] if len(status.beats) > MOST_ROWS else status.beats,
                    key=lambda beat: beat.rank)
    rows = [["rank", "node", *(["own work, ms", "exchange and waiting, ms"] if timed else []), "now"]]
    for beat in chosen:
        times = [f"{1e3 * seconds:.3g}" for seconds in (_work(beat), beat.exchange_seconds)] if timed else []
        rows.append([str(beat.rank), printable(beat.host), *times, _now(beat, status)])
    return rows


def _now(beat: Beat, status: Status) -> str:
    """Return where a rank is, if it runs."""
    silence = status.silence[beat.rank]
    if silence == math.inf:
        return "finished"
    return beat.position() if silence < SILENT else f"no heartbeat for {silence:.0f} s, {beat.position()}"
