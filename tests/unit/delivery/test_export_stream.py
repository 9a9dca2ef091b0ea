"""An export: every record of a range once, at the client's pace, and an end that says what is missing."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from doubles.fake_channel import FakeChannel
from doubles.live_stage import LiveStage
from topics import limits
from topics.delivery.export_format import JsonLines
from topics.delivery.export_stream import ExportStream
from topics.engine.journal import Busy, Commit
from topics.engine.topic import Topic
from topics.errors import ShuttingDown, StorageFailed, TopicsError, Unauthorized


class Export:
    """A stream on a fake channel. `encode` runs the encoding that waits, as a thread would."""

    def __init__(self, stage: LiveStage, topic: Topic, from_seq: int = 0, to_seq: int | None = None) -> None:
        self.stage = stage
        self.channel = FakeChannel()
        self.released = 0
        self.fail_to_encode = False
        self.waiting: list[Callable[[], None]] = []
        self.stream = ExportStream(
            stage.engine,
            topic,
            from_seq,
            topic.log.head_seq if to_seq is None else to_seq,
            JsonLines(),
            self._off_loop,
            stage.loop.call_later,
            self._release,
        )

    def open(self) -> "Export":
        self.stream.opened(self.channel)
        return self

    def run(self) -> None:
        """Until nothing happens any more by itself."""
        while self.waiting or self.stage.loop.is_due:
            self.encode()
            self.stage.settle()

    def encode(self) -> None:
        jobs, self.waiting = self.waiting, []
        for job in jobs:
            job()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in b"".join(self.channel.writes).splitlines()]

    def seqs(self) -> list[int]:
        return [line["$seq"] for line in self.lines() if "$seq" in line]

    def end(self) -> dict[str, Any]:
        *records, last = self.lines()
        assert all("$seq" in record for record in records)
        end: dict[str, Any] = last["$end"]
        return end

    def _off_loop(self, job: Callable[[], bytes], done: Callable[[bytes | None], None]) -> None:
        self.waiting.append(lambda: done(None if self.fail_to_encode else job()))

    def _release(self) -> None:
        self.released += 1


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> LiveStage:
    monkeypatch.setattr(limits, "EXPORT_BATCH_RECORDS_MAX", 3)
    return LiveStage()


def filled(stage: LiveStage, count: int, **config: int) -> Topic:
    topic = stage.configure("t", **config)
    stage.write(count=count)
    return topic


def finished(stage: LiveStage, topic: Topic, from_seq: int = 0, to_seq: int | None = None) -> Export:
    export = Export(stage, topic, from_seq, to_seq).open()
    export.run()
    assert export.channel.closed
    assert export.released == 1
    return export


def test_every_record_and_then_the_end(stage: LiveStage) -> None:
    export = finished(stage, filled(stage, 10))
    assert export.seqs() == list(range(1, 11))
    assert export.end() == {"next_from_seq": 10, "tombstones": []}


@pytest.mark.parametrize(
    ("from_seq", "to_seq", "seqs"),
    [(0, 0, []), (0, 1, [1]), (3, 3, []), (3, 7, [4, 5, 6, 7]), (9, 10, [10]), (10, 10, []), (7, 3, [])],
)
def test_the_range_is_exclusive_at_its_start_and_inclusive_at_its_end(
    stage: LiveStage, from_seq: int, to_seq: int, seqs: list[int]
) -> None:
    export = finished(stage, filled(stage, 10), from_seq, to_seq)
    assert export.seqs() == seqs
    assert export.end() == {"next_from_seq": max(from_seq, to_seq), "tombstones": []}


def test_an_empty_topic_has_only_an_end(stage: LiveStage) -> None:
    assert finished(stage, stage.configure()).end() == {"next_from_seq": 0, "tombstones": []}


def test_what_is_written_meanwhile_is_not_part_of_it(stage: LiveStage) -> None:
    export = Export(stage, filled(stage, 5)).open()
    stage.write(count=5)
    export.run()
    assert export.seqs() == [1, 2, 3, 4, 5]


def test_deleted_records_are_silent(stage: LiveStage) -> None:
    topic = filled(stage, 10)
    stage.engine.delete_records("t", 4, None)
    export = finished(stage, topic)
    assert export.seqs() == [4, 5, 6, 7, 8, 9, 10]
    assert export.end()["tombstones"] == []


def test_a_loss_is_told_in_the_end(stage: LiveStage) -> None:
    export = finished(stage, filled(stage, 10, cap_records=4))
    assert export.seqs() == [7, 8, 9, 10]
    assert export.end()["tombstones"] == [{"gap_from": 1, "gap_to": 6, "reason": "cap"}]


def test_a_loss_is_told_only_as_far_as_the_range_goes(stage: LiveStage) -> None:
    export = finished(stage, filled(stage, 10, cap_records=4), 2, 5)
    assert export.seqs() == []
    assert export.end() == {"next_from_seq": 5, "tombstones": [{"gap_from": 3, "gap_to": 5, "reason": "cap"}]}


def test_what_is_lost_while_it_is_read_is_told_too(stage: LiveStage) -> None:
    export = Export(stage, filled(stage, 10, cap_records=10)).open()
    export.encode()
    stage.loop.turn()
    stage.write(count=6)
    export.run()
    assert export.seqs() == [1, 2, 3, 7, 8, 9, 10]
    assert export.end()["tombstones"] == [{"gap_from": 4, "gap_to": 6, "reason": "cap"}]


def test_a_client_that_does_not_read_holds_one_batch(stage: LiveStage) -> None:
    export = Export(stage, filled(stage, 100)).open()
    export.encode()
    stage.loop.turn()
    export.channel.writable = False
    export.run()
    assert export.seqs() == [1, 2, 3]
    export.channel.writable = True
    export.stream.drained()
    export.channel.writable = False
    export.run()
    assert export.seqs() == [1, 2, 3, 4, 5, 6]
    assert export.released == 0


def test_one_batch_is_gathered_in_a_turn_of_the_loop(stage: LiveStage) -> None:
    export = Export(stage, filled(stage, 100)).open()
    export.encode()
    for turn in range(1, 5):
        stage.loop.turn()
        assert len(export.waiting) == 1
        export.encode()
        assert len(export.seqs()) == 3 * turn


def test_a_client_that_never_reads_again_loses_its_connection(stage: LiveStage) -> None:
    export = Export(stage, filled(stage, 100)).open()
    export.channel.writable = False
    export.run()
    stage.loop.pass_time(int(limits.EXPORT_STALL_S_MAX * 1000) - 1)
    assert not export.channel.closed
    stage.loop.pass_time(2)
    assert export.channel.closed
    assert export.released == 1


def test_a_client_that_reads_slowly_keeps_its_connection(stage: LiveStage) -> None:
    export = Export(stage, filled(stage, 100)).open()
    for _ in range(5):
        export.channel.writable = True
        export.stream.drained()
        export.channel.writable = False
        export.run()
        stage.loop.pass_time(int(limits.EXPORT_STALL_S_MAX * 600))
    assert not export.channel.closed


def test_a_client_that_leaves_gives_its_slot_back(stage: LiveStage) -> None:
    export = Export(stage, filled(stage, 100)).open()
    export.encode()
    export.stream.closed()
    export.run()
    assert export.released == 1
    assert export.channel.writes == [b""]


def test_a_topic_deleted_meanwhile_ends_it_early(stage: LiveStage) -> None:
    export = Export(stage, filled(stage, 10)).open()
    export.encode()
    stage.loop.turn()
    stage.engine.delete_topic("t")
    export.run()
    assert export.seqs() == [1, 2, 3]
    assert export.end() == {"next_from_seq": 3, "tombstones": [], "error": "the topic was deleted"}
    assert export.released == 1


@pytest.mark.parametrize("while_encoding", [False, True])
def test_a_server_that_stops_ends_it_early(stage: LiveStage, while_encoding: bool) -> None:
    export = Export(stage, filled(stage, 10)).open()
    export.encode()
    stage.loop.turn()
    if not while_encoding:
        export.channel.writable = False
        export.run()
    export.stream.end_with(ShuttingDown("the server is shutting down"))
    export.run()
    assert export.end() == {"next_from_seq": 3, "tombstones": [], "error": "the server is shutting down"}
    assert export.channel.closed


def test_a_key_that_is_gone_ends_it_early(stage: LiveStage) -> None:
    export = Export(stage, filled(stage, 10)).open()
    export.encode()
    stage.loop.turn()
    export.stream.end_with(Unauthorized.revoked())
    export.run()
    assert "the API key was removed" in export.end()["error"]
    assert export.channel.closed


def test_a_failed_encoding_ends_it_early(stage: LiveStage) -> None:
    export = Export(stage, filled(stage, 10)).open()
    export.encode()
    stage.loop.turn()
    export.fail_to_encode = True
    export.run()
    assert export.seqs() == []
    assert export.end()["error"] == "the server could not encode it; its log says why"


class SlowEngine:
    """The engine, when the log is on storage that has to be asked first."""

    def __init__(self) -> None:
        self.commit = Commit()

    def refresh(self, topic: Topic) -> None:
        if not self.commit.done:
            raise Busy(self.commit)


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (None, {"next_from_seq": 2, "tombstones": []}),
        (
            StorageFailed("gone"),
            {"next_from_seq": 0, "tombstones": [], "error": "the server could not read it; its log says why"},
        ),
    ],
)
def test_slow_storage_is_waited_for_and_a_failing_one_ends_it_early(
    stage: LiveStage, error: TopicsError | None, end: dict[str, Any]
) -> None:
    export = Export(stage, filled(stage, 2))
    slow = SlowEngine()
    export.stream._engine = slow  # type: ignore[assignment]
    export.open()
    export.run()
    assert export.seqs() == []
    assert not export.channel.closed
    slow.commit.resolve(error, 0)
    export.run()
    assert export.end() == end
    assert export.released == 1


def test_a_damaged_segment_ends_it_early(stage: LiveStage, monkeypatch: pytest.MonkeyPatch) -> None:
    export = Export(stage, filled(stage, 2))

    def damaged(topic: Topic) -> None:
        raise StorageFailed("damaged")

    monkeypatch.setattr(stage.engine, "refresh", damaged)
    export.open()
    export.run()
    assert export.end()["error"] == "the server could not read it; its log says why"
