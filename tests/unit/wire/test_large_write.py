"""A write decoded in parts is the write that is decoded at once, or is left to that."""

import json
import random
from typing import Any

import pytest

from topics import limits
from topics.errors import InvalidRequest
from topics.wire import large_write
from topics.wire.large_write import WRITES, decode_in_parts
from topics.wire.live_requests import COMMANDS, decode_command
from topics.wire.requests import WriteRequest, decode
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


def in_parts(body: bytes, decoder: Any = WRITES) -> Any:
    parts = decode_in_parts(body, decoder)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            return end.value


def at_once(body: bytes) -> WriteRequest | None:
    try:
        return decode(body, WriteRequest)
    except (InvalidRequest, UnknownFields):
        return None


def random_record(choice: random.Random) -> dict[str, Any]:
    fields = [("data", choice.choice(PAYLOADS))]
    if choice.random() < 0.3:
        fields.append(("tag", choice.choice(["a", "ü", '"},{"data":'])))
    if choice.random() < 0.2:
        fields.append(("meta", {"k": choice.choice(PAYLOADS)}))
    choice.shuffle(fields)
    return dict(fields)


def random_body(choice: random.Random) -> bytes:
    fields: list[tuple[str, Any]] = [("records", [random_record(choice) for _ in range(choice.randrange(60))])]
    if choice.random() < 0.5:
        fields.append(("idempotency_key", "k]},{"))
    if choice.random() < 0.3:
        fields.append(("config", {"ttl_ms": 5}))
    choice.shuffle(fields)
    separators = choice.choice([(",", ":"), (", ", ": "), (" ,\n ", "\t:\r")])
    return json.dumps(dict(fields), ensure_ascii=choice.random() < 0.5, separators=separators).encode()


def test_any_write_is_the_same_in_parts_and_at_once() -> None:
    choice = random.Random(14)
    decoded = 0
    for _ in range(1500):
        body = random_body(choice)
        found = in_parts(body)
        assert found is None or found == at_once(body), body
        decoded += found is not None
    assert decoded > 1000


def test_a_damaged_write_is_never_taken_for_a_sound_one() -> None:
    choice = random.Random(15)
    sound = 0
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
        found = in_parts(bytes(body))
        assert found is None or found == at_once(bytes(body)), bytes(body)
        sound += found is not None
    assert sound > 400


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
def test_what_is_out_of_the_ordinary_is_as_it_is_at_once(body: bytes) -> None:
    body %= b",".join([b'{"data":1}'] * 100)
    found = in_parts(body)
    assert found is None or found == at_once(body)


def test_no_step_decodes_more_than_a_slice_and_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    class Recording:
        def __init__(self, decoder: Any) -> None:
            self._decoder = decoder

        def decode(self, text: bytes) -> Any:
            decoded.append(len(text))
            return self._decoder.decode(text)

    monkeypatch.setattr(large_write, "_list_decoder", Recording(large_write._list_decoder))
    body = b'{"records":[%b]}' % b",".join([b'{"data":[1,2,3]}'] * 500)
    found = in_parts(body, Recording(WRITES))
    assert found is not None
    assert len(found.records) == 500
    assert len(decoded) > 30
    around = len(large_write._MARK_RECORD) + len(b'{"records":[]}')
    assert max(decoded[:-1]) <= SLICE_BYTES + 20
    assert decoded[-1] <= 2 * SLICE_BYTES + around


def test_a_large_command_is_decoded_in_parts_if_it_is_a_write() -> None:
    records = b",".join([b'{"data":"%b"}' % (b"x" * 20)] * 50)
    publish = b'{"op":"publish","topic":"t","request_id":"r","records":[%b]}' % records
    assert in_parts(publish, COMMANDS) == decode_command(publish)
    assert in_parts(publish.replace(b'"op":"publish",', b""), COMMANDS) is None
    assert in_parts(publish.replace(b'"publish"', b'"subscribe"'), COMMANDS) is None


def test_the_records_so_far_are_counted() -> None:
    body = b'{"records":[%b]}' % b",".join([b'{"data":1}'] * 200)
    counts = list(decode_in_parts(body, WRITES))
    assert counts == sorted(counts)
    assert 150 < counts[-1] < 200
