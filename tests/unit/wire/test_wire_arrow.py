"""An export as an Arrow stream: what a reader of Arrow gets out of it."""

import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from topics.wire.arrow import array_of, stream_end, stream_records, stream_start
from topics.wire.responses import ExportedGap, ExportEnd

WHOLE = ExportEnd(9, [ExportedGap(3, 6, "cap")])


def read(*parts: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(b"".join(parts))).read_all()


def test_records_come_with_all_they_have_and_payloads_as_they_are() -> None:
    fragments = [
        b'{"$seq":7,"$ts":1700000000123,"$node":"n","data":{"b": 1.0,\n "a":1e400},'
        b'"meta":{"k":"\xc3\xbc", "n": 1.0},"$tag":"t"}',
        b'{"$seq":9,"$ts":1700000000124,"data":null}',
    ]
    table = read(stream_start("orders"), stream_records(fragments), stream_end(ExportEnd(9, [])))
    assert table.schema.metadata == {b"topic": b"orders"}
    full, bare, end = table.to_pylist()
    assert full == {
        "seq": 7,
        "ts": datetime.fromtimestamp(1700000000, UTC).replace(microsecond=123000),
        "node": "n",
        "tag": "t",
        "meta": [("k", "ü"), ("n", "1.0")],
        "data": '{"b": 1.0,\n "a":1e400}',
        "kind": "record",
        "gap_from": None,
        "gap_to": None,
        "reason": None,
        "meta_json": '{"k":"ü", "n": 1.0}',
    }
    assert (bare["node"], bare["tag"], bare["meta"], bare["data"]) == (None, None, None, "null")
    assert (end["kind"], end["seq"], end["reason"]) == ("end", 9, None)


def test_the_last_batch_says_what_is_lost_and_where_to_go_on() -> None:
    tombstone, end = read(stream_start("t"), stream_end(WHOLE)).to_pylist()
    assert (tombstone["kind"], tombstone["seq"], tombstone["data"]) == ("tombstone", None, None)
    assert (tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"]) == (3, 6, "cap")
    assert (end["kind"], end["seq"], end["gap_from"], end["reason"]) == ("end", 9, None, None)


def test_an_early_end_has_its_reason() -> None:
    [end] = read(stream_start("t"), stream_end(ExportEnd(4, [], "the topic was deleted"))).to_pylist()
    assert (end["kind"], end["seq"], end["reason"]) == ("end", 4, "the topic was deleted")


def test_nothing_follows_the_end_of_the_stream() -> None:
    assert stream_end(WHOLE).endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", "", "żółw", "\U0001f422"], pa.string()),
        ([None, "a", None, "żółw", None, None, None, None, None, "b"], pa.string()),
        ([b"a", None, b"\xff"], pa.binary()),
        ([1, -(2**63), 2**63 - 1], pa.int64()),
        ([None, 127, -128], pa.int8()),
        ([None, None], pa.int32()),
        ([1.5, None], pa.float64()),
        ([[1], None], pa.list_(pa.int64())),
        ([], pa.string()),
        ([], pa.int64()),
    ],
)
def test_an_array_of_values_is_the_one_pyarrow_makes(values: list[object], kind: pa.DataType) -> None:
    array = array_of(values, kind)
    array.validate(full=True)
    assert array.equals(pa.array(values, kind))


def test_columns_are_made_without_pandas() -> None:
    program = (
        "import sys, pyarrow as pa\n"
        "from topics.wire.arrow import stream_records\n"
        """stream_records([b'{"$seq":1,"$ts":2,"$node":"n","data":3,"$tag":"t"}'])\n"""
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
