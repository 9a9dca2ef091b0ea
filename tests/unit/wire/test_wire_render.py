"""The hot replies, rendered as bytes, are the documented ones: same fields, same values."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Struct

from topics.model.gap import Gap, GapReason
from topics.wire.render import diff_reply, tombstone, write_reply
from topics.wire.responses import DiffResponse, Performance, RecordOut, Tombstone, WriteResponse


def wire_names(struct: type[Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def written(first_seq: int = 5, count: int = 3, *, with_seqs: bool = True, created: bool = False) -> bytes:
    return write_reply(
        "jobs:eu",
        first_seq,
        count,
        99,
        created=created,
        deduped=not created,
        with_seqs=with_seqs,
        total_ms=0.4114,
        wal_append_ms=0.1,
        fsync_ms=0.0,
        throttle_wait_ms=2.0,
    )


def read(fragments: list[bytes], gap: Gap | None = None, next_from_seq: int = 7, head_seq: int = 9) -> bytes:
    return diff_reply("jobs:eu", fragments, gap, next_from_seq, head_seq, 4, scanned=12, cold_count=3, total_ms=0.3)


def test_a_write_reply_decodes_as_its_struct() -> None:
    assert msgspec.json.decode(written(), type=WriteResponse) == WriteResponse(
        topic="jobs:eu",
        first_seq=5,
        last_seq=7,
        head_seq=99,
        count=3,
        created=False,
        deduped=True,
        performance=Performance(0.411, wal_append_ms=0.1, fsync_ms=0.0, throttle_wait_ms=2.0),
        seqs=[5, 6, 7],
    )


def test_a_write_reply_has_exactly_the_fields_of_its_struct() -> None:
    reply = json.loads(written())
    assert set(reply) == wire_names(WriteResponse) - {"next_sequence"}  # which is only for producers
    assert set(reply["performance"]) <= wire_names(Performance)


@pytest.mark.parametrize("created", [True, False])
def test_a_write_reply_says_whether_it_created_and_whether_it_was_deduped(created: bool) -> None:
    reply = json.loads(written(created=created))
    assert (reply["created"], reply["deduped"]) == (created, not created)


@pytest.mark.parametrize(("count", "seqs"), [(1, [5]), (2, [5, 6]), (10_000, list(range(5, 10_005)))])
def test_a_write_reply_lists_every_seq(count: int, seqs: list[int]) -> None:
    assert json.loads(written(count=count))["seqs"] == seqs


def test_a_write_reply_can_leave_the_seqs_out() -> None:
    reply = msgspec.json.decode(written(with_seqs=False), type=WriteResponse)
    assert (reply.seqs, reply.first_seq, reply.last_seq) == (UNSET, 5, 7)


def test_the_reply_to_a_single_record_is_the_same_made_the_short_way() -> None:
    assert write_reply("jobs:eu", 12345, 1, None, 0.4114) == write_reply("jobs:eu", 12345, 1, 12345, 0.4114)


def test_a_write_reply_tells_a_producer_where_to_go_on_and_leaves_out_what_is_not_known() -> None:
    text = write_reply("t", 5, 1, 5, 0.4, throttle_wait_ms=None, next_sequence=8)
    reply = msgspec.json.decode(text, type=WriteResponse)
    assert (reply.next_sequence, reply.performance.throttle_wait_ms) == (8, UNSET)


FRAGMENTS = [
    b'{"$seq":5,"$ts":1000,"data":1.0}',
    b'{"$seq":7,"$ts":1001,"$node":"n","data":{"a":null},"meta":{"k":"v"},"$tag":"t"}',
]


@pytest.mark.parametrize("gap", [None, Gap(1, 3, GapReason.CAP)])
def test_a_diff_reply_decodes_as_its_struct(gap: Gap | None) -> None:
    expected = None if gap is None else Tombstone(1, 3, "cap", 3, 4, 9)
    assert msgspec.json.decode(read(FRAGMENTS, gap), type=DiffResponse) == DiffResponse(
        topic="jobs:eu",
        records=[RecordOut(5, 1000, 1.0), RecordOut(7, 1001, {"a": None}, "n", "t", {"k": "v"})],
        next_from_seq=7,
        head_seq=9,
        earliest_seq=4,
        caught_up=False,
        tombstone=expected,
        lag=2,
        performance=Performance(0.3, records_scanned=12, cold_segments_read=3),
    )


def test_a_diff_reply_has_exactly_the_fields_of_its_struct() -> None:
    reply: dict[str, Any] = json.loads(read(FRAGMENTS, Gap(1, 3, GapReason.TTL)))
    assert set(reply) == wire_names(DiffResponse)
    assert set(reply["tombstone"]) == wire_names(Tombstone)
    assert set(reply["records"][1]) == wire_names(RecordOut)
    assert set(reply["performance"]) <= wire_names(Performance)


def test_records_are_in_the_reply_byte_for_byte() -> None:
    assert b'"records":[' + b",".join(FRAGMENTS) + b"]" in read(FRAGMENTS)


@pytest.mark.parametrize(("next_from_seq", "caught_up", "lag"), [(9, True, 0), (8, False, 1), (0, False, 9)])
def test_a_reader_at_the_head_has_caught_up(next_from_seq: int, caught_up: bool, lag: int) -> None:
    reply = json.loads(read([], next_from_seq=next_from_seq))
    assert (reply["caught_up"], reply["lag"], reply["records"]) == (caught_up, lag, [])


@pytest.mark.parametrize("reason", list(GapReason))
def test_a_tombstone_is_rendered_with_the_watermarks(reason: GapReason) -> None:
    assert json.loads(tombstone(Gap(3, 5, reason), 6, 10)) == {
        "gap_from": 3,
        "gap_to": 5,
        "reason": reason.value,
        "missed_estimate": 3,
        "earliest_seq": 6,
        "head_seq": 10,
    }
