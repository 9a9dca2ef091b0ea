"""Response structs leave out what is absent."""

import msgspec
import pytest

from topics.model.config import DEFAULT_CONFIG
from topics.wire.responses import ErrorBody, ErrorResponse, Performance, RecordOut, TopicPage, TopicState


def encoded(value: msgspec.Struct) -> object:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_a_record_leaves_out_node_tag_and_meta() -> None:
    assert encoded(RecordOut(1, 2, None)) == {"$seq": 1, "$ts": 2, "data": None}


def test_a_last_page_has_no_cursor() -> None:
    assert encoded(TopicPage([], Performance(0.0))) == {"topics": [], "performance": {"server_total_ms": 0.0}}


def test_a_log_has_no_queue_counters_and_null_for_times_that_never_were() -> None:
    state = TopicState("t", "log", 0, 1, 1, 0, 0, DEFAULT_CONFIG, 0, None, None, 7, Performance(0.0))
    shown = encoded(state)
    assert isinstance(shown, dict)
    assert "queue" not in shown
    assert (shown["last_write_ts"], shown["last_read_ts"]) == (None, None)


@pytest.mark.parametrize(
    ("response", "shown"),
    [
        (ErrorResponse(ErrorBody("c", "m")), {"error": {"code": "c", "message": "m"}}),
        (
            ErrorResponse(ErrorBody("c", "m", {"a": 1}), Performance(1.5)),
            {"error": {"code": "c", "message": "m", "detail": {"a": 1}}, "performance": {"server_total_ms": 1.5}},
        ),
    ],
)
def test_an_error_leaves_out_what_it_does_not_know(response: ErrorResponse, shown: object) -> None:
    assert encoded(response) == shown
