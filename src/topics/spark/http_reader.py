"""A running server as a log, and how ranges of its topics are read.

`read_range` depends only on (topic, epoch, start, end): reading a range twice gives the same rows, or a gap that says
which of them are gone. Deleted and filtered records are simply absent; they are not losses.
"""

import contextlib
from collections.abc import Iterator, Sequence

from msgspec import UNSET, Raw, Struct, field, json

from topics import limits
from topics.client import calls
from topics.client.core import Address
from topics.client.errors import ServerUnreachable, UnexpectedReply
from topics.client.sockets import listens
from topics.client.sync_client import Client
from topics.errors import TopicNotFound
from topics.model.gap import GapReason
from topics.spark.columns import ALL_FIELDS, PAYLOAD, Columns
from topics.spark.errors import TopicChangedDuringRead
from topics.spark.log import Planned
from topics.spark.offsets import DELETED, Gap, Offsets, SeqRange, TopicRange, pieces_of
from topics.spark.options import Filters, ReadOptions, Server, Subscription
from topics.spark.rows import Page, Texts, gathered
from topics.wire.responses import DiffReply, Tombstone, TopicSummary

FOUND_IN_TEXTS = frozenset({"seq", "ts", PAYLOAD})


class _TextReply(Struct):
    """A diff's reply whose records stay as they are: whoever takes fields out of their payloads decodes them once."""

    records: Raw
    next_from_seq: int
    head_seq: int
    tombstone: Tombstone | None = None


class _Place(Struct, gc=False):
    seq: int = field(name="$seq")
    ts: int = field(name="$ts")


_decode_places = json.Decoder(list[_Place]).decode
_decode_texts = json.Decoder(list[Raw]).decode


class ServerLog:
    """A running server, over one connection."""

    def __init__(self, read: ReadOptions, server: Server, fields: frozenset[str] = ALL_FIELDS) -> None:
        self._options = read
        self._client = server.client()
        self._fields = fields

    def server_id(self) -> str:
        return self._client.ready().server_id

    def require_reachable(self) -> None:
        """Raises `ServerUnreachable` at once: only a server that was there before is waited for."""
        address = Address.of(self._client.url)
        if not listens(address.host, address.port):
            raise ServerUnreachable(f"nobody listens at {self._client.url}; start the server, or correct the url")

    def ranges(self) -> dict[str, TopicRange]:
        return topic_ranges(self._client, self._options.subscription)

    def seq_at(self, topic: str, ts: int, *, behind_losses: bool = False) -> int | None:
        return seq_at(self._client, topic, ts, behind_losses=behind_losses)

    def plan(self, ranges: Sequence[SeqRange], pieces_min: int, records_max: int | None) -> list[SeqRange]:
        return pieces_of(ranges, pieces_min, records_max)

    def read(self, planned: Planned) -> Iterator[Columns | Gap]:
        assert isinstance(planned, SeqRange)
        return gathered(read_range(self._client, planned, self._options.filters, self._fields))

    def read_all(self, shares: Sequence[Planned]) -> Iterator[tuple[str, Columns | Gap]]:
        """Checks all topics in one call before the read and one after it: a task may read hundreds of small ones."""
        ranges = [share for share in shares if isinstance(share, SeqRange)]
        names = [wanted.topic for wanted in ranges if wanted.size]
        before = named_ranges(self._client, names)
        for wanted in ranges:
            now = before.get(wanted.topic)
            for item in gathered(_read_known(self._client, wanted, self._options.filters, self._fields, now)):
                yield wanted.topic, item
        after = named_ranges(self._client, names)
        for name in names:
            if name in before and (name not in after or after[name].epoch != before[name].epoch):
                raise TopicChangedDuringRead(name)

    def store_cursor(self, name: str, offsets: Offsets) -> None:
        for topic, position in offsets.items():
            try:
                self._client.set_cursor(topic, name, position.seq)
            except TopicNotFound:
                # Deleted meanwhile: the next offset reports it as a loss.
                continue

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "ServerLog":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def topic_ranges(client: Client, subscription: Subscription) -> dict[str, TopicRange]:
    """What the subscribed topics hold now. A topic that does not exist is left out."""
    if subscription.prefix is None:
        return named_ranges(client, subscription.topics)
    listed = [each for each in client.topics(subscription.prefix) if subscription.includes(each.topic)]
    if any(each.epoch is UNSET for each in listed):
        return _one_by_one(client, [each.topic for each in listed])
    return {each.topic: _range_of(each) for each in listed}


def named_ranges(client: Client, names: Sequence[str]) -> dict[str, TopicRange]:
    """What the topics of these names hold now; asks for many in one call."""
    found: dict[str, TopicRange] = {}
    unique = sorted(set(names))
    for at in range(0, len(unique), limits.SPARK_LISTED_NAMES_MAX):
        asked = unique[at : at + limits.SPARK_LISTED_NAMES_MAX]
        page = client.send(calls.topics_named(asked)).topics
        if any(each.epoch is UNSET or each.topic not in asked for each in page):
            # An older server cannot list topics by name.
            return _one_by_one(client, unique)
        found |= {each.topic: _range_of(each) for each in page}
    return found


def _range_of(listed: TopicSummary) -> TopicRange:
    assert listed.epoch is not UNSET
    schema = None if listed.schema is UNSET else listed.schema
    return TopicRange(listed.epoch, listed.earliest_seq, listed.head_seq, schema)


def _one_by_one(client: Client, names: Sequence[str]) -> dict[str, TopicRange]:
    ranges = {}
    for name in names:
        with contextlib.suppress(TopicNotFound):
            state = client.topic(name)
            ranges[name] = TopicRange(state.epoch, state.earliest_seq, state.head_seq)
    return ranges


def seq_at(client: Client, topic: str, ts: int, *, behind_losses: bool = False) -> int | None:
    """The first seq with a time of `ts` or later, or None if there is none; all seqs before it are older. Lost seqs,
    whose time is unknown, count as later. With `behind_losses`: the first record that is still there."""
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


def read_range(
    client: Client, wanted: SeqRange, filters: Filters, fields: frozenset[str] = ALL_FIELDS
) -> Iterator[Page | Gap]:
    now = named_ranges(client, [wanted.topic]).get(wanted.topic) if wanted.size else None
    yield from _read_known(client, wanted, filters, fields, now)
    if now is not None and now.epoch == wanted.epoch:
        after = named_ranges(client, [wanted.topic]).get(wanted.topic)
        if after is None or after.epoch != wanted.epoch:
            raise TopicChangedDuringRead(wanted.topic)


def _read_known(
    client: Client, wanted: SeqRange, filters: Filters, fields: frozenset[str], now: TopicRange | None
) -> Iterator[Page | Gap]:
    """`now` is the topic that has this name now, None if there is none."""
    if wanted.lost_from is not None:
        yield Gap(wanted.lost_from, None, GapReason.RECREATED)
    if wanted.size == 0:
        return
    if now is None or now.epoch != wanted.epoch:
        yield Gap(wanted.start + 1, wanted.end, DELETED if now is None else GapReason.RECREATED)
        return
    try:
        yield from _read_existing(client, wanted, filters, fields)
    except TopicNotFound:
        raise TopicChangedDuringRead(wanted.topic) from None


def _read_existing(client: Client, wanted: SeqRange, filters: Filters, fields: frozenset[str]) -> Iterator[Page | Gap]:
    cursor, end = wanted.start, wanted.end
    stays_text = PAYLOAD in fields and fields <= FOUND_IN_TEXTS
    reply_type: type[DiffReply] | type[_TextReply] = _TextReply if stays_text else DiffReply
    while cursor < end:
        reply = client.send(
            calls.diff_as(
                reply_type,
                wanted.topic,
                cursor,
                to_seq=end,
                from_ts=None,
                limit=limits.DIFF_LIMIT_MAX,
                match=filters.match,
                node=filters.node,
                wait_ms=0,
                epoch=None,
                # The server has the texts with their tags at hand.
                include_tags=stays_text or "tag" in fields,
                include_meta="meta" in fields,
            )
        )
        gap = reply.tombstone
        if reply.head_seq < end:
            # The head went back: an ephemeral topic starts over after a restart.
            yield Gap(cursor + 1, end, GapReason.RECREATED)
            return
        if gap is not None and gap.gap_from <= end:
            yield Gap(max(gap.gap_from, cursor + 1), min(gap.gap_to, end), gap.reason)
        if reply.next_from_seq <= cursor:
            raise UnexpectedReply(f'a read of topic "{wanted.topic}" after seq {cursor} got nowhere', 200)
        if page := _page_of(reply, end):
            yield page
        cursor = reply.next_from_seq


def _page_of(reply: DiffReply | _TextReply, end: int) -> Page | None:
    """The records up to `end`: if the rest of a range was deleted, the server may go on beyond it."""
    if isinstance(reply, DiffReply):
        records = reply.records
        if records and records[-1].seq > end:
            records = [record for record in records if record.seq <= end]
        return records or None
    places = _decode_places(reply.records)
    text = bytes(memoryview(reply.records)[1:-1])
    if places and places[-1].seq > end:
        places = [place for place in places if place.seq <= end]
        text = b",".join(map(bytes, _decode_texts(reply.records)[: len(places)]))
    return Texts([place.seq for place in places], [place.ts for place in places], text) if places else None
