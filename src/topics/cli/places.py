"""Where reading begins: the topics that names and prefixes stand for, and the last records of each."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Any

from topics.cli.connection import overviews
from topics.client.events import Event, Gap

if TYPE_CHECKING:
    from topics.client.reading import Place
    from topics.client.sync_client import Client
    from topics.wire.overview import TopicOverview

Item = Event[Any] | Gap
WINDOW_GROWTH = 4


def is_pattern(name: str) -> bool:
    """`chat:*` stands for all topics whose names begin with `chat:`."""
    return name.endswith("*")


def meant(client: "Client", names: Sequence[str]) -> "dict[str, TopicOverview]":
    """Those of the named topics that exist. A plain name must exist; a prefix may match nothing yet."""
    found: dict[str, TopicOverview] = {}
    for name in names:
        if is_pattern(name):
            for page in overviews(client, name.removesuffix("*")):
                found |= {topic.topic: topic for topic in page.topics}
        else:
            # Asked for first: it tells what is wrong with a name that no overview has.
            client.topic(name)
            found |= {
                topic.topic: topic for page in overviews(client, name) for topic in page.topics if topic.topic == name
            }
    return found


def there(client: "Client", names: Sequence[str]) -> list[str]:
    """The names of those named topics that exist."""
    found: dict[str, None] = {}
    for name in names:
        prefix = name.removesuffix("*")
        known = (topic.topic for topic in client.topics(prefix))
        found |= dict.fromkeys(topic for topic in known if is_pattern(name) or topic == name)
    return list(found)


def last_of_all(client: "Client", topics: "Iterable[TopicOverview]", count: int, tag: str | None) -> list[Item]:
    """The last `count` records of all these topics together, in the order of time, with the losses between them.

    Topics written to last are read first: once there are `count` records, a topic whose last record is older than all
    of them has nothing to add.
    """
    found: list[tuple[int, int, Item]] = []
    times: list[int] = []
    for turn, topic in enumerate(sorted(topics, key=lambda topic: -(topic.last_ts or 0))):
        if len(times) >= count and (topic.last_ts or 0) < sorted(times)[-count]:
            break
        timed = list(_timed(last_records(client, topic, count, tag), topic.last_ts or 0))
        found += [(ts, turn, item) for ts, item in timed]
        times += [item.ts for _, item in timed if isinstance(item, Event)]
    found.sort(key=lambda entry: entry[0])  # stable: within a topic the order is that of seqs
    return _ending([item for _, _, item in found], count)


def from_place(
    client: "Client",
    topics: "Iterable[TopicOverview]",
    place: "Place",
) -> Iterator[Item]:
    """Everything from a seq or a time up to the current heads, in the order of time. A page of each topic is held."""
    readers = [
        _growing(client.read(topic.topic, **_ending_at(topic.head_seq, place))) for topic in topics if topic.head_seq
    ]
    return (item for _, item in merge(*readers, key=lambda entry: entry[0]))


def _ending_at(seq: int, place: "Place") -> "Place":
    ended = place.copy()
    ended["to_seq"] = seq
    return ended


def last_records(client: "Client", topic: "TopicOverview", count: int, tag: str | None) -> list[Item]:
    """The last `count` records of a topic, and what was lost between them. Deletes, and tags that do not match, leave
    holes: the window grows until it has enough, or has all."""
    window = max(count, 1)
    while True:
        # A window that reaches into a loss begins at the very start, so that the loss is shown with its whole range.
        from_seq = max(topic.head_seq - window, 0)
        if from_seq + 1 < topic.evict_floor:
            from_seq = 0
        place: Place = {"from_seq": from_seq, "to_seq": topic.head_seq}
        if tag is not None:
            place["tag"] = tag
        items: list[Item] = list(client.read(topic.topic, **place))
        if from_seq == 0 or sum(isinstance(item, Event) for item in items) >= count:
            return _ending(items, count)
        window *= WINDOW_GROWTH


def _ending(items: list[Item], count: int) -> list[Item]:
    """The last `count` records, and the losses right before the first of them."""
    left = count
    for at in range(len(items) - 1, -1, -1):
        if isinstance(items[at], Event):
            if left == 0:
                return items[at + 1 :]
            left -= 1
    return items


def _timed(items: list[Item], last_ts: int) -> Iterator[tuple[int, Item]]:
    """A loss has no time of its own, so it gets that of the record after it."""
    ts = last_ts
    timed: list[tuple[int, Item]] = []
    for item in reversed(items):
        ts = item.ts if isinstance(item, Event) else ts
        timed.append((ts, item))
    return reversed(timed)


def _growing(items: Iterable[Item]) -> Iterator[tuple[int, Item]]:
    """The same while following: a loss gets the time of the record before it."""
    ts = 0
    for item in items:
        ts = item.ts if isinstance(item, Event) else ts
        yield ts, item
