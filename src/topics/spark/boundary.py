"""Where a read begins and ends: the same for all topics, by topic, or by time.

Offsets may also be written as for Kafka: a topic is one log, so its only partition is 0.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from topics.spark.errors import InvalidOption
from topics.spark.option_values import Given, instant_ms

EARLIEST = -2
LATEST = -1
KAFKA_PARTITION = "0"

_OFFSETS = 'is earliest, latest, or a JSON object such as {"orders": 17}'
_TIMES = 'is a JSON object such as {"orders": 1700000000000} or {"orders": "2026-11-18T09:30:00Z"}'


@dataclass(frozen=True, slots=True)
class Boundary:
    """One end of a read. `everywhere` (EARLIEST or LATEST) and `ts` (ms) hold for all topics; `seqs` and `times` (ms)
    set it topic by topic.

    As in Spark's Kafka source, a starting seq is the first one read, an ending seq the first one not read.
    """

    everywhere: int
    seqs: Mapping[str, int] = field(default_factory=dict)
    ts: int | None = None
    times: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_by_time(self) -> bool:
        return self.ts is not None or bool(self.times)


def boundary_of(given: Given, side: str, default: int, *, batch: bool, topics: tuple[str, ...]) -> Boundary:
    """`side` is starting or ending. `topics` are those subscribed by name: a JSON object must name each of them."""
    offsets, ts, times = f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    given.require_alone(ts, offsets)
    given.require_alone(times, offsets)
    given.require_alone(times, ts)
    if (text := given.get(ts)) is not None:
        return Boundary(default, ts=instant_ms(ts, text))
    if (text := given.get(times)) is not None:
        by_topic = _by_topic(times, text, topics, _TIMES)
        return Boundary(default, times={topic: instant_ms(times, value) for topic, value in by_topic.items()})
    text = given.get(offsets)
    if text is None:
        return Boundary(default)
    refused = LATEST if side == "starting" else EARLIEST
    match text.strip().lower():
        case "earliest" | "latest" as word:
            everywhere = EARLIEST if word == "earliest" else LATEST
            if everywhere == refused and batch:
                raise InvalidOption(offsets, f"a batch query that has {word} here would read nothing")
            return Boundary(everywhere)
    by_topic = _by_topic(offsets, text, topics, _OFFSETS)
    return Boundary(default, _seqs(offsets, by_topic, refused if batch else None))


def _by_topic(option: str, text: str, topics: tuple[str, ...], form: str) -> dict[str, object]:
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: _named_once(option, pairs))
    except ValueError:
        raise InvalidOption(option, form) from None
    if not isinstance(found, dict):
        raise InvalidOption(option, form)
    for topic in found:
        if topics and topic not in topics:
            raise InvalidOption(option, f'"{topic}" is not subscribed')
    if missing := sorted(set(topics) - set(found)):
        raise InvalidOption(option, f'"{missing[0]}" is subscribed but not in it; name every topic')
    return {topic: _of_partition(option, topic, value) for topic, value in found.items()}


def _of_partition(option: str, topic: str, value: object) -> object:
    """The value itself, or the one inside Kafka's `{"0": value}`. Kafka counts from 0; seqs begin at 1."""
    if not isinstance(value, dict):
        return value
    if list(value) != [KAFKA_PARTITION]:
        raise InvalidOption(option, f'"{topic}" has {json.dumps(value)}; a topic is one log: its only partition is 0')
    inner = value[KAFKA_PARTITION]
    return 1 if type(inner) is int and inner == 0 else inner


def _seqs(option: str, by_topic: Mapping[str, object], refused: int | None) -> dict[str, int]:
    seqs = {}
    for topic, seq in by_topic.items():
        if type(seq) is not int or seq == 0 or seq < EARLIEST or seq == refused:
            raise InvalidOption(option, f'"{topic}" has {json.dumps(seq)}; use a seq, -2 for earliest, -1 for latest')
        seqs[topic] = seq
    return seqs


def _named_once(option: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    named: dict[str, object] = {}
    for topic, seq in pairs:
        if topic in named:
            raise InvalidOption(option, f'"{topic}" is in it twice')
        named[topic] = seq
    return named
