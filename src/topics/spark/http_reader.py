"""A running server as a log, and how ranges of its topics are read.

`read_range` is a function of (topic, epoch, start, end) and of nothing else: the same range twice gives the same rows,
or a gap that says which of them are gone. Deleted and filtered records are simply not there; they are no loss.
"""

from collections.abc import Iterator, Sequence

from topics.client.errors import UnexpectedReply
from topics.client.sync_client import Client
from topics.errors import TopicNotFound
from topics.model.gap import GapReason
from topics.spark.columns import Columns
from topics.spark.errors import TopicChangedDuringRead
from topics.spark.log import Planned
from topics.spark.offsets import Offsets, SeqRange, TopicRange, pieces_of
from topics.spark.options import Filters, ReadOptions, Server
from topics.spark.rows import Gap, gathered
from topics.wire.responses import RecordReply

DELETED = "deleted_topic"


class ServerLog:
    """A running server, over one connection."""

    def __init__(self, read: ReadOptions, server: Server) -> None:
        self._options = read
        self._client = server.client()

    def server_id(self) -> str:
        return self._client.ready().server_id

    def ranges(self) -> dict[str, TopicRange]:
        return topic_ranges(self._client, self._options.topics, self._options.prefix)

    def seq_at(self, topic: str, ts: int, *, behind_losses: bool = False) -> int | None:
        return seq_at(self._client, topic, ts, behind_losses=behind_losses)

    def plan(self, ranges: Sequence[SeqRange], pieces_min: int, records_max: int | None) -> list[SeqRange]:
        return pieces_of(ranges, pieces_min, records_max)

    def read(self, planned: Planned) -> Iterator[Columns | Gap]:
        assert isinstance(planned, SeqRange)
        return gathered(read_range(self._client, planned, self._options.filters))

    def store_cursor(self, name: str, offsets: Offsets) -> None:
        for topic, position in offsets.items():
            try:
                self._client.set_cursor(topic, name, position.seq)
            except TopicNotFound:
                # Deleted meanwhile: the next offset tells it as the loss it is.
                continue

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "ServerLog":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def topic_ranges(client: Client, topics: tuple[str, ...], prefix: str | None) -> dict[str, TopicRange]:
    """What the subscribed topics hold now. A topic that does not exist is left out."""
    names = topics if prefix is None else tuple(listed.topic for listed in client.topics(prefix))
    ranges = {}
    for name in names:
        try:
            state = client.topic(name)
        except TopicNotFound:
            continue
        ranges[name] = TopicRange(state.epoch, state.earliest_seq, state.head_seq)
    return ranges


def seq_at(client: Client, topic: str, ts: int, *, behind_losses: bool = False) -> int | None:
    """Where the records of `ts` or later begin, or None if there are none. All before are older; lost seqs whose time
    nobody knows count as not older. `behind_losses`: the first record that is still there."""
    cursor = 0
    while True:
        reply = client.diff(topic, cursor, from_ts=ts, limit=1)
        if reply.tombstone is not None and not behind_losses:
            return reply.tombstone.gap_from
        if reply.records:
            return reply.records[0].seq
        if reply.next_from_seq <= cursor or reply.next_from_seq >= reply.head_seq:
            return None
        cursor = reply.next_from_seq


def read_range(client: Client, wanted: SeqRange, filters: Filters) -> Iterator[list[RecordReply] | Gap]:
    if wanted.lost_from is not None:
        yield Gap(wanted.lost_from, None, GapReason.RECREATED)
    if wanted.size == 0:
        return
    reason = _gone(client, wanted)
    if reason is not None:
        yield Gap(wanted.start + 1, wanted.end, reason)
        return
    try:
        yield from _read_existing(client, wanted, filters)
    except TopicNotFound:
        raise TopicChangedDuringRead(wanted.topic) from None
    if _gone(client, wanted) is not None:
        raise TopicChangedDuringRead(wanted.topic)


def _gone(client: Client, wanted: SeqRange) -> str | None:
    """Why nothing of the range is there any more, or None if the topic is still the one it was."""
    try:
        state = client.topic(wanted.topic)
    except TopicNotFound:
        return DELETED
    return None if state.epoch == wanted.epoch else GapReason.RECREATED


def _read_existing(client: Client, wanted: SeqRange, filters: Filters) -> Iterator[list[RecordReply] | Gap]:
    cursor, end = wanted.start, wanted.end
    while cursor < end:
        reply = client.diff(wanted.topic, cursor, to_seq=end, match=filters.match, node=filters.node)
        gap = reply.tombstone
        if reply.head_seq < end:
            # The head went back: a topic that keeps nothing over a restart began anew.
            yield Gap(cursor + 1, end, GapReason.RECREATED)
            return
        if gap is not None and gap.gap_from <= end:
            yield Gap(max(gap.gap_from, cursor + 1), min(gap.gap_to, end), gap.reason)
        if reply.next_from_seq <= cursor:
            raise UnexpectedReply(f'a read of topic "{wanted.topic}" after seq {cursor} got nowhere', 200)
        # Where all that is left of a range was deleted, the server's next step may be beyond it.
        records = reply.records
        if records and records[-1].seq > end:
            records = [record for record in records if record.seq <= end]
        if records:
            yield records
        cursor = reply.next_from_seq
