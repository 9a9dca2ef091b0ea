"""Extension: a producer that numbers its records has each of them appended once, however late it comes again."""

from typing import Any

import pytest

from conformance.client import Topic, assert_error


def write(topic: Topic, sequence: int, *payloads: int, name: str = "p") -> dict[str, Any]:
    return topic.write(*({"data": data} for data in payloads), producer={"name": name, "sequence": sequence})


def test_a_repeated_write_returns_its_seqs_and_appends_nothing(topic: Topic) -> None:
    topic.configure(idempotency_window_ms=0)
    first = write(topic, 0, 10, 11)
    again = write(topic, 0, 10, 11)
    assert (first["deduped"], first["seqs"]) == (False, [1, 2])
    assert (again["deduped"], again["seqs"], again["count"]) == (True, [1, 2], 2)
    assert topic.seqs() == [1, 2]


def test_a_write_before_the_last_one_appends_nothing_and_its_seqs_are_not_known_any_more(topic: Topic) -> None:
    write(topic, 0, 10)
    write(topic, 1, 11)
    again = write(topic, 0, 10)
    assert (again["deduped"], again["seqs"], again["count"], again["head_seq"]) == (True, [], 0, 2)
    assert again["first_seq"] == again["last_seq"]


def test_every_reply_tells_where_the_producer_stands(topic: Topic) -> None:
    assert write(topic, 5, 1, 2)["next_sequence"] == 7
    assert write(topic, 6, 2, 3)["next_sequence"] == 8
    assert write(topic, 5, 1)["next_sequence"] == 8
    assert "next_sequence" not in topic.write({"data": 1})


def test_another_record_under_the_last_number_is_refused_and_nothing_is_appended(topic: Topic) -> None:
    write(topic, 0, 10, 11)
    for sequence, payloads in ((0, (10, 12)), (1, (12,)), (0, (11, 12, 13))):
        body = {"records": [{"data": data} for data in payloads], "producer": {"name": "p", "sequence": sequence}}
        detail = assert_error(topic.api.post(topic.path, body), 409, "producer_differs")
        assert detail == {"topic": topic.name, "producer": "p", "sequence": 1}
    assert topic.seqs() == [1, 2]


def test_of_a_write_cut_in_another_way_only_what_is_new_is_appended(topic: Topic) -> None:
    write(topic, 0, 10, 11, 12)
    written = write(topic, 1, 11, 12, 13, 14)
    assert (written["deduped"], written["seqs"]) == (False, [4, 5])
    assert [record["data"] for record in topic.diff()["records"]] == [10, 11, 12, 13, 14]


def test_numbers_may_leave_gaps(topic: Topic) -> None:
    write(topic, 5, 1)
    assert write(topic, 2**40, 2)["deduped"] is False
    assert write(topic, 6, 3)["deduped"] is True


def test_producers_do_not_know_of_each_other_nor_of_keys(topic: Topic) -> None:
    write(topic, 3, 1, name="a")
    assert write(topic, 3, 1, name="b")["deduped"] is False
    assert topic.write({"data": 1}, idempotency_key="a")["deduped"] is False
    assert topic.seqs() == [1, 2, 3]


def test_a_recreated_topic_knows_no_producer(topic: Topic) -> None:
    write(topic, 0, 1)
    topic.remove()
    assert write(topic, 0, 1)["deduped"] is False


@pytest.mark.parametrize(
    ("producer", "field"),
    [
        ({"name": "p"}, "producer.sequence"),
        ({"sequence": 1}, "producer.name"),
        ({"name": "", "sequence": 1}, "producer.name"),
        ({"name": "p" * 257, "sequence": 1}, "producer.name"),
        ({"name": "a\0b", "sequence": 1}, "producer.name"),
        ({"name": "p", "sequence": -1}, "producer.sequence"),
        ({"name": "p", "sequence": 2**64}, "producer.sequence"),
        ({"name": "p", "sequence": "1"}, "producer.sequence"),
        ("p", "producer"),
    ],
)
def test_a_producer_that_makes_no_sense_is_refused(topic: Topic, producer: object, field: str) -> None:
    reply = topic.api.post(topic.path, {"records": [{"data": 1}], "producer": producer})
    assert_error(reply, 400, "invalid_request", field)
    assert not topic.exists()


@pytest.mark.parametrize("sequence", [0, 1])
def test_a_producer_writes_at_least_one_record(topic: Topic, sequence: int) -> None:
    write(topic, 0, 1)
    body = {"records": [], "producer": {"name": "p", "sequence": sequence}}
    assert_error(topic.api.post(topic.path, body), 400, "invalid_request", "records")


def test_the_last_number_is_a_64_bit_integer_too(topic: Topic) -> None:
    body = {"records": [{"data": 1}, {"data": 2}], "producer": {"name": "p", "sequence": 2**64 - 1}}
    assert_error(topic.api.post(topic.path, body), 400, "invalid_request", "producer.sequence")
    assert write(topic, 2**64 - 1, 1)["next_sequence"] == 2**64


def test_a_producer_and_a_key_contradict_each_other(topic: Topic) -> None:
    body = {"records": [{"data": 1}], "producer": {"name": "p", "sequence": 1}, "idempotency_key": "k"}
    assert_error(topic.api.post(topic.path, body), 400, "invalid_request")


def test_a_key_holds_no_nul(topic: Topic) -> None:
    reply = topic.api.post(topic.path, {"records": [{"data": 1}], "idempotency_key": "p\x001"})
    assert_error(reply, 400, "invalid_request")


def test_where_a_producer_stands_can_be_asked_for(topic: Topic) -> None:
    topic.configure()
    path = f"{topic.path}/producers/loader%2F3"
    unknown = topic.api.get(path).json
    assert (unknown["topic"], unknown["name"], unknown["next_sequence"]) == (topic.name, "loader/3", 0)
    write(topic, 5, 1, 2, name="loader/3")
    assert topic.api.get(path).json["next_sequence"] == 7


def test_a_producer_of_no_topic_or_with_no_possible_name_is_refused(topic: Topic) -> None:
    assert_error(topic.api.get(f"{topic.path}/producers/p"), 404, "topic_not_found")
    topic.configure()
    assert_error(topic.api.get(f"{topic.path}/producers/{'n' * 257}"), 400, "invalid_request")
    assert_error(topic.api.get(f"{topic.path}/producers/a%00b"), 400, "invalid_request")
