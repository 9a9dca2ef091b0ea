"""A range over HTTP: the same rows every time, or a gap that says which are gone."""

from typing import Any

import pytest
from msgspec import Raw, json

from topics.client.core import Call
from topics.client.errors import UnexpectedReply
from topics.errors import TopicNotFound
from topics.spark.columns import ALL_FIELDS, PAYLOAD
from topics.spark.errors import TopicChangedDuringRead
from topics.spark.http_reader import read_range, seq_at
from topics.spark.offsets import Gap, SeqRange
from topics.spark.options import Filters
from topics.spark.rows import Page, Texts, columns_of
from topics.wire.responses import DiffReply, Performance, RecordReply, Tombstone, TopicPage, TopicSummary

ALL = Filters((), None)
WANTED = SeqRange("t", 1, 4, 9)


class ScriptedClient:
    """Answers with what it was told; an epoch of None is a topic that does not exist."""

    def __init__(self, epochs: list[int | None], replies: list[DiffReply | None]) -> None:
        self.epochs = epochs
        self.replies = replies
        self.cursors: list[int] = []

    def send(self, call: Call[Any]) -> Any:
        """Asked for topics by their names, and for what comes after a seq."""
        if call.path.endswith("/diff"):
            page = self.diff("t", json.decode(call.body or b"")["from_seq"])
            return page if call.reply is DiffReply else json.decode(json.encode(page), type=call.reply)
        epoch = self.epochs.pop(0)
        found = [] if epoch is None else [TopicSummary("t", 9, 1, 9, 9, False, 0, epoch=epoch)]
        return TopicPage(found, Performance(0.1))

    def diff(self, topic: str, from_seq: int = 0, **_: object) -> DiffReply:
        self.cursors.append(from_seq)
        reply = self.replies.pop(0)
        if reply is None:
            raise TopicNotFound(topic)
        return reply


def reply(*seqs: int, to: int, head: int = 20, gap: tuple[int, int, str] | None = None) -> DiffReply:
    records = [RecordReply(seq, 1, Raw(b"1")) for seq in seqs]
    return DiffReply(records, to, head, 1, None if gap is None else Tombstone(*gap, 1, 1, head))


def items(client: ScriptedClient, wanted: SeqRange = WANTED, fields: frozenset[str] = ALL_FIELDS) -> list[object]:
    untyped: Any = client
    return [seqs_of(item) for item in read_range(untyped, wanted, ALL, fields)]


def seqs_of(item: Page | Gap) -> object:
    if isinstance(item, Gap):
        return item
    return item.seqs if isinstance(item, Texts) else [record.seq for record in item]


def test_a_range_is_read_reply_by_reply() -> None:
    client = ScriptedClient([1, 1], [reply(5, 6, to=6), reply(8, 9, to=9)])
    assert items(client) == [[5, 6], [8, 9]]
    assert client.cursors == [4, 6]


def test_a_reply_that_goes_beyond_the_range_is_cut() -> None:
    assert items(ScriptedClient([1, 1], [reply(8, 9, 10, 11, to=11)])) == [[8, 9]]


@pytest.mark.parametrize("last", [9, 12])
def test_records_whose_payloads_are_taken_apart_later_stay_text(last: int) -> None:
    untyped: Any = ScriptedClient([1, 1], [reply(5, 6, to=6), reply(8, 9, *range(10, last + 1), to=last)])
    pages: Any = list(read_range(untyped, WANTED, ALL, frozenset(("ts", PAYLOAD))))
    assert [page.seqs for page in pages] == [[5, 6], [8, 9]]
    columns = columns_of(pages)
    assert (columns.seq.to_pylist(), columns.ts.to_pylist()) == ([5, 6, 8, 9], [1] * 4)
    assert columns.with_data().data.to_pylist() == ["1"] * 4
    assert items(ScriptedClient([1, 1], [reply(to=9)]), fields=frozenset((PAYLOAD,))) == []


def test_a_gap_is_cut_to_the_range() -> None:
    assert items(ScriptedClient([1, 1], [reply(12, to=12, gap=(5, 11, "cap"))])) == [Gap(5, 9, "cap")]


def test_a_gap_beyond_the_range_is_somebody_elses() -> None:
    assert items(ScriptedClient([1, 1], [reply(5, to=9, gap=(10, 11, "crash"))])) == [[5]]


@pytest.mark.parametrize(("epoch", "reason"), [(None, "deleted_topic"), (2, "recreated")])
def test_a_topic_that_is_gone_is_one_gap(epoch: int | None, reason: str) -> None:
    assert items(ScriptedClient([epoch], [])) == [Gap(5, 9, reason)]


@pytest.mark.parametrize("after", [None, 2])
def test_a_topic_recreated_meanwhile_fails_the_task(after: int | None) -> None:
    with pytest.raises(TopicChangedDuringRead):
        items(ScriptedClient([1, after], [reply(5, 6, to=9)]))


def test_a_topic_deleted_between_two_replies_fails_the_task() -> None:
    with pytest.raises(TopicChangedDuringRead):
        items(ScriptedClient([1], [reply(5, to=5), None]))


def test_a_head_that_went_back_is_a_gap() -> None:
    assert items(ScriptedClient([1, 1], [reply(5, to=5), reply(to=3, head=3)])) == [[5], Gap(6, 9, "recreated")]


def test_what_the_topic_of_before_had_is_a_gap_without_an_end() -> None:
    client = ScriptedClient([1, 1], [reply(1, 2, to=2)])
    assert items(client, SeqRange("t", 1, 0, 2, lost_from=8)) == [Gap(8, None, "recreated"), [1, 2]]
    assert items(ScriptedClient([], []), SeqRange("t", 1, 0, 0, lost_from=8)) == [Gap(8, None, "recreated")]


def test_a_server_that_gets_nowhere_is_not_asked_for_ever() -> None:
    with pytest.raises(UnexpectedReply):
        items(ScriptedClient([1], [reply(to=4)]))


def test_a_time_is_found_behind_deleted_records() -> None:
    untyped: Any = ScriptedClient([], [reply(to=7), reply(12, to=12)])
    assert seq_at(untyped, "t", 5) == 12
    untyped = ScriptedClient([], [reply(to=20)])
    assert seq_at(untyped, "t", 5) is None


def test_what_is_lost_where_a_time_begins_may_be_of_that_time() -> None:
    lost = reply(12, to=12, gap=(5, 11, "crash"))
    untyped: Any = ScriptedClient([], [lost])
    assert seq_at(untyped, "t", 5) == 5
    untyped = ScriptedClient([], [lost])
    assert seq_at(untyped, "t", 5, behind_losses=True) == 12
