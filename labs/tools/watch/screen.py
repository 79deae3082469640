"""The screen of `labs watch`: the lines that describe a status."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from labs.results.tables import figure
from labs.run import terminal
from labs.run.heartbeat import Heartbeat
from labs.run.text import plural, printable
from labs.tools.watch.status import SILENT, Status

SLOW = 0.1
"""From this part of a step on, in which the fastest rank waits for the slowest, the slow ones are named."""
MOST_ROWS = 16
"""The most ranks in the table; of more, those that work longest are shown."""


def lines(status: Status) -> list[str]:
    """Return the screen as lines, the most important first, and tables."""
    parts, tables = [f"{printable(status.lab)}/{printable(status.run)}: {_state(status)}"], []
    if status.last and not status.over:
        timed = _timed(status)
        parts += [_progress(status, status.last)] * bool(status.last.epoch)
        if status.awake:
            parts += _slow(timed, status.step_seconds)
        tables = [_ranks(status, timed)]
    text = [*parts,
            *(f"\n{terminal.table(rows)}" for rows in tables if len(rows) > 1)]
    return "\n".join(text).split("\n")


def _state(status: Status) -> str:
    """Return what the run does, or how it has ended."""
    where, lab, run = status.last, printable(status.lab), printable(status.run)
    again = f"; to continue with the same options: labs run {lab} --resume --name {run}" if status.saved else ""
    if status.finished:
        return "finished"
    if where is None:
        return "no heartbeat: its workers are starting, or have ended; they start within a minute"
    if status.silent == math.inf:
        return f"ended at {where.position()} without a record; its own output says why{again}"
    if not status.awake:
        return (f"no heartbeat for {status.silent:.0f} s, the last one at {where.position()}: killed, stopped (Ctrl-Z) "
                f"or lost with its nodes{again}")
    nodes = len({beat.host for beat in status.beats})
    return f"{_phase(status, where)}, {plural(len(status.beats), 'worker')} on {plural(nodes, 'node')}"


def _phase(status: Status, where: Heartbeat) -> str:
    """Return what a running run does at the place of its last worker."""
    if not where.epoch:
        return "reading data and building the model"
    if status.training:
        return "training"
    if where.epoch < where.epochs:
        return "validating between two epochs"
    return "training has ended; evaluating, measuring or writing the record"


def _progress(status: Status, where: Heartbeat) -> str:
    """Return the position, the throughput and the time left."""
    of_epochs, of_steps = (f" of {total}" if total else "" for total in (where.epochs, where.steps))
    text = f"epoch {min(where.epoch, where.epochs or where.epoch)}{of_epochs}, step {where.step}{of_steps}"
    if seconds := status.step_seconds:
        text += f"; {where.images / seconds:,.0f} images/s" if where.images else f"; {figure(1 / seconds)} steps/s"
        later = max(0, where.epochs - where.epoch)
        left = (later * where.steps + max(0, where.steps - where.step)) * seconds
        if left and where.epoch <= where.epochs:
            text += f"; about {duration(left)} left"
    return text


def duration(seconds: float) -> str:
    """Return seconds as "45 s", "12 min" or "3 h 20 min"."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def _work(beat: Heartbeat) -> float:
    """Return the seconds of a step in which a worker does not wait for the exchange of gradients."""
    return beat.step_seconds - beat.exchange_seconds


def _ms(seconds: float) -> str:
    return figure(1e3 * seconds)


def _timed(status: Status) -> list[Heartbeat]:
    """Return the heartbeats with times, the longest own work first; none unless an exchange was timed."""
    beats = [beat for beat in status.beats if beat.step_seconds]
    return sorted(beats, key=_work, reverse=True) if any(beat.exchange_seconds for beat in beats) else []


def _slow(timed: Sequence[Heartbeat], step_seconds: float) -> Iterator[str]:
    """Yield a sentence on the spread between the ranks, and on who is slow."""
    if len(timed) < 2:
        return
    longest, shortest = _work(timed[0]), _work(timed[-1])
    most, least, share = _ms(longest), _ms(shortest), (longest - shortest) / step_seconds
    if share < SLOW:
        yield (f"no rank is slow: own work per step {least} to {most} ms, the fastest waits {share:.0%} of a step for "
               "the slowest")
        return
    late = [beat for beat in timed if _work(beat) > (longest + shortest) / 2]
    names = ", ".join(str(rank) for rank in sorted(beat.rank for beat in late)[:8])
    hosts = ", ".join(sorted({printable(beat.host) for beat in late})[:4])
    yield (f"slow: rank{'s' * (len(late) > 1)} {names}{' ...' * (len(late) > 8)} on {hosts}, up to {most} ms of own "
           f"work per step; the fastest, rank {timed[-1].rank}, has {least} ms and waits {share:.0%} of a step")


def _ranks(status: Status, timed: Sequence[Heartbeat]) -> list[list[str]]:
    """Return the table of the ranks, with its heading."""
    many = len(status.beats) > MOST_ROWS
    rows = [["rank", "node", *(["own work, ms", "exchange and waiting, ms"] if timed else []), "now"]]
    for beat in sorted((timed or status.beats)[:MOST_ROWS], key=lambda beat: beat.rank) if many else status.beats:
        times = [_ms(_work(beat)), _ms(beat.exchange_seconds)] if timed else []
        rows.append([str(beat.rank), printable(beat.host), *times, _now(beat, status)])
    return rows


def _now(beat: Heartbeat, status: Status) -> str:
    """Return where a rank is, if it runs."""
    silence = status.silence[beat.rank]
    if silence == math.inf:
        return "finished"
    return beat.position() if silence < SILENT else f"no heartbeat for {silence:.0f} s, {beat.position()}"
