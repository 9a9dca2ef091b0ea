"""What a replay sends: which rows share a request, and their JSON."""

import json
from typing import Any

import pyarrow as pa
import pytest

from topics.spark.jobs.replay_parts import Parts, body_of

META = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("ts", pa.int64()),
        ("node", pa.string()),
        ("tag", pa.string()),
        ("meta", META),
        ("data", pa.string()),
    ]
)


def rows_of(*rows: dict[str, Any]) -> pa.RecordBatch:
    given = [{"seq": at, "ts": at * 10, "data": "{}"} | row for at, row in enumerate(rows, start=1)]
    return pa.RecordBatch.from_pylist(given, schema=SCHEMA)


def seqs(parts: list[pa.RecordBatch]) -> list[list[int]]:
    return [part.column("seq").to_pylist() for part in parts]


@pytest.mark.parametrize("step", [1, 3, 7, 20])
def test_parts_do_not_depend_on_how_rows_were_read(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics.limits.SPARK_CHUNK_RECORDS", 6)
    monkeypatch.setattr("topics.limits.SPARK_CHUNK_BYTES", 1000)
    rows = rows_of(*({"data": json.dumps("x" * (n * 37 % 900))} for n in range(20)))
    parts = Parts(timed=False)
    found: list[pa.RecordBatch] = []
    for at in range(0, 20, step):
        found += parts.add(rows.slice(at, step))
    found += parts.rest()
    assert seqs(found) == seqs([*(whole := Parts(timed=False)).add(rows), *whole.rest()])
    assert [seq for part in seqs(found) for seq in part] == [*range(1, 21)]
    assert all(part.num_rows == 1 or part.column("data").nbytes < 1100 for part in found)
    assert max(part.num_rows for part in found) > 1


def test_a_record_larger_than_a_request_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics.limits.SPARK_CHUNK_BYTES", 200)
    parts = Parts(timed=False)
    found = [*parts.add(rows_of({}, {"data": json.dumps("x" * 500)}, {}, {})), *parts.rest()]
    assert seqs(found) == [[1], [2], [3, 4]]


def test_with_a_speed_a_part_is_what_happened_at_one_time() -> None:
    parts = Parts(timed=True)
    rows = rows_of({"ts": 5}, {"ts": 5}, {"ts": 6}, {"ts": 8}, {"ts": 8})
    assert seqs([*parts.add(rows), *parts.rest()]) == [[1, 2], [3], [4, 5]]


@pytest.mark.parametrize(
    "rows",
    [
        [{"tag": "a"}, {"tag": "b"}],
        [{"tag": 'q"\\\n\x01ü'}, {"tag": None}, {"tag": ""}],
        [{"tag": "a", "node": None}, {"tag": None, "node": "n"}],
        [{"meta": [("own", "x"), ("replay_seq", "7")]}, {"meta": None}, {"meta": []}],
        [{"data": '{"a": 1.0,  "a":1e400}'}, {"data": "null"}, {"data": '"\\u00fc"'}],
    ],
)
def test_a_record_is_sent_as_it_was_with_where_it_comes_from(rows: list[dict[str, Any]]) -> None:
    body = body_of(rows_of(*rows), "archive", 'topic"')
    for at, (given, sent) in enumerate(zip(rows, json.loads(body), strict=True), start=1):
        origin = {"replay_archive": "archive", "replay_topic": 'topic"', "replay_seq": str(at), "replay_ts": f"{at}0"}
        kept = {name: value for name, value in given.get("meta") or () if name == "own"}
        assert sent.pop("meta") == kept | origin
        assert repr(sent.pop("data")) == repr(json.loads(given.get("data", "{}")))
        assert sent == {name: given[name] for name in ("tag", "node") if given.get(name) is not None}
        assert given.get("data", "{}").encode() in body
