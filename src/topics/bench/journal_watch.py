"""Checks with a server's own counters that it really journals what it acknowledges.

A write that only reaches memory cannot be compared with one that reaches a file. So the report says if the journal's
counters stood still during a round.
"""

from topics.bench.control import HttpControl

FRAMES_COUNTER = "topics_wal_frames_total"
SYNCS_COUNTER = "topics_wal_fsyncs_total"


class JournalWatch:
    """Compares the counter that a durability class must move, before and after a round."""

    def __init__(self, durability: str, control: HttpControl) -> None:
        self._counter = SYNCS_COUNTER if durability == "fsync" else FRAMES_COUNTER
        self._journalled = durability != "ephemeral"
        self._control = control
        self._before = self._read()

    def caveat(self) -> str | None:
        """What the report must say after the round; None if the counter moved, or if the server has none."""
        if not self._journalled or self._before is None or self._read() != self._before:
            return None
        return f"{self._counter} stood still: these writes reached memory only"

    def _read(self) -> float | None:
        content = self._control.read_if_there("/v0/metrics")
        return None if content is None else counter_in(content.decode("utf-8", "replace"), self._counter)


def counter_in(exposition: str, name: str) -> float | None:
    """The value of a counter without labels in a Prometheus text exposition."""
    for line in exposition.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == name:
            return float(words[1])
    return None
