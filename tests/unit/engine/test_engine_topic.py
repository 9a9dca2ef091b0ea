"""One topic: who waits for it, its TTL and its priority."""

from topics.engine.topic import Topic
from topics.model.config import DEFAULT_CONFIG, TopicConfig


def test_everybody_who_waits_is_woken_every_time() -> None:
    topic = Topic("t", 1, DEFAULT_CONFIG)
    woken: list[str] = []

    def one() -> None:
        woken.append("one")

    def other() -> None:
        woken.append("other")

    topic.wait(one)
    topic.wait(other)
    topic.wake_all()
    topic.wake_all()
    assert sorted(woken) == ["one", "one", "other", "other"]


def test_who_stops_waiting_is_not_woken() -> None:
    topic = Topic("t", 1, DEFAULT_CONFIG)
    woken: list[str] = []

    def one() -> None:
        woken.append("one")

    topic.wait(one)
    topic.stop_waiting(one)
    topic.stop_waiting(one)
    topic.wake_all()
    assert woken == []


def test_a_waiter_may_stop_waiting_while_it_is_woken() -> None:
    topic = Topic("t", 1, DEFAULT_CONFIG)
    woken: list[str] = []

    def once() -> None:
        woken.append("once")
        topic.stop_waiting(once)

    topic.wait(once)
    topic.wake_all()
    topic.wake_all()
    assert woken == ["once"]


def test_a_read_makes_a_topic_hot() -> None:
    topic = Topic("t", 1, DEFAULT_CONFIG)
    assert topic.effective_priority(1000) == 0
    topic.last_read_ts = 1000
    assert topic.effective_priority(1000) == 500


def test_a_manual_priority_is_the_topics_priority() -> None:
    assert Topic("t", 1, TopicConfig(priority=12)).effective_priority(1000) == 12
