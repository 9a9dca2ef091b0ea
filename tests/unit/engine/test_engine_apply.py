"""What operations change, and that none is forgotten anywhere."""

import ast
import inspect
from typing import get_args

import pytest
from engine_on_a_fake_clock import record
from logged_engine import LoggedEngine, shown
from msgspec import NODEFAULT, convert, structs

from topics.engine import apply as apply_module
from topics.engine.apply import apply
from topics.engine.state import State
from topics.model.config import Durability, TopicConfigPatch, TopicType
from topics.model.operation import (
    Appended,
    ClockReached,
    Control,
    Happened,
    Operation,
    RecordsDeleted,
    TopicCreated,
    WriteEnd,
)
from topics.model.record import Batch
from topics.storage.operation_codec import KINDS, encode

KINDS_OF_OPERATIONS: tuple[type, ...] = get_args(Operation)


def named_in(module: object) -> set[str]:
    """The operations a module tells apart, by `match` or `isinstance`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):  # type: ignore[arg-type]
        if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name):
            names.add(node.cls.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            names.update(each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name))
    return names


def test_every_operation_is_in_the_three_places_it_has_to_be_in() -> None:
    """`model/operation.py` says what it is, `engine/apply.py` what it changes, `storage/operation_codec.py` how it is
    written. Whoever adds one has to look nowhere else for a list of them."""
    described = {kind for kind in _all_of(Happened) if not _all_of(kind)} | {Appended}
    assert described == set(KINDS_OF_OPERATIONS)
    assert {kind.__name__ for kind in KINDS_OF_OPERATIONS} <= named_in(apply_module)
    assert set(KINDS) == set(get_args(Control)) == set(KINDS_OF_OPERATIONS) - {Appended}
    assert len({structs_tag(kind) for kind in KINDS}) == len(KINDS), "the body says which operation it is"


def _all_of(kind: type) -> set[type]:
    children: list[type] = kind.__subclasses__()
    return {each for child in children for each in (child, *_all_of(child))}


def structs_tag(kind: type) -> object:
    return kind.__struct_config__.tag  # type: ignore[attr-defined]


def some(kind: type) -> Operation:
    """An operation of this kind, on topic 7, with whatever its fields may be."""
    if kind is Appended:
        return Appended(7, 1, Batch([b"{}"], [2], [None], [None], [0], 2, [b"0"]), (5,), (WriteEnd(1),))
    samples = {"name": "t", "config": {}, "settings": {}, "grants": [], "seqs": [1], "routers": [1], "topic_ids": [7]}
    fields = {
        field.encode_name: samples.get(field.name, 1)
        for field in structs.fields(kind)
        if field.default is NODEFAULT and field.default_factory is NODEFAULT
    }
    found: Operation = convert({**fields, "is": structs_tag(kind), "topic_id": 7, "ts": 5}, kind)
    return found


@pytest.mark.parametrize("kind", KINDS_OF_OPERATIONS)
def test_every_operation_can_be_written(kind: type) -> None:
    assert len(encode([some(kind)], durable=True)) == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS_OF_OPERATIONS if kind is not TopicCreated])
def test_an_operation_on_a_topic_that_is_gone_changes_nothing(kind: type) -> None:
    """A log that is read may say what happened to it before another one says that it was deleted."""
    state = State()
    assert apply(state, some(kind)) == 0
    assert (len(state.topics), len(state.routers), state.changed, state.records_live) == (0, 0, {}, 0)


def test_an_operation_takes_first_what_the_ttl_says_is_gone_by_then() -> None:
    at = LoggedEngine()
    topic = at.make("t", ttl_ms=10)
    at.put("t", 1)
    apply(at.engine.state, RecordsDeleted(topic_id=topic.topic_id, ts=at.clock.now_ms() + 11, before_seq=2))
    assert (topic.log.count, topic.log.ttl_lost_seq) == (0, 1), "its TTL took it, not the delete"


def test_the_clock_takes_from_those_topics_it_names() -> None:
    at = LoggedEngine()
    topics = [at.make(name, ttl_ms=10) for name in "abc"]
    for name in "abc":
        at.put(name, 1)
    ids = [topic.topic_id for topic in topics[:2]]
    apply(at.engine.state, ClockReached(ts=at.clock.now_ms() + 11, topic_ids=[*ids, 99]))
    assert [topic.log.count for topic in topics] == [0, 0, 1]


def test_writes_a_log_hands_over_together_are_taken_one_after_the_other_where_a_bound_counts() -> None:
    """A cap takes the oldest after each; a TTL takes what is too old at the time of each."""
    at = LoggedEngine()
    at.make("t", cap_records=3, ttl_ms=10)
    for value in range(6):
        at.put("t", value, value)
        at.clock.advance(4)
    (together,) = [each for each in at.log() if isinstance(each, Appended)]
    assert len(together.writes) == 6
    assert shown(at.folded()) == shown(at.engine.state)


def test_the_same_log_gives_the_same_state() -> None:
    """Some of everything, live and folded."""
    at = LoggedEngine()
    at.make("t", Durability.FSYNC, cap_records=5)
    at.make("q", Durability.DISK, type=TopicType.QUEUE)
    at.make("d", Durability.DISK)
    at.route("t", "d")
    for value in range(4):
        at.write(
            record(b"%d" % value, tag="x" if value % 2 else None, meta=b"{}"), record(), topic="t", key=f"k{value}"
        )
        at.put("q", value)
        at.put("d", value)
        at.journal.sync()
    at.engine.put_cursor("t", "c", 3)
    at.engine.delete_records("q", 2, None)
    at.journal.sync()
    at.engine.put_topic("d", TopicConfigPatch(ttl_ms=100))
    at.journal.sync()
    at.put("d", 9)
    at.clock.advance(101)
    at.engine.expire_due()
    at.engine.forward_pending()
    at.put("d", 10)
    at.engine.delete_topic("q")
    at.journal.sync()
    assert shown(at.folded()) == shown(at.engine.state)
