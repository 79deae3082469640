"""The last line of a failed run: what its workers, their heartbeats and their launcher say about the cause."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

from labs.run import heartbeat
from labs.run.text import one_line

ERROR = "labs: error: "
PREFIX = re.compile(r"^\[\d+\]<std(?:out|err)>:")
"""What horovodrun writes before each line of a worker."""
BOX = "-" * 60
"""How the first and the last line of a message of Open MPI's launcher begin."""
ENDS = (
    r"rank (?P<rank>\d+) .*?on node (?P<node>\S+) exited on signal (?P<signal>\d+)",
    r"rank (?P<rank>\d+) .*?on node (?P<node>\S+) exiting improperly",
    r"Process name: \[\S+,(?P<rank>\d+)\] Exit code: +(?P<code>\d+)",
)
"""How Open MPI's launcher says which worker was the first to end, and how."""
LOST_NODE = re.compile(r"Remote host: +(\S+)|Remote daemon: .*? on node (\S+)")
"""How it says, on either stream, that it has lost its daemon on a node."""
SECONDS_OF_SILENCE = 4.0
"""A node is not called silent before: when a worker has died, those on other nodes live two seconds longer (mpirun's
mpi_abort_delay)."""


class Evidence:
    """Collects what is said on a run's output streams, from which its last line is made.

    Args:
        stall_seconds: How long a worker may stand still.
    """

    def __init__(self, stall_seconds: float):
        self.stall_seconds = stall_seconds
        self.cause = ""
        """The first error that a worker has reported."""
        self.reported = 0.0
        """When it was reported, on the monotonic clock."""
        self.launcher = ""
        """The launcher's messages."""
        self.heard: dict[int, tuple[heartbeat.Beat, float]] = {}
        """The last heartbeat of each rank and when it came; a rank that has left the run is not here."""

    def take_error(self, text: str) -> None:
        """Take what a worker's error line says; the first one counts."""
        if not self.cause:
            self.cause, self.reported = text.strip(), time.monotonic()

    def take_message(self, text: str) -> None:
        """Take a line of the launcher's."""
        self.launcher = f"{self.launcher} {text.strip()}".strip()

    def take_heartbeats(self, text: str) -> str:
        """Take the heartbeats out of a line, and return what is left of it."""
        for place in heartbeat.parse_beats(text):
            if place.alive:
                self.heard[place.rank] = place, time.monotonic()
            else:
                self.heard.pop(place.rank, None)
        return heartbeat.BEAT_LINE.sub("", text)

    def silent_node(self, seconds: float) -> str:
        """Return what is known of a node that fell silent so long before the others, or nothing.

        Silence is counted up to the last heartbeat of any node, so that it does not grow while this process sleeps.
        """
        nodes: dict[str, list[tuple[heartbeat.Beat, float]]] = {}
        for place, when in [*self.heard.values()]:  # A copy: another thread adds to it.
            nodes.setdefault(place.host, []).append((place, when))
        last = {node: max(when for _, when in heard) for node, heard in nodes.items()}
        silent = min(last, key=lambda node: last[node], default=None)
        if silent is None or (silence := max(last.values()) - last[silent]) <= seconds:
            return ""
        places = "; ".join(f"rank {beat.rank}: {beat.position()}" for beat, _ in nodes[silent])
        return (f"node {silent} has not been heard from for {silence:.0f} s ({places}): its link is cut, or the node "
                "is lost or frozen")

    def verdict(self, code: int, folder: Path) -> str:
        """Return why the run has failed, or nothing if it has not.

        Args:
            code: What the launcher ended with.
            folder: Of the run.
        """
        if code == 0 and (folder / "record.json").exists():
            return ""
        node = self.silent_node(max(self.stall_seconds / 2, SECONDS_OF_SILENCE))
        return one_line(node or self.cause or self._lost_worker(folder / "heartbeats") or self._lost_launcher(code))

    def _lost_worker(self, places: Path) -> str:
        """Say which worker ended without a word, from the launcher's words and the worker's last heartbeat."""
        match = next(filter(None, (re.search(end, self.launcher) for end in ENDS)), None)
        if not match:
            return ""
        end = match.groupdict()
        rank, node = int(end["rank"]), end.get("node", "an unnamed node")
        place = next((str(place) for place in heartbeat.read_beats(places) if place.rank == rank),
                     f"rank {rank} on {node}")
        if "signal" not in end:
            return f"{place}: left the run before its end, with code {end.get('code', 0)} and without a word"
        killer = signal.Signals(int(end["signal"]))
        # The kernel's out-of-memory killer sends SIGKILL; oneDNN and C++ crash when an allocation fails.
        memory = killer in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
        return f"{place}: killed by {killer.name}" + "; out of memory? Then lower --batch-size" * memory

    def _lost_launcher(self, code: int) -> str:
        """Say how the launcher ended, where no worker is known to be the cause."""
        last = ", ".join(str(place) for _, (place, _) in sorted(self.heard.items()))
        last = f"; last heartbeats: {last}" if last else ""
        if last and (match := LOST_NODE.search(self.launcher)):
            return f"node {match[1] or match[2]} is lost: the launcher's daemon there has ended{last}"
        hint = "; `labs check` looks for the cause" if code > 0 else ""
        said = f": {self.launcher}" if self.launcher else ""
        if code < 0:
            return f"the launcher was killed by {signal.Signals(-code).name}{said}{last}"
        if code == 0:
            return f"the launcher ended with code 0, but the run has written no record{said}{last}"
        return f"the launcher ended with code {code}{said or ': it gave no reason'}{hint}{last}"
