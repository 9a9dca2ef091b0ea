"""A server whose journal stands still must not pass for a durable one."""

import pytest

from topics.bench.control import HttpControl
from topics.bench.journal_watch import JournalWatch, counter_in

EXPOSITION = """# HELP topics_wal_frames_total Frames.
# TYPE topics_wal_frames_total counter
topics_wal_frames_total {frames}
topics_wal_fsyncs_total {syncs}
"""


class ScriptedControl(HttpControl):
    """Answers reads from a list instead of a server."""

    def __init__(self, *contents: bytes | None) -> None:
        self._contents = list(contents)

    def read_if_there(self, path: str) -> bytes | None:
        return self._contents.pop(0)


def metrics(frames: int, syncs: int) -> bytes:
    return EXPOSITION.format(frames=frames, syncs=syncs).encode()


def test_a_counter_is_found_by_its_whole_name() -> None:
    text = EXPOSITION.format(frames=7, syncs=3)
    assert counter_in(text, "topics_wal_frames_total") == 7.0
    assert counter_in(text, "topics_wal_frames") is None


@pytest.mark.parametrize(
    ("durability", "frames", "syncs", "warned"),
    [
        ("disk", 0, 0, True),
        ("disk", 9, 0, False),
        ("fsync", 9, 0, True),
        ("fsync", 9, 1, False),
        ("ephemeral", 0, 0, False),
    ],
)
def test_the_counter_of_the_class_must_move(durability: str, frames: int, syncs: int, warned: bool) -> None:
    watch = JournalWatch(durability, ScriptedControl(metrics(0, 0), metrics(frames, syncs)))
    assert (watch.caveat() is not None) == warned


def test_a_server_without_metrics_is_taken_at_its_word() -> None:
    assert JournalWatch("disk", ScriptedControl(None, None)).caveat() is None
