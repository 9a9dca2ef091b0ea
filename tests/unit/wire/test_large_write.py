"""A write decoded in parts is what it is in one go, or is left to that: its records, what is wrong, its warnings."""

import json
import random
from typing import Any

import msgspec
import pytest

from topics import limits
from topics.errors import InvalidRequest
from topics.wire import large_write
from topics.wire.large_write import LargeWrite
from topics.wire.live_requests import Command, decode_command, request_id_of
from topics.wire.requests import WriteRequest, decode, decode_leniently, decoder_of
from topics.wire.unknown_fields import UnknownFields

SLICE_BYTES = 200
PAYLOADS: list[Any] = [
    0,
    None,
    "x" * 40,
    "ü€😀" * 9,
    '},{"data":1',
    "\\",
    [{"data": 1}, {"data": 2}],
    {"records": [{"data": 1}, {"tag": "t"}]},
    [[[]], {"a": [1.5, True]}],
]


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECODE_SLICE_BYTES", SLICE_BYTES)
    monkeypatch.setattr(limits, "DECODE_CUT_BYTES_MAX", SLICE_BYTES)


Outcome = tuple[Any, list[str] | None]
"""The message, or the sentence that refuses it; and the warnings."""


def in_parts(body: bytes, kind: Any = WriteRequest) -> Outcome | None:
    """None if it has to be decoded in one go."""
    large: LargeWrite[Any] = LargeWrite(body, kind)
    steps = large.decode()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return None if end.value is None else (end.value, large.warnings)
        except InvalidRequest as error:
            return error.message, large.warnings


def in_one_go(body: bytes) -> Outcome:
    warnings = None
    try:
        try:
            return decode(body, WriteRequest), None
        except UnknownFields as unknown:
            warnings = unknown.warnings
            return decode_leniently(body, WriteRequest), warnings
    except InvalidRequest as error:
        return error.message, warnings


def same(found: Outcome, expected: Outcome) -> bool:
    """Compared as JSON, because a write with unknown fields is decoded into another type."""
    if isinstance(found[0], str) or isinstance(expected[0], str):
        return bool(found[0] == expected[0])
    same_message: bool = msgspec.json.encode(found[0], order="sorted") == msgspec.json.encode(
        expected[0], order="sorted"
    )
    return same_message and sorted(found[1] or ()) == sorted(expected[1] or ())


def random_record(choice: random.Random, unknown: float) -> dict[str, Any]:
    fields = [("data", choice.choice(PAYLOADS))]
    if choice.random() < 0.3:
        fields.append(("tag", choice.choice(["a", "ü", '"},{"data":'])))
    if choice.random() < 0.2:
        fields.append(("meta", {"k": choice.choice(PAYLOADS)}))
    if choice.random() < unknown:
        fields.append((choice.choice(["tagg", "other"]), choice.choice(PAYLOADS)))
    choice.shuffle(fields)
    return dict(fields)


def random_body(choice: random.Random) -> bytes:
    unknown = choice.choice([0, 0, 0.02, 0.5])
    records = [random_record(choice, unknown) for _ in range(choice.randrange(60))]
    fields: list[tuple[str, Any]] = [("records", records)]
    if choice.random() < 0.5:
        fields.append(("idempotency_key", "k]},{"))
    if choice.random() < 0.3:
        fields.append(("config", {"ttl_ms": 5, "ttl": 6} if choice.random() < unknown else {"ttl_ms": 5}))
    choice.shuffle(fields)
    separators = choice.choice([(",", ":"), (", ", ": "), (" ,\n ", "\t:\r")])
    return json.dumps(dict(fields), ensure_ascii=choice.random() < 0.5, separators=separators).encode()


def test_any_write_is_the_same_in_parts_and_in_one_go() -> None:
    choice = random.Random(14)
    decoded = warned = 0
    for _ in range(1500):
        body = random_body(choice)
        found = in_parts(body)
        assert found is None or same(found, in_one_go(body)), body
        decoded += found is not None
        warned += found is not None and found[1] is not None
    assert decoded > 800
    assert warned > 200


def test_what_is_wrong_with_a_damaged_write_is_named_as_in_one_go() -> None:
    choice = random.Random(15)
    sound = refused = 0
    for _ in range(4000):
        body = bytearray(random_body(choice))
        at = choice.randrange(len(body))
        match choice.randrange(3):
            case 0:
                body[at] = choice.choice(b'",[]{}:\\ \x0c\xc3x0')
            case 1:
                del body[at]
            case _:
                body[at:at] = body[at : at + choice.randrange(1, 200)]
        found, expected = in_parts(bytes(body)), in_one_go(bytes(body))
        assert found is None or same(found, expected), (bytes(body), found, expected)
        sound += found is not None and not isinstance(found[0], str)
        refused += found is not None and isinstance(found[0], str)
    assert sound > 400
    assert refused > 1000


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[%b],"records":[{"data":2}]}',
        b'{"records":[%b],"records":[]}',
        b'{"records":[%b],"r\\u0065cords":[{"data":2}]}',
        b'{"config":{"records":[%b]},"records":[{"data":2}]}',
        b'{"idempotency_key":"\\"records\\":[","records":[%b]}',
        b'{"records":[%b],"unknown":1}',
        b'{"records":[%b,]}',
        b'{"records":[%b]',
        b'{"records":[%b]}}',
        b'{"records":[%b\x0c]}',
        b'{"records":[%b],"node":"\xff"}',
        b'{"records":[%b,{"data":0,"tag":"the records before this one were decoded already"}]}',
    ],
)
def test_what_is_out_of_the_ordinary_is_as_it_is_in_one_go(body: bytes) -> None:
    body %= b",".join([b'{"data":1}'] * 100)
    found = in_parts(body)
    assert found is None or same(found, in_one_go(body))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (b'{"data":1,"tag":5}', "records[100].tag: expected str | null, got int"),
        (b'{"tag":"t"}', "records[100].data: is required"),
        (b'{"data":1;}', "the body is not valid JSON: JSON is malformed: expected ',' or '}' (byte 1121)"),
    ],
)
def test_a_wrong_record_far_behind_is_named_by_its_place_in_the_whole(wrong: bytes, message: str) -> None:
    good = b",".join([b'{"data":1}'] * 100)
    for behind in (b"", b"," + good):
        found = in_parts(b'{"records":[%b,%b%b]}' % (good, wrong, behind))
        assert found is not None
        assert found[0] == message


@pytest.mark.parametrize("wrong", [b'{"data":1,"other":2}', b'{"data":1,"tag":5}', b'{"data":}', b'{"data":"\xff"}'])
def test_no_step_decodes_more_than_a_slice_and_a_record(monkeypatch: pytest.MonkeyPatch, wrong: bytes) -> None:
    decoded: list[int] = []

    class Recording:
        def __init__(self, kind: Any) -> None:
            self._kind = kind

        def decode(self, text: bytes) -> Any:
            decoded.append(len(text))
            return decoder_of(self._kind).decode(text)

    monkeypatch.setattr(large_write, "decoder_of", Recording)
    around = len(large_write._MARK_RECORD) + len(b'{"records":[]}')
    good = [b'{"data":[1,2,3]}']
    for records in (good * 500, [*good * 250, wrong, *good * 250]):
        decoded.clear()
        assert in_parts(b'{"records":[%b]}' % b",".join(records)) is not None
        assert max(decoded[:-1], default=0) <= SLICE_BYTES + 20 + around
        assert decoded[-1] <= 2 * SLICE_BYTES + around


def test_records_longer_than_a_slice_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"records": [{"data": "x" * 2 * SLICE_BYTES}] * 5}).encode()
    assert in_parts(body) is None
    monkeypatch.setattr(limits, "DECODE_CUT_BYTES_MAX", 3 * SLICE_BYTES)
    assert in_parts(body) is not None


def test_a_large_command_is_decoded_in_parts_if_it_is_a_write() -> None:
    records = b",".join([b'{"data":"%b"}' % (b"x" * 20)] * 50)
    publish = b'{"op":"publish","topic":"t","request_id":"r","records":[%b]}' % records
    assert in_parts(publish, Command) == (decode_command(publish), None)
    assert in_parts(publish.replace(b'"op":"publish",', b""), Command) is None
    assert in_parts(publish.replace(b'"publish"', b'"subscribe"'), Command) is None


@pytest.mark.parametrize(
    "message",
    [
        b'{"op":"publish","topic":"t","request_id":"r","records":[%b]}',
        b'{"op":"publish","topic":"t","records":[%b],"request_id":"r"}',
        b'{"op":"publish","topic":"t","records":[%b,5],"request_id":"r"}',
        b'{"op":"publish","topic":"t","records":[%b}],"request_id":"r"}',
    ],
)
def test_the_outline_of_a_message_has_its_request_id(message: bytes) -> None:
    large: LargeWrite[Any] = LargeWrite(message % b",".join([b'{"data":[1]}'] * 100), Command)
    assert request_id_of(large.outline()) == "r"


def test_a_message_without_an_outline_has_no_request_id() -> None:
    for message in (b"", b"]", b'{"records":[5', b'{"request_id":"r"}'):
        large: LargeWrite[Any] = LargeWrite(message, Command)
        assert request_id_of(large.outline()) is None


def test_the_records_so_far_are_counted() -> None:
    body = b'{"records":[%b]}' % b",".join([b'{"data":1}'] * 200)
    large: LargeWrite[WriteRequest] = LargeWrite(body, WriteRequest)
    counts = list(large.decode())
    assert counts == sorted(counts)
    assert 150 < counts[-1] < 200
