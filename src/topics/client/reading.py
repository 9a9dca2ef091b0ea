"""Reading a topic from a given place: page by page, following if asked to, and with every loss reported. Does no I/O
itself.

    seqs        5 6 7 | 8 … 20 lost | 21 22 23 …
    items      Event(5) Event(6) Event(7) Gap(8, 20, "cap") Event(21) …

The place is kept here, not on the server, so a broken connection or a restarted server changes nothing: the next page
is requested from the same place. The topic's epoch goes with it, so the server can tell if the name belongs to a new
topic.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar

from msgspec import Struct, defstruct

from topics import limits
from topics.client import calls
from topics.client.caller import Caller
from topics.client.calls import Match
from topics.client.core import Call
from topics.client.errors import LossMet
from topics.client.events import Event, Gap, event_type
from topics.errors import CursorNotFound, InvalidRequest, TopicNotFound
from topics.wire.responses import Tombstone

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)
Losses = Literal["yield", "hide", "raise"]


class Moment(Protocol):
    """A point in time, as `datetime.datetime` is one."""

    def timestamp(self) -> float: ...


class Source(Protocol[Item]):
    """What an iterator of a shell takes its items from."""

    async def next_items(self) -> list[Item] | None:
        """What comes next, at least one item; None when there is no more."""
        ...

    def close(self) -> None: ...


class PageOfEvents(Struct):
    """A diff's reply, for reading event by event."""

    records: list[Event[Any]]
    next_from_seq: int
    head_seq: int
    tombstone: Tombstone | None = None


_page_types: dict[type[Any] | None, type[PageOfEvents]] = {None: PageOfEvents}


def page_type(as_type: type[Any] | None) -> type[PageOfEvents]:
    known = _page_types.get(as_type)
    if known is None:
        assert as_type is not None
        events: Any = list.__class_getitem__(event_type(as_type))
        made: Any = defstruct("PageOfEvents", [("records", events)], bases=(PageOfEvents,))
        if len(_page_types) < limits.CLIENT_EVENT_TYPES_MAX:
            _page_types[as_type] = made
        known = made
    return known


class Place(TypedDict, total=False):
    """Where a read begins and ends, and which records it wants."""

    follow: bool  # goes on for good, instead of ending where the topic ended when it began
    from_seq: int  # exclusive; 0 is the beginning
    from_time: int | Moment  # milliseconds since 1970, or a datetime
    cursor: str  # what was committed under this name; where nothing was, one of the two above
    to_seq: int  # inclusive
    tag: Match  # only records whose tag matches
    node: str | Sequence[str]  # the reader's own identities: their records are left out
    wait_for_topic: bool  # also while there is none
    include_meta: bool
    page_records: int


class Reading(Generic[Item_co]):
    """`position` is the last seq that a page covered; `epoch`, once known, says which topic of this name it belongs
    to."""

    def __init__(self, caller: Caller, topic: str, place: Place, losses: Losses, as_type: type[Any] | None) -> None:
        if unknown := place.keys() - Place.__annotations__.keys():
            raise TypeError(f"read() has no argument {min(unknown)!r}")
        if "from_seq" in place and "from_time" in place:
            raise InvalidRequest.in_field("from_time", "give from_seq or from_time, not both")
        if losses not in {"yield", "hide", "raise"}:
            raise InvalidRequest.in_field("losses", 'is "yield", "hide" or "raise"')
        self._caller = caller
        self._topic = topic
        self._place = place
        self._losses = losses
        self._page = page_type(as_type)
        self._follow = place.get("follow", False)
        self._cursor = place.get("cursor")
        self._wait_for_topic = place.get("wait_for_topic", False)
        self._from_ts = _milliseconds(place.get("from_time"))
        self._end = place.get("to_seq")
        self.position = place.get("from_seq", 0)
        self.epoch: int | None = None
        self._begun = False
        self.over = False

    async def next_items(self) -> list[Item_co] | None:
        """What comes next, at least one item; None when there is no more."""
        while not self.over:
            try:
                if not self._begun:
                    await self._begin()
                if self.epoch is None:
                    self.epoch = (await self._caller.send(calls.topic(self._topic))).epoch
                page = await self._caller.send(self._call())
            except TopicNotFound:
                await self._missing()
                continue
            items = self._take(page)
            if items:
                return items
        return None

    def close(self) -> None:
        self.over = True

    @staticmethod
    def seq_of(item: object) -> int | None:
        """The seq of an item: for a loss the end of its range, for a new topic its beginning."""
        match item:
            case Gap():
                return 0 if item.reason == "recreated" else item.last
            case Event():
                return item.seq
        return None

    async def commit(self, seq: int) -> None:
        """Remembers under the cursor's name that everything up to `seq` is done."""
        if self._cursor is None:
            raise InvalidRequest.in_field("cursor", "read with cursor=<name> to have something to commit to")
        await self._caller.send(calls.set_cursor(self._topic, self._cursor, seq))

    async def _begin(self) -> None:
        if self._cursor is not None:
            try:
                found = await self._caller.send(calls.cursor(self._topic, self._cursor))
            except CursorNotFound:
                pass  # nothing was committed yet
            else:
                self.position, self._from_ts = found.seq, None
        self._begun = True

    async def _missing(self) -> None:
        """The topic does not exist, or no longer. If it was made again at once, the next page finds it."""
        if self._wait_for_topic:
            await self._caller.port.pause(limits.CLIENT_TOPIC_POLL_S)
        elif self.epoch is None:
            raise TopicNotFound(self._topic)
        else:
            await self._caller.send(calls.topic(self._topic))

    def _call(self) -> Call[PageOfEvents]:
        place = self._place
        return calls.diff_as(
            self._page,
            self._topic,
            self.position,
            to_seq=self._end,
            from_ts=self._from_ts,
            limit=place.get("page_records", limits.DIFF_LIMIT_MAX),
            match=place.get("tag"),
            node=place.get("node", ()),
            wait_ms=limits.CLIENT_FOLLOW_MS if self._follow else 0,
            epoch=self.epoch,
            include_tags=True,
            include_meta=place.get("include_meta", True),
        )

    def _take(self, page: PageOfEvents) -> list[Item_co]:
        items: list[Any] = []
        lost = page.tombstone
        if lost is not None:
            self._add_loss(items, Gap(lost.gap_from, lost.gap_to, lost.reason, self._topic))
            if lost.reason == "recreated":
                # Read it from its beginning, once its epoch is known: the next page may be of yet another topic.
                self.epoch = None
                self.position, self._from_ts = 0, None
                if "to_seq" not in self._place:
                    self._end = None
                return items
        for event in page.records:
            event.topic = self._topic
        items += page.records
        self.position, self._from_ts = page.next_from_seq, None
        if not self._follow and self._end is None:
            self._end = page.head_seq  # where a read that does not follow ends
        self.over = self._end is not None and self.position >= self._end
        return items

    def _add_loss(self, items: list[Any], gap: Gap) -> None:
        if self._losses == "raise":
            self.over = True
            raise LossMet(gap.topic, gap.first, gap.last, gap.reason)
        if self._losses == "yield":
            items.append(gap)


class Taken(Generic[Item_co]):
    """What iterators of both shells keep: the items that have come, and the last one handed out."""

    def __init__(self, source: "Source[Item_co]") -> None:
        self._source = source
        self._items: Iterator[Item_co] = iter(())
        self._last: Any = None

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration, also one that waits in another thread or task: as soon as its answer has come."""
        self._source.close()
        self._items = iter(())


class TakenOfTopic(Taken[Item_co]):
    """The same for one topic, which has a position that can be committed."""

    def __init__(self, reading: "Reading[Item_co]") -> None:
        super().__init__(reading)
        self._reading = reading

    @property
    def position(self) -> int | None:
        """The seq of the last item, or the end of the range if that was a loss. None before the first."""
        return self._reading.seq_of(self._last)

    async def _commit(self) -> None:
        if (seq := self.position) is not None:
            await self._reading.commit(seq)


def _milliseconds(moment: int | Moment | None) -> int | None:
    return moment if moment is None or isinstance(moment, int) else round(moment.timestamp() * 1000)
