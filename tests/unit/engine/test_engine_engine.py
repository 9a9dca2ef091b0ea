"""The engine's operations on topics: create, configure, list, delete; limits; who is told of changes."""

import pytest
from engine_on_a_fake_clock import TOPIC, EngineOnAFakeClock, record

from topics import limits
from topics.engine.engine import Write
from topics.engine.flow import EngineLimits
from topics.engine.topic import Topic
from topics.errors import InvalidRequest, Throttled, TopicFull, TopicNotEmpty, TopicNotFound
from topics.model.config import Discard, TopicConfigPatch


@pytest.fixture
def at() -> EngineOnAFakeClock:
    return EngineOnAFakeClock()


# Creating and configuring


def test_a_put_creates_once(at: EngineOnAFakeClock) -> None:
    first, created, _ = at.engine.put_topic(TOPIC, TopicConfigPatch(ttl_ms=5))
    second, created_again, _ = at.engine.put_topic(TOPIC, TopicConfigPatch())
    assert (created, created_again) == (True, False)
    assert second is first
    assert second.config.ttl_ms == 5


def test_a_write_creates_with_the_configuration_it_brings(at: EngineOnAFakeClock) -> None:
    appended = at.engine.append(TOPIC, Write([record()], config=TopicConfigPatch(cap_records=7)))
    assert appended.created
    assert appended.topic.config.cap_records == 7


def test_a_write_leaves_the_configuration_of_an_existing_topic(at: EngineOnAFakeClock) -> None:
    at.write(record())
    appended = at.engine.append(TOPIC, Write([record()], config=TopicConfigPatch(cap_records=7)))
    assert not appended.created
    assert appended.topic.config.cap_records == 0


def test_a_write_that_may_not_create_finds_no_topic(at: EngineOnAFakeClock) -> None:
    with pytest.raises(TopicNotFound) as refused:
        at.engine.append(TOPIC, Write([record()], create=False))
    assert refused.value.detail == {"topic": TOPIC}
    assert len(at.engine.topics) == 0


def test_a_write_that_may_not_create_appends_to_what_exists(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch())
    assert at.engine.append(TOPIC, Write([record()], create=False)).first_seq == 1


def test_a_refused_write_creates_no_topic(at: EngineOnAFakeClock) -> None:
    with pytest.raises(InvalidRequest):
        at.engine.append(TOPIC, Write([record(), record(tag="x" * 257)]))
    assert at.engine.find_topic(TOPIC) is None
    assert at.write(record()).topic.topic_id == 1


@pytest.mark.parametrize("name", ["", "-x", "a/b", "a" * 256])
def test_a_bad_name_is_refused_everywhere(at: EngineOnAFakeClock, name: str) -> None:
    with pytest.raises(InvalidRequest):
        at.engine.put_topic(name, TopicConfigPatch())
    with pytest.raises(InvalidRequest):
        at.engine.append(name, Write([record()]))
    with pytest.raises(InvalidRequest):
        at.engine.topic(name)
    with pytest.raises(InvalidRequest):
        at.engine.delete_topic(name)
    with pytest.raises(InvalidRequest):
        at.engine.delete_records(name, 1, None)


def test_a_missing_topic_is_not_found(at: EngineOnAFakeClock) -> None:
    with pytest.raises(TopicNotFound):
        at.engine.topic(TOPIC)
    with pytest.raises(TopicNotFound):
        at.read()
    with pytest.raises(TopicNotFound):
        at.engine.delete_records(TOPIC, 1, None)


# Deleting a topic


def test_a_deleted_topic_is_gone_with_its_totals(at: EngineOnAFakeClock) -> None:
    at.fill(3)
    at.fill(2, topic="other")
    assert at.engine.delete_topic(TOPIC).deleted
    at.check_totals()
    assert at.engine.state.records_live == 2
    assert at.engine.find_topic(TOPIC) is None


def test_deleting_what_is_not_there_is_no_error(at: EngineOnAFakeClock) -> None:
    assert not at.engine.delete_topic(TOPIC).deleted


def test_a_topic_that_holds_records_is_spared_if_asked(at: EngineOnAFakeClock) -> None:
    at.fill(2)
    with pytest.raises(TopicNotEmpty) as refused:
        at.engine.delete_topic(TOPIC, if_empty=True)
    assert refused.value.detail == {"topic": TOPIC, "count": 2}
    assert at.topic.log.count == 2


def test_a_topic_whose_records_have_expired_is_empty(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=100))
    at.fill(2)
    at.clock.advance(101)
    assert at.engine.delete_topic(TOPIC, if_empty=True).deleted
    at.check_totals()


def test_a_recreated_topic_is_another_one(at: EngineOnAFakeClock) -> None:
    before = at.write(record(), key="k").topic
    at.engine.delete_topic(TOPIC)
    after = at.write(record(), key="k")
    assert after.first_seq == 1
    assert not after.deduped
    assert after.topic.topic_id > before.topic_id
    assert (before.deleted, after.topic.deleted) == (True, False)


def test_ids_differ_between_topics(at: EngineOnAFakeClock) -> None:
    assert at.write(record(), topic="a").topic.topic_id != at.write(record(), topic="b").topic.topic_id


# Recency


def test_a_touch_sets_the_time_of_the_last_read(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch())
    assert at.engine.topic(TOPIC).last_read_ts is None
    at.clock.advance(5)
    assert at.engine.topic(TOPIC, touch=True).last_read_ts == at.clock.now_ms()


def test_a_read_sets_the_time_of_the_last_read(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch())
    at.read()
    assert at.topic.last_read_ts == at.clock.now_ms()


def test_a_write_sets_the_time_of_the_last_write(at: EngineOnAFakeClock) -> None:
    assert at.engine.put_topic(TOPIC, TopicConfigPatch()).topic.last_write_ts is None
    at.clock.advance(7)
    at.write(record())
    assert (at.topic.last_write_ts, at.topic.last_read_ts) == (at.clock.now_ms(), None)


# Listing


def test_pages_follow_each_other_without_gaps(at: EngineOnAFakeClock) -> None:
    names = [f"t{number}" for number in range(5)]
    for name in names:
        at.configure(TopicConfigPatch(), topic=name)
    first = at.engine.page_of_topics("", ("",), 2)
    second = at.engine.page_of_topics(first.last_name, ("",), 2)
    third = at.engine.page_of_topics(second.last_name, ("",), 2)
    assert [[topic.name for topic in page.topics] for page in (first, second, third)] == [
        names[:2],
        names[2:4],
        names[4:],
    ]
    assert [page.more for page in (first, second, third)] == [True, True, False]


def test_a_page_that_just_fits_is_the_last(at: EngineOnAFakeClock) -> None:
    for name in ("a", "b"):
        at.configure(TopicConfigPatch(), topic=name)
    assert not at.engine.page_of_topics("", ("",), 2).more


def test_listing_shows_what_has_expired_as_gone(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(ttl_ms=10))
    at.fill(2)
    at.clock.advance(11)
    assert at.engine.page_of_topics("", ("",), 10).topics[0].log.count == 0
    at.check_totals()


# Instance-wide caps


def test_the_number_of_topics_is_capped() -> None:
    at = EngineOnAFakeClock(topics_max=1)
    at.write(record())
    for refusing in (
        lambda: at.engine.put_topic("other", TopicConfigPatch()),
        lambda: at.engine.append("other", Write([record()])),
    ):
        with pytest.raises(Throttled) as refused:
            refusing()
        assert refused.value.detail == {"limit": "max_topics", "max": 1}
        assert refused.value.retry_after_s == limits.RESOURCE_RETRY_AFTER_S
    at.write(record())
    at.check_totals()
    at.engine.delete_topic(TOPIC)
    assert at.write(record(), topic="other").created


def test_no_cap_on_topics_is_zero() -> None:
    at = EngineOnAFakeClock(topics_max=0)
    for number in range(3):
        at.write(record(), topic=f"t{number}")
    assert len(at.engine.topics) == 3


def test_the_bytes_of_all_topics_are_capped() -> None:
    size = EngineOnAFakeClock().write(record()).topic.log.bytes
    at = EngineOnAFakeClock(total_bytes_max=2 * size)
    at.write(record(), topic="a")
    at.write(record(), topic="b")
    with pytest.raises(Throttled) as refused:
        at.write(record(), topic="c")
    assert refused.value.detail == {"limit": "max_total_bytes", "max": 2 * size}
    assert at.engine.find_topic("c") is None
    at.check_totals()
    at.engine.delete_records("a", 2, None)
    assert at.write(record(), topic="c").created


def test_records_that_have_expired_do_not_count_towards_the_bytes_of_all() -> None:
    size = EngineOnAFakeClock().write(record()).topic.log.bytes
    at = EngineOnAFakeClock(total_bytes_max=size)
    at.configure(TopicConfigPatch(ttl_ms=10))
    at.write(record())
    at.clock.advance(11)
    assert at.write(record()).first_seq == 2


@pytest.mark.parametrize("cap", ["cap_bytes", "cap_records"])
def test_what_a_cap_takes_in_return_is_free(cap: str) -> None:
    """A bound on all bytes that one topic fills, and whose oldest records make room for the next."""
    size = EngineOnAFakeClock().write(record()).topic.log.bytes
    at = EngineOnAFakeClock(total_bytes_max=10 * size)
    at.configure(TopicConfigPatch(**{cap: 10 * size if cap == "cap_bytes" else 10}))  # type: ignore[arg-type]
    for count in (1, 3, 10, 7, 2):
        for _ in range(5):
            at.write(*[record()] * count)
            assert at.engine.state.bytes_live <= 10 * size
    assert at.topic.log.count == 10
    with pytest.raises(Throttled):
        at.write(record(), topic="another")
    if cap == "cap_records":
        with pytest.raises(Throttled):
            at.write(record(b'"larger than what makes room for it"'))


def test_what_discards_nothing_makes_no_room() -> None:
    size = EngineOnAFakeClock().write(record()).topic.log.bytes
    at = EngineOnAFakeClock(total_bytes_max=2 * size)
    at.configure(TopicConfigPatch(cap_bytes=2 * size, discard=Discard.REJECT))
    at.fill(2)
    with pytest.raises(TopicFull):
        at.write(record())


def test_the_defaults_bound_topics_and_leave_bytes_free() -> None:
    assert (EngineLimits().topics_max, EngineLimits().total_bytes_max) == (100_000, 0)


# Changes


def changes_of(at: EngineOnAFakeClock) -> list[tuple[str, int, bool]]:
    """What is told of changes from now on: the topic's name, its head at that moment, and whether it is gone."""
    told: list[tuple[str, int, bool]] = []

    def note(topic: Topic) -> None:
        told.append((topic.name, topic.log.head_seq, topic.deleted))

    at.engine.state.on_change = note
    return told


def test_an_append_is_told_once_it_can_be_read(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch())
    told = changes_of(at)
    at.write(record(), record())
    at.write(record())
    at.write(record(), topic="other")
    assert told == [(TOPIC, 2, False), (TOPIC, 3, False), ("other", 1, False)]


def test_the_end_of_a_topic_is_told(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch())
    told = changes_of(at)
    at.engine.delete_topic(TOPIC)
    assert told == [(TOPIC, 0, True)]


def test_a_refused_or_repeated_write_is_not_told(at: EngineOnAFakeClock) -> None:
    at.configure(TopicConfigPatch(cap_records=1, discard=Discard.REJECT))
    at.write(record(), key="k")
    told = changes_of(at)
    at.write(record(), key="k")
    with pytest.raises(InvalidRequest):
        at.write()
    with pytest.raises(TopicFull):
        at.write(record())
    assert told == []


def test_a_configuration_is_not_told(at: EngineOnAFakeClock) -> None:
    told = changes_of(at)
    at.configure(TopicConfigPatch())
    at.configure(TopicConfigPatch(ttl_ms=5))
    assert told == []
