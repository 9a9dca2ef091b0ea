"""The keys a topic remembers, and for how long."""

from topics.engine.idempotency import IdempotencyKeys
from topics.engine.producers import Mark
from topics.model.producer import RememberedWrite, producer_key

WINDOW_MS = 100


def keys_with(key: str, at_ms: int) -> IdempotencyKeys:
    keys = IdempotencyKeys()
    keys.remember(key, first_seq=7, count=2, now_ms=at_ms)
    return keys


def test_a_key_is_found_until_the_last_millisecond_of_its_window() -> None:
    assert keys_with("k", 1000).find("k", 1099, WINDOW_MS) == RememberedWrite(7, 2, 1000)


def test_a_key_is_forgotten_when_its_window_has_passed() -> None:
    assert keys_with("k", 1000).find("k", 1100, WINDOW_MS) is None


def test_another_key_is_not_found() -> None:
    assert keys_with("k", 1000).find("K", 1000, WINDOW_MS) is None


def test_a_window_of_zero_remembers_nothing() -> None:
    assert keys_with("k", 1000).find("k", 1000, 0) is None


def test_a_key_past_its_window_can_be_used_anew() -> None:
    keys = keys_with("k", 1000)
    assert keys.find("k", 1100, WINDOW_MS) is None
    keys.remember("k", first_seq=9, count=1, now_ms=1100)
    assert keys.find("k", 1199, WINDOW_MS) == RememberedWrite(9, 1, 1100)


def test_a_clock_that_steps_back_makes_no_key_live_longer() -> None:
    keys = keys_with("k", 1000)
    assert keys.find("other", 1050, WINDOW_MS) is None
    keys.remember("late", first_seq=9, count=1, now_ms=500)
    assert keys.find("late", 1099, WINDOW_MS) == RememberedWrite(9, 1, 1000)
    assert keys.find("late", 1100, WINDOW_MS) is None


def test_a_wider_window_finds_a_key_again_that_was_not_yet_forgotten() -> None:
    assert keys_with("k", 1000).find("k", 1150, 200) == RememberedWrite(7, 2, 1000)


def test_a_key_behind_many_others_is_forgotten_as_exactly() -> None:
    keys = IdempotencyKeys()
    for number in range(50):
        keys.remember(str(number), number, 1, now_ms=1000)
    assert keys.find("49", 1099, WINDOW_MS) == RememberedWrite(49, 1, 1000)
    assert keys.find("49", 1100, WINDOW_MS) is None


def test_keys_past_their_window_give_their_memory_back_without_being_asked_for() -> None:
    keys = IdempotencyKeys()
    for number in range(100):
        keys.remember(str(number), number, 1, now_ms=1000)
    for number in range(10):
        assert keys.find("new", 2000 + number, WINDOW_MS) is None
    assert len(keys) == 0


def test_keys_of_producers_and_of_clients_come_back_as_they_were() -> None:
    keys = keys_with(producer_key("p", 5, "h"), 1000)
    keys.remember("k", 9, 1, now_ms=1000)
    again = IdempotencyKeys()
    for key, write in keys.items():
        again.restore(key, write)
    assert list(again.items()) == list(keys.items())
    assert len(again) == 2
    assert again.producers.find("p") == Mark(5, "h", RememberedWrite(7, 2, 1000))


def test_restoring_an_older_write_of_a_producer_changes_nothing() -> None:
    keys = keys_with(producer_key("p", 5, "h"), 1000)
    keys.restore(producer_key("p", 4, "g"), RememberedWrite(6, 1, 999))
    assert list(keys.items()) == [(producer_key("p", 5, "h"), RememberedWrite(7, 2, 1000))]


def test_keys_of_writes_in_memory_only_are_left_out_of_what_outlives_the_process() -> None:
    keys = keys_with("k", 1000)
    keys.remember("in memory", 20, 1, 1000, resident_from=15)
    keys.remember(producer_key("p", 1, "h"), 21, 1, 1000, resident_from=15)
    assert [key for key, _ in keys.items(resident_from=15)] == ["k"]
    assert len(list(keys.items())) == 3
