"""Why a run failed, in one line: from its output, its workers' heartbeats and its launcher's exit code."""

import re
import signal
from collections.abc import Iterable
from pathlib import Path

from labs.run import heartbeat
from labs.run.errors import one_line
from labs.run.heartbeat import AwakeClock, Heartbeat

BOX = "-" * 60
"""The start of the first and of the last line of a message of Open MPI's launcher."""
WORKER_END = re.compile(r"rank (\d+) .*?on node (\S+) (?:exited on signal (\d+)|exiting improperly)"
                        r"|Process name: \[\S+,(\d+)\] Exit code: +(\d+)")
"""Open MPI's reports of the worker that ended first, and of how it ended."""
LOST_NODE = re.compile(r"Remote host: +(\S+)|Remote daemon: .*? on node (\S+)")
"""Open MPI's reports, on either stream, that its launcher has lost its daemon on a node."""
SECONDS_TO_START = 300.0
SECONDS_AFTER_WORKERS, SECONDS_AFTER_ERROR = 20.0, 2.0
"""How long mpirun may take to end after all workers, and after a failed one; sometimes it never does."""
SILENT_AFTER = 3.0
"""A worker writes a heartbeat once a second. After this time without one, others wait for it and not it for them."""


class Diagnosis:
    """Collects the facts for the last line of a run: from its output, and from the heartbeats in its folder if any."""

    def __init__(self, stall_seconds: float = 60.0, folder: Path | None = None):
        self.stall_seconds, self.clock = stall_seconds, AwakeClock()
        self.error = self.launcher_message = ""
        self._folder, self._error_time = folder, 0.0
        self._old: list[Heartbeat] = []
        self._old = self._read()
        """Left by the run that this one resumes."""
        self._last: dict[int, Heartbeat] = {}
        self._heard: dict[int, float] = {}
        self._moved: dict[int, float] = {}
        """By rank: the last heartbeat, its time, and the time since which it shows the same step; on `clock`."""
        self._read_at = self._at_work = 0.0

    def add_error(self, text: str) -> None:
        """Add the text of a worker's error line; only the first one counts."""
        if not self.error:
            self.error, self._error_time = text.strip(), self.clock.now()

    def must_end(self) -> bool:
        """Return whether mpirun must be ended: it may wait forever for a node that does not respond."""
        self.add_error(self._stall())
        late = bool(self.error) and self.clock.now() - self._error_time > SECONDS_AFTER_ERROR
        return late or self._is_over()

    def _is_over(self) -> bool:
        """Return whether all workers have finished, and the launcher has had its time to end; it may miss their end."""
        return bool(self._last) and self.clock.now() - self._at_work > SECONDS_AFTER_WORKERS

    def _read(self) -> list[Heartbeat]:
        beats = heartbeat.read_folder(self._folder / heartbeat.FOLDER) if self._folder else ()
        return [each for each in beats if each not in self._old]

    def _stall(self) -> str:
        """Return a message if the run must be ended, because it does not start or a worker takes no step; else "".

        A rank that does not train at the moment, before the first step for example, may be silent for twice as long.
        """
        now = self.clock.now()
        if not self._folder or now - self._read_at < 1:
            return ""
        self._read_at = now
        workers = [each for each in self._read() if each.alive]
        if workers:
            self._at_work = now
        elif not self._last and now > SECONDS_TO_START:
            return f"no worker has started in {now:.0f} s; `labs check` looks for the cause"
        idle = max((self._note_idle(each, now) for each in workers), default=0.0)
        if idle <= self.stall_seconds:
            return ""
        behind = min((each.epoch, each.step) for each in workers)
        late = ([each for each in workers if now - self._heard[each.rank] > SILENT_AFTER] or
                [each for each in workers if (each.epoch, each.step) == behind])
        waiting = ", the others are waiting" * (len(late) < len(workers))
        return (f"{_list(late)}: no progress for {idle:.0f} s{waiting} (--stall-seconds); frozen, overloaded, or a "
                "node or link is lost")

    def _note_idle(self, worker: Heartbeat, now: float) -> float:
        """Note when a rank's heartbeat and its step have changed; return for how long it has been idle."""
        before = self._last.get(worker.rank)
        if worker != before:
            self._heard[worker.rank], self._last[worker.rank] = now, worker
        if not before or before.moved != worker.moved:
            self._moved[worker.rank] = now
        return now - (self._moved[worker.rank] if worker.is_training else self._heard[worker.rank] + self.stall_seconds)

    def cause(self, code: int, record: Path | None) -> str:
        """Return why the run failed, from the launcher's exit code; "" if it did not. Own scripts have no record."""
        if record and record.exists() and (code == 0 or self._is_over()):
            return ""
        last = {each.rank: each for each in self._read()}
        return one_line(self.error or self._lost_worker(last) or self._lost_launcher(code, last, record))

    def _lost_worker(self, last: dict[int, Heartbeat]) -> str:
        match = WORKER_END.search(self.launcher_message)
        if not match:
            return ""
        rank, node, number, exited, code = match.groups()
        worker = last.get(int(rank or exited), f"rank {rank or exited} on {node or 'an unnamed node'}")
        if not number:
            return f"{worker}: exited before the run ended, with code {code or 0} and no error message"
        killer = signal.Signals(int(number))
        hint = "; out of memory? Then lower --batch-size" * (killer == signal.SIGKILL)  # The kernel sends it then.
        return f"{worker}: killed by {killer.name}{hint}"

    def _lost_launcher(self, code: int, heartbeats: dict[int, Heartbeat], record: Path | None) -> str:
        last = f"; last heartbeats: {_list(heartbeats.values())}" if heartbeats else ""
        if match := LOST_NODE.search(self.launcher_message):
            return f"node {match[1] or match[2]} is lost: the launcher's daemon there has ended{last}"
        no_record = " and no record" * bool(record)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}{no_record}"
        why = self.launcher_message.strip() or "it gave no reason; `labs check` looks for the cause"
        return f"the launcher {how}: {why}{last}"


def _list(heartbeats: Iterable[Heartbeat]) -> str:
    """Return where ranks are; of more than four, the first four."""
    texts = [str(each) for each in heartbeats]
    return ", ".join(texts[:4]) + ", ..." * (len(texts) > 4)
