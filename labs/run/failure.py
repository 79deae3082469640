"""Why a program or a run failed, in one line: from its output, its workers' heartbeats and its exit code."""

import re
import signal
from collections.abc import Iterable
from pathlib import Path

from labs.run import heartbeat
from labs.run.errors import PROOF_PREFIX, one_line
from labs.run.heartbeat import AwakeClock, Heartbeat

ERROR_LINE = re.compile(r"\b\w*Error: |\berror: |\bsignal \d")
"""Matches a line that names an error, in the output of any program."""
BOX = "-" * 60
"""The start of the first and of the last line of a message of Open MPI's launcher."""
WORKER_ENDS = (
    r"rank (?P<rank>\d+) .*?on node (?P<node>\S+) exited on signal (?P<signal>\d+)",
    r"rank (?P<rank>\d+) .*?on node (?P<node>\S+) exiting improperly",
    r"Process name: \[\S+,(?P<rank>\d+)\] Exit code: +(?P<code>\d+)",
)
"""Open MPI's reports of the worker that ended first, and of how it ended."""
LOST_NODE = re.compile(r"Remote host: +(\S+)|Remote daemon: .*? on node (\S+)")
"""Open MPI's reports, on either stream, that its launcher has lost its daemon on a node."""
SECONDS_TO_START = 300.0
"""The longest time to start the workers and to load TensorFlow."""
SECONDS_AFTER_WORKERS = 20.0
"""How long the launcher may take to end after all workers; Open MPI's sometimes never does."""
SILENT_AFTER = 3.0
"""A worker writes a heartbeat once a second. After this time without one, others wait for it and not it for them."""


def explain_exit(code: int, errors: str) -> str:
    """Return why a program failed, from its exit code and error stream; the program's name goes before it."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    lines = [line.strip() for line in errors.splitlines() if line.strip(" -\0")]
    likely = [line for line in lines if ERROR_LINE.search(line)] or lines
    return likely[-1] if likely else f"exited with code {code} and printed nothing"


def proof_verdict(output: str) -> str:
    """Return the verdict that setup/proof.py printed, or an empty string."""
    lines = [line for line in output.splitlines() if line.startswith(PROOF_PREFIX)]
    return lines[-1].removeprefix(PROOF_PREFIX) if lines else ""


class Diagnosis:
    """Collects the facts for the last line of a run.

    Args:
        stall_seconds: The longest time between two steps of a worker.
        folder: The folder of a lab's run, with the heartbeats of its workers; None for other programs.
    """

    def __init__(self, stall_seconds: float = 60.0, folder: Path | None = None):
        self.stall_seconds = stall_seconds
        self.clock = AwakeClock()
        self.error = ""
        self.error_time = 0.0
        """The first error that a worker has reported, and its time on `clock`."""
        self.launcher_message = ""
        self._folder = folder and folder / heartbeat.FOLDER
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
            self.error, self.error_time = text.strip(), self.clock.now()

    def _read(self) -> list[Heartbeat]:
        """Return the last heartbeats of this run's workers."""
        return [each for each in heartbeat.read_folder(self._folder) if each not in self._old] if self._folder else []

    def find_problem(self) -> str:
        """Return a message if the run must be ended, because it does not start or a worker takes no step; else "".

        A rank that does not train at the moment, before the first step for example, may be silent for twice as long.
        """
        now = self.clock.now()
        if not self._folder or now - self._read_at < 1:
            return ""
        self._read_at = now
        workers = [self._time(each, now) for each in self._read() if each.alive]
        self._at_work = now if workers else self._at_work
        if not self._last and now > SECONDS_TO_START:
            return f"no worker has started in {now:.0f} s; `labs check` looks for the cause"
        idle = max((now - (self._moved[each.rank] if each.is_training else self._heard[each.rank] + self.stall_seconds)
                    for each in workers), default=0.0)
        if idle <= self.stall_seconds:
            return ""
        behind = min((each.epoch, each.step) for each in workers)
        late = ([each for each in workers if now - self._heard[each.rank] > SILENT_AFTER] or
                [each for each in workers if (each.epoch, each.step) == behind])
        waiting = ", the others are waiting" * (len(late) < len(workers))
        return (f"{_list(late)}: no progress for {idle:.0f} s{waiting} (--stall-seconds); frozen, overloaded, or a "
                "node or link is lost")

    def is_over(self) -> bool:
        """Return whether all workers have finished, and the launcher has had its time to end; it may miss their end."""
        return bool(self._last) and self.clock.now() - self._at_work > SECONDS_AFTER_WORKERS

    def _time(self, worker: Heartbeat, now: float) -> Heartbeat:
        """Note when a rank's heartbeat changed and when its step did; return the heartbeat."""
        before = self._last.get(worker.rank)
        if worker != before:
            self._heard[worker.rank], self._last[worker.rank] = now, worker
        if not before or before.moved != worker.moved:
            self._moved[worker.rank] = now
        return worker

    def cause(self, code: int, folder: Path | None) -> str:
        """Return why the run failed, or an empty string if it did not.

        Args:
            code: The launcher's exit code.
            folder: The run's, with its record; None for a student's own script.
        """
        if folder and (folder / "record.json").exists() and (code == 0 or self.is_over()):
            return ""
        last = {each.rank: each for each in self._read()}
        return one_line(self.error or self._lost_worker(last) or self._lost_launcher(code, last, folder))

    def _lost_worker(self, last: dict[int, Heartbeat]) -> str:
        """Return which worker ended without an error line, from the launcher's message and the last heartbeat."""
        match = next(filter(None, (re.search(end, self.launcher_message) for end in WORKER_ENDS)), None)
        if not match:
            return ""
        end = match.groupdict()
        rank = int(end["rank"])
        worker = last.get(rank, f"rank {rank} on {end.get('node', 'an unnamed node')}")
        if "signal" not in end:
            return f"{worker}: exited before the run ended, with code {end.get('code', 0)} and no error message"
        killer = signal.Signals(int(end["signal"]))
        # The kernel's out-of-memory killer sends SIGKILL; oneDNN and C++ crash when an allocation fails.
        hint = {signal.SIGKILL: "; out of memory? Then lower --batch-size"} | dict.fromkeys(
            (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS), "; a crash in compiled code, or out of memory")
        return f"{worker}: killed by {killer.name}{hint.get(killer, '')}"

    def _lost_launcher(self, code: int, heartbeats: dict[int, Heartbeat], folder: Path | None) -> str:
        """Return how the launcher ended, where no worker is known to be the cause."""
        last = f"; last heartbeats: {_list(heartbeats.values())}" if heartbeats else ""
        if match := LOST_NODE.search(self.launcher_message):
            return f"node {match[1] or match[2]} is lost: the launcher's daemon there has ended{last}"
        no_record = " and no record" * bool(folder)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}{no_record}"
        why = self.launcher_message.strip() or "it gave no reason; `labs check` looks for the cause"
        return f"the launcher {how}: {why}{last}"


def _list(heartbeats: Iterable[Heartbeat]) -> str:
    """Return where ranks are; of more than four, the first four."""
    texts = [str(each) for each in heartbeats]
    return ", ".join(texts[:4]) + ", ..." * (len(texts) > 4)
