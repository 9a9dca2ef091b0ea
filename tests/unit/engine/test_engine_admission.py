"""What a write must satisfy, and the columns made from it."""

import json

import pytest
from engine_on_a_fake_clock import record
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from topics import limits
from topics.engine import admission
from topics.engine.admission import Prepared, WriteLimits, admit, byte_length, prepare
from topics.errors import BatchTooLarge, InvalidRequest, RecordTooLarge, TopicsError
from topics.model.record import RECORD_OVERHEAD_BYTES, Batch, NewRecord

BOUNDS = WriteLimits()


def admitted(*records: NewRecord, node: str | None = None, bounds: WriteLimits = BOUNDS) -> Batch:
    return admit(list(records), node, first_seq=5, ts=1000, bounds=bounds)


def refused_field(*records: NewRecord, node: str | None = None, bounds: WriteLimits = BOUNDS) -> object:
    with pytest.raises(InvalidRequest) as refused:
        admitted(*records, node=node, bounds=bounds)
    return refused.value.detail["field"]


def test_seqs_run_on_from_the_first() -> None:
    assert admitted(record(b"1"), record(b"2")).fragments == [
        b'{"$seq":5,"$ts":1000,"data":1}',
        b'{"$seq":6,"$ts":1000,"data":2}',
    ]


def test_payloads_are_kept_byte_for_byte() -> None:
    data, meta = rb'{"b": 1.0,"a":[1e400,  "\u0041\/"], "b":2}', b'{"k" : "\\u0041"}'
    assert admitted(record(data, meta=meta)).fragments == [
        b'{"$seq":5,"$ts":1000,"data":' + data + b',"meta":' + meta + b"}"
    ]


def test_the_position_of_meta_is_where_it_can_be_cut() -> None:
    batch = admitted(record(b'{"meta":1}', node="n", meta=b"{}"))
    assert batch.fragments[0][: batch.meta_at[0]] + b"}" == b'{"$seq":5,"$ts":1000,"$node":"n","data":{"meta":1}}'


def test_a_meta_of_null_is_none() -> None:
    batch = admitted(record(b"1", meta=b"null"))
    assert batch.fragments == [b'{"$seq":5,"$ts":1000,"data":1}']
    assert list(batch.meta_at) == [0]


def test_a_records_node_wins_over_the_writes() -> None:
    assert admitted(record(node="own"), record(), node="default").nodes == ["own", "default"]


def test_a_node_is_escaped_in_the_text() -> None:
    fragment = admitted(record(node='a"b')).fragments[0]
    assert json.loads(fragment)["$node"] == 'a"b'


def test_the_tag_is_a_column_and_not_in_the_text() -> None:
    batch = admitted(record(tag="x"))
    assert batch.tags == ["x"]
    assert b"tag" not in batch.fragments[0]


def test_a_size_counts_data_meta_tag_node_and_the_frame() -> None:
    """As the disk has it: a byte stands between data and meta."""
    batch = admitted(record(b"12345", tag="tä", node="n", meta=b'{"a":""}'), record(b"1"))
    first = RECORD_OVERHEAD_BYTES + 5 + 3 + 1 + 1 + 8
    assert batch.sizes == [first, RECORD_OVERHEAD_BYTES + 1]
    assert batch.total_bytes == sum(batch.sizes)


def test_an_empty_write_is_refused() -> None:
    assert refused_field() == "records"


def test_a_batch_may_have_exactly_its_maximum() -> None:
    bounds = WriteLimits(batch_records_max=3)
    assert len(admitted(*[record()] * 3, bounds=bounds).fragments) == 3
    with pytest.raises(BatchTooLarge) as refused:
        admitted(*[record()] * 4, bounds=bounds)
    assert refused.value.detail == {"field": "records", "max": 3}


def test_data_and_meta_together_may_have_exactly_their_maximum() -> None:
    bounds = WriteLimits(record_bytes_max=10)
    assert admitted(record(b"12345678", meta=b"{}"), bounds=bounds).sizes == [RECORD_OVERHEAD_BYTES + 11]
    with pytest.raises(RecordTooLarge) as refused:
        admitted(record(), record(b"123456789", meta=b"{}"), bounds=bounds)
    assert refused.value.detail == {"field": "records[1]", "max": 10}


def test_a_tag_may_have_exactly_its_maximum_of_bytes() -> None:
    bounds = WriteLimits(tag_bytes_max=4)
    assert admitted(record(tag="ää"), bounds=bounds).tags == ["ää"]
    assert refused_field(record(), record(tag="ääa"), bounds=bounds) == "records[1].tag"


def test_a_node_may_have_exactly_its_maximum_of_bytes() -> None:
    bounds = WriteLimits(node_bytes_max=4)
    assert admitted(record(node="ää"), bounds=bounds).nodes == ["ää"]
    assert refused_field(record(node="aaaaa"), bounds=bounds) == "records[0].node"
    assert refused_field(record(node="n"), node="aaaaa", bounds=bounds) == "node"


def test_meta_may_have_exactly_its_maximum_of_bytes() -> None:
    bounds = WriteLimits(meta_bytes_max=10)
    assert admitted(record(meta=b'{"a":"bc"}'), bounds=bounds).meta_at[0] > 0
    assert refused_field(record(meta=b'{"a":"bcd"}'), bounds=bounds) == "records[0].meta"


def test_meta_may_have_exactly_its_maximum_of_keys() -> None:
    allowed = json.dumps({str(key): "" for key in range(limits.META_KEYS_MAX)}).encode()
    too_many = json.dumps({str(key): "" for key in range(limits.META_KEYS_MAX + 1)}).encode()
    assert admitted(record(meta=allowed)).meta_at[0] > 0
    assert refused_field(record(meta=too_many)) == "records[0].meta"


@pytest.mark.parametrize("meta", [b"[]", b'"x"', b"7", b"true"])
def test_meta_is_an_object(meta: bytes) -> None:
    assert refused_field(record(meta=meta)) == "records[0].meta"


def test_meta_that_is_nested_deeper_than_python_goes_is_refused() -> None:
    """From Python 3.13 on that is deeper than the bytes of a meta usually allow."""
    depth = 200_000
    deep = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
    assert refused_field(record(meta=deep), bounds=WriteLimits(meta_bytes_max=len(deep))) == "records[0].meta"


@pytest.mark.parametrize(
    "meta", [b"{}", b'{"a":1,"b":"1"}', b'{"a":null, "f" : 1.0}', b'{"a":{"b":["c", {"meta":1}]}}', b'{"a":1e400}']
)
def test_the_values_of_meta_are_any_json_and_stay_as_they_are(meta: bytes) -> None:
    batch = admitted(record(b"7", meta=meta))
    assert batch.fragments[0][batch.meta_at[0] :] == b',"meta":' + meta + b"}"


@pytest.mark.parametrize(("text", "length"), [("", 0), ("abc", 3), ("ä", 2), ("😀", 4)])
def test_lengths_are_those_of_the_utf_8(text: str, length: int) -> None:
    assert byte_length(text, 4, "tag") == length


TAGS = st.none() | st.text("aé", max_size=7)


@given(
    st.lists(
        st.tuples(st.sampled_from([b"1", b'"%d \xc3\xa9"', b"[" + b"1" * 40 + b"]"]), TAGS), min_size=1, max_size=5
    ),
    TAGS,
    st.sampled_from(["nothing", "meta", "node", "delay"]),
)
def test_a_batch_is_admitted_by_columns_as_it_is_record_by_record(
    given_records: list[tuple[bytes, str | None]], node: str | None, last_has: str
) -> None:
    records = [record(data, tag=tag) for data, tag in given_records]
    last = record(b"0")
    if last_has == "meta":
        last.meta = Raw(b'{"a":1}')
    elif last_has == "node":
        last.node = "own"
    elif last_has == "delay":
        last.delay_ms = 5
    records.append(last)
    bounds = WriteLimits(record_bytes_max=40, tag_bytes_max=6)
    assert outcome(records, node, bounds, columns_min=1) == outcome(records, node, bounds, columns_min=100)


METAS = [
    b"{}", b'{"a":1}', b'{"a" : "\xc3\xa9"}', rb'{"\u0041":1}', b'{"a":1,"b":2,"c":3}', b'{"a":1,"a":2,"a":3,"a":4}',
    b'{"a":"' + b"x" * 20 + b'"}', b"null", b"[]", b'"x"', b"7",
]  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(METAS), TAGS), min_size=1, max_size=4), TAGS)
def test_metas_are_admitted_by_columns_as_they_are_record_by_record(
    given_records: list[tuple[bytes, str | None]], node: str | None
) -> None:
    records = [record(b'"data"', meta=meta, tag=tag) for meta, tag in given_records]
    bounds = WriteLimits(record_bytes_max=34, meta_bytes_max=27, meta_keys_max=2, tag_bytes_max=6)
    assert outcome(records, node, bounds, columns_min=1) == outcome(records, node, bounds, columns_min=100)


def outcome(records: list[NewRecord], node: str | None, bounds: WriteLimits, columns_min: int) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "_COLUMNS_MIN", columns_min)
        try:
            return admitted(*records, node=node, bounds=bounds)
        except TopicsError as error:
            return type(error), error.message, error.detail


def test_metas_of_usual_records_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_checked_meta", None)
    batch = admitted(*[record(b"1", meta=b'{"a":"b"}')] * 50)
    assert {fragment[at:] for fragment, at in zip(batch.fragments, batch.meta_at, strict=True)} == {
        b',"meta":{"a":"b"}}'
    }


# A large write, ahead of its turn


def prepared(records: list[NewRecord], first_seq: int, ts: int) -> tuple[int, Prepared]:
    """The steps it took, and what came of it."""
    steps = prepare(records, "n", first_seq, ts, WriteLimits())
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            assert isinstance(found, Prepared)
            return count, found
        count += 1


def various_records(count: int) -> list[NewRecord]:
    return [
        record(
            b'"%d,\\"$ts\\":1"' % number, tag="t" if number % 2 else None, meta=b'{"a":1}' if number % 3 else b"null"
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(("first_seq", "ts"), [(7, 1000), (7, 12345), (99_999, 1000), (1, 0)])
def test_what_was_prepared_is_what_would_be_admitted_whatever_came_before_it(
    monkeypatch: pytest.MonkeyPatch, first_seq: int, ts: int
) -> None:
    monkeypatch.setattr(limits, "ADMIT_SLICE_RECORDS", 4)
    records = various_records(50)
    _, found = prepared(records, 7, 1000)
    assert found.at(first_seq, ts) == admit(records, "n", first_seq, ts, WriteLimits())


def test_a_step_of_preparing_is_bounded_in_records_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ADMIT_SLICE_RECORDS", 10)
    monkeypatch.setattr(limits, "ADMIT_SLICE_BYTES", 100)
    assert prepared([record(b"1")] * 95, 1, 0)[0] == 10
    assert prepared([record(b"1" * 60)] * 10, 1, 0)[0] == 5
    assert prepared([record(b"1" * 200)] * 10, 1, 0)[0] == 10


def test_a_record_refused_while_preparing_is_named_by_its_place_in_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ADMIT_SLICE_RECORDS", 3)
    with pytest.raises(InvalidRequest) as refused:
        prepared([*various_records(7), record(meta=b"[]")], 1, 0)
    assert refused.value.detail["field"] == "records[7].meta"
