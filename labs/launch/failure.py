"""Why a program or a run failed, in one line: from its output, its workers' heartbeats and its exit code."""

from __future__ import annotations

import contextlib
import math
import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from labs.run import heartbeat
from labs.run.errors import EQUAL_STEPS, PROOF_PREFIX
from labs.run.heartbeat import AwakeClock, Heartbeat
from labs.run.text import one_line

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
STALL_WARNING = re.compile(r"stall_inspector\.cc:\d+\] One or more tensors")
"""Horovod's rank 0 prints this while some ranks wait for others, again and again."""
MISSING = re.compile(r"Missing ranks:$|(?P<rank>\d+): \[(?P<tensors>.*)\]$")
"""A line below such a warning: a rank, and the tensors that it has not sent and for which others wait."""
SECONDS_TO_START = 300.0
"""The longest time to start the workers and to load TensorFlow; until then they may send no heartbeat."""
LONGEST_GAP = 2.0
"""`labs run` polls its launcher every 0.3 s. A longer gap than this means that `labs run` itself was stopped."""
SILENT_AFTER = 2.0
"""A worker sends a heartbeat once a second. After this time without one, others wait for it and not it for them."""
SECONDS_OF_SILENCE = 4.0
"""A node counts as silent after this time at the earliest. When a worker dies, those on other nodes live two seconds
longer (mpirun's mpi_abort_delay)."""


def explain_exit(code: int, errors: str) -> str:
    """Return why a program failed, as the end of a sentence that begins with the program's name.

    Args:
        code: The exit code; below 0, the signal that killed the program.
        errors: The error stream; the last line that names an error counts, else the last line with any text.
    """
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    lines = [line.strip() for line in errors.splitlines() if line.strip(" -\0")]
    likely = [line for line in lines if ERROR_LINE.search(line)] or lines
    return likely[-1] if likely else f"exited with code {code} and printed nothing"


def proof_verdict(output: str) -> str:
    """Return the verdict that setup/proof.py printed, or an empty string."""
    lines = [line for line in output.splitlines() if line.startswith(PROOF_PREFIX)]
    return lines[-1].removeprefix(PROOF_PREFIX) if lines else ""


def stall_check_seconds(stall_seconds: float) -> int:
    """Return the seconds between two warnings of Horovod's about the same stall."""
    return max(1, int(stall_seconds / 4))


def horovod_stall_check(stall_seconds: float) -> dict[str, str]:
    """Return the environment variables that make Horovod warn of a stall; `supervise` ends the run."""
    # Horovod: its own limit would also count time in which all workers were stopped.
    return {"HOROVOD_STALL_CHECK_TIME_SECONDS": str(stall_check_seconds(stall_seconds)),
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "0"}


@dataclass(frozen=True)
class Heard:
    """The last heartbeat of a rank, its time, and the time since which it shows the same step; on the clock."""

    heartbeat: Heartbeat
    time: float
    moved: float


class Evidence:
    """Collects the facts for the last line of a run from the run's output.

    Args:
        stall_seconds: The longest time between two steps of a worker.
        own_script: Whether the workers run a student's script. There a rank may work alone for longer: rank 0 may
            validate.
    """

    def __init__(self, stall_seconds: float, own_script: bool = False):
        self.stall_seconds, self.own_script = stall_seconds, own_script
        self.patience = stall_seconds * (10 if own_script else 2)
        """The most seconds for which a worker may be silent, or work while the others wait for it, if it shows no
        steps."""
        self.clock = AwakeClock(LONGEST_GAP)
        """The clock pauses while this process and its workers are stopped."""
        self.error = ""
        """The first error that a worker has reported."""
        self.error_time = 0.0
        """The time of that report, on `clock`."""
        self.launcher_message = ""
        self.heard: dict[int, Heard] = {}
        """By rank; a rank that has left the run is removed."""
        self.finish_time = math.inf
        """The time at which the last rank finished, on `clock`; infinite while any rank sends heartbeats."""
        self._stalls: dict[tuple[int, str], float] = {}
        """The time of the first of the same stall warnings, by rank and the tensors that the rank has not sent."""
        self._earlier_stalls: dict[tuple[int, str], float] = {}
        self._in_warning, self._warned = False, 0.0
        """Whether the next line may belong to a stall warning, and the time of the last warning."""
        self._blocked, self._unblocked = False, 0.0
        """Whether the reader of the error stream is blocked, and the time at which it last went on."""

    def add_error(self, text: str) -> None:
        """Add the text of a worker's error line; only the first one counts."""
        if not self.error:
            self.error, self.error_time = text.strip(), self.clock.now()

    def add_launcher_message(self, text: str) -> None:
        """Add a line of the launcher's messages."""
        self.launcher_message = f"{self.launcher_message} {text.strip()}".strip()

    def extract_heartbeats(self, text: str) -> str:
        """Take the heartbeats out of a line, and return the rest of it."""
        for each in heartbeat.parse_line(text):
            now, before = self.clock.now(), self.heard.get(each.rank)
            if each.alive:
                moved = before.moved if before and before.heartbeat.moved == each.moved else now
                self.heard[each.rank] = Heard(each, now, moved)
            else:
                self.heard.pop(each.rank, None)
            self.finish_time = math.inf if self.heard else now
        return heartbeat.BEAT_LINE.sub("", text)

    def seconds_since_finish(self) -> float:
        """Return the seconds since the last rank finished the run; minus infinity while any rank sends heartbeats."""
        return self.clock.now() - self.finish_time

    @contextlib.contextmanager
    def blocked(self) -> Iterator[None]:
        """Do not count the time of this block as silence: a held terminal (Ctrl-S) blocks the heartbeats' reader."""
        began, self._blocked = self.clock.now(), True
        try:
            yield
        finally:
            if self.clock.now() - began > LONGEST_GAP:
                self._unblocked = self.clock.now()
            self._blocked = False

    def find_problem(self) -> str:
        """Return a message if the run must be ended: a worker is silent, or takes no step; else an empty string."""
        heard, now = [*self.heard.values()], self.clock.now()  # A copy: another thread adds to it.
        if self._blocked or self.finish_time < math.inf:
            return ""
        if not heard:
            return f"no worker has started in {now:.0f} s; `labs check` looks for the cause" * (now > SECONDS_TO_START)
        silent = [each for each in heard if now - max(each.time, self._unblocked) > SILENT_AFTER]
        moved = min((each.moved for each in heard if each.heartbeat.is_training), default=now)
        idle = now - max(moved, self._unblocked)
        if idle > self.stall_seconds and len(silent) < len(heard):
            slowest = heartbeat.find_slowest(each.heartbeat for each in silent or heard)
            waiting = ", the others are waiting for it" * (len(heard) > 1)
            return (f"{slowest}: has made no progress for {idle:.0f} s{waiting} (--stall-seconds); frozen, overloaded "
                    "or lost")
        return self._explain_silence(silent, now)

    def _explain_silence(self, silent: list[Heard], now: float) -> str:
        """Return a message if a silent worker, or all workers, have been silent for too long."""
        patience = [self.patience if each.heartbeat.moved else max(self.patience, SECONDS_TO_START) for each in silent]
        silences = [now - max(each.time, self._unblocked) for each in silent]
        late = [each for each, limit, seconds in zip(silent, patience, silences, strict=True) if seconds > limit]
        if not late:
            return ""
        most = max(silences)
        if 1 < len(self.heard) == len(silent):
            return (f"no worker has sent a heartbeat for {most:.0f} s: the launcher, all workers or the machine may be "
                    f"frozen; last heartbeats: {self._positions(self.heard)}")
        return f"{late[0].heartbeat}: no heartbeat for {most:.0f} s; frozen or overloaded"

    def note_stall(self, text: str) -> bool:
        """Read a line of the error stream, and return whether it belongs to a stall warning."""
        if STALL_WARNING.search(text):
            self._earlier_stalls = self._stalls if self._is_stalled() else {}
            self._stalls, self._in_warning, self._warned = {}, True, self.clock.now()
        elif self._in_warning and (match := MISSING.match(text.strip())):
            if match["rank"]:
                line = int(match["rank"]), match["tensors"]
                self._stalls[line] = self._earlier_stalls.get(line, self._warned)
        else:
            self._in_warning = False
        return self._in_warning

    def _is_stalled(self) -> bool:
        """Return whether Horovod still warns of a stall."""
        return self.clock.now() - self._warned < 2.5 * stall_check_seconds(self.stall_seconds) and bool(self._stalls)

    def stall(self) -> tuple[str, float]:
        """Return a message on ranks that wait for each other, and the share of the time limit that has passed.

        The message is empty if no rank waits. Some ranks may be late: they have sent none of the tensors, and still
        work. If no rank is late, each waits for another one, and none can go on.
        """
        stalls = dict(self._stalls)  # A copy: another thread adds to it.
        if not stalls or not self._is_stalled():
            return "", 0.0
        waited = self.clock.now() - min(stalls.values()) + stall_check_seconds(self.stall_seconds)
        missing = {rank: set(tensors.split(", ")) for rank, tensors in stalls}
        late = [rank for rank, tensors in missing.items() if tensors == set().union(*missing.values())]
        waiting = self._positions({*self.heard} - {*late})
        cure = EQUAL_STEPS if self.own_script else "frozen, overloaded or lost"
        if late:
            return (f"{self._positions(late)}: the other ranks have waited for {waited:.0f} s ({waiting}; "
                    f"--stall-seconds); {cure}", waited / self.patience)
        return (f"the ranks have waited for each other for {waited:.0f} s ({waiting}; --stall-seconds); {EQUAL_STEPS}",
                waited / self.stall_seconds)

    def _positions(self, ranks: Iterable[int]) -> str:
        """Return where ranks are by their last heartbeats; of more than four ranks, the first four."""
        heard = dict(self.heard)  # A copy: another thread adds to it.
        known = [str(heard[rank].heartbeat) if rank in heard else f"rank {rank}" for rank in sorted(ranks)]
        return ", ".join(known[:4]) + ", ..." * (len(known) > 4)

    def cause(self, code: int, folder: Path) -> str:
        """Return why the run in a folder failed, or an empty string if it did not.

        Args:
            code: The exit code of the launcher.
            folder: The run's folder.
        """
        if code == 0 and (folder / "record.json").exists():
            return ""
        return one_line(self._silent_node() or self.error or self._lost_worker(folder) or self._lost_launcher(code))

    def _silent_node(self) -> str:
        """Return a message on a node that was silent for long while others were not, or "".

        Silence ends with the last heartbeat of any node, so that it does not grow while this process is stopped.
        """
        heard = [*self.heard.values()]
        last = {each.heartbeat.host: each.time for each in sorted(heard, key=lambda each: each.time)}
        silent = min(last, key=lambda node: last[node], default="")
        silence = max(last.values(), default=0.0) - last.get(silent, 0.0)
        if silence <= max(self.stall_seconds / 2, SECONDS_OF_SILENCE):
            return ""
        positions = "; ".join(f"rank {each.heartbeat.rank}: {each.heartbeat.position()}" for each in heard
                              if each.heartbeat.host == silent)
        return (f"node {silent} has not been heard from for {silence:.0f} s ({positions}): its link is cut, or the "
                "node is lost or frozen")

    def _lost_worker(self, folder: Path) -> str:
        """Return which worker ended without an error line, from the launcher's message and the last heartbeat."""
        match = next(filter(None, (re.search(end, self.launcher_message) for end in WORKER_ENDS)), None)
        if not match:
            return ""
        end = match.groupdict()
        rank, node = int(end["rank"]), end.get("node", "an unnamed node")
        # A file is newer than what was heard.
        known = {each.rank: each for each in (*(each.heartbeat for each in self.heard.values()),
                                              *heartbeat.read_folder(folder / heartbeat.FOLDER))}
        worker = known.get(rank, f"rank {rank} on {node}")
        if "signal" not in end:
            return f"{worker}: exited before the run ended, with code {end.get('code', 0)} and no error message"
        killer = signal.Signals(int(end["signal"]))
        # The kernel's out-of-memory killer sends SIGKILL; oneDNN and C++ crash when an allocation fails.
        hint = {signal.SIGKILL: "; out of memory? Then lower --batch-size"} | dict.fromkeys(
            (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS), "; a crash in compiled code, or out of memory")
        return f"{worker}: killed by {killer.name}{hint.get(killer, '')}"

    def _lost_launcher(self, code: int) -> str:
        """Return how the launcher ended, where no worker is known to be the cause."""
        last = f"; last heartbeats: {self._positions(self.heard)}" if self.heard else ""
        if last and (match := LOST_NODE.search(self.launcher_message)):
            return f"node {match[1] or match[2]} is lost: the launcher's daemon there has ended{last}"
        message = f": {self.launcher_message}" if self.launcher_message else ""
        if code < 0:
            return f"the launcher {explain_exit(code, '')}{message}{last}"
        if code == 0:
            return f"the launcher ended with code 0, but the run has written no record{message}{last}"
        hint = "; `labs check` looks for the cause"
        return f"the launcher ended with code {code}{message or ': it gave no reason'}{hint}{last}"
