"""A large write, decoded in parts so that no step takes long. At once, 57 MiB of nested values take 0.1 s, and 57 MiB
of the smallest records 0.6 s.

JSON is read from left to right. If the text from `"records":[` to some `},{` is a list of records by itself, then a
decoder of the whole stands between two records there, too; so the lists of all parts in a row are the list of the
whole. The last part is decoded with everything around the records, behind a record that marks where the others were:
were `records` there twice, the mark would not be in the last of them, which counts.

Whatever is out of the ordinary is left to a decoder of the whole, which also knows how to name what is wrong.
"""

import re
from collections.abc import Generator
from typing import TypeVar

import msgspec

from topics import limits
from topics.model.record import NewRecord
from topics.wire.requests import WriteRequest

_SPACE = rb"[ \t\n\r]*"
_RECORDS = re.compile(rb'"records"' + _SPACE + rb":" + _SPACE + rb"\[")
_BETWEEN = re.compile(rb"\}" + _SPACE + rb"," + _SPACE + rb"(?=\{" + _SPACE + rb'"(?:data|tag|node|meta|delay_ms)")')
_MARK = "the records before this one were decoded already"
_MARK_RECORD = b'{"data":0,"tag":"%b"},' % _MARK.encode()

_list_decoder = msgspec.json.Decoder(list[NewRecord])
WRITES = msgspec.json.Decoder(WriteRequest)

Message = TypeVar("Message")


def decode_in_parts(body: bytes, decoder: "msgspec.json.Decoder[Message]") -> Generator[int, None, Message | None]:
    """Yields after each step, with the number of records so far. Returns the write, or None if it has to be decoded at
    once, or is none: `decoder` may know of others."""
    try:
        yield from _check_utf8(body)
        return (yield from _decode(body, decoder))
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None


def _check_utf8(body: bytes) -> Generator[int, None, None]:
    start = 0
    while start < len(body):
        end = start + limits.DECODE_SLICE_BYTES
        while end < len(body) and body[end] & 0xC0 == 0x80 and end > start + 1:
            end -= 1  # it does not end within a character
        part = body[start:end]
        if not part.isascii():
            part.decode()
        start = end
        yield 0


def _decode(body: bytes, decoder: "msgspec.json.Decoder[Message]") -> Generator[int, None, Message | None]:
    found = _RECORDS.search(body, 0, limits.DECODE_HEAD_BYTES_MAX)
    if found is None:
        return None
    records: list[NewRecord] = []
    start = found.end()
    while len(body) - start > 2 * limits.DECODE_SLICE_BYTES:
        at = start + limits.DECODE_SLICE_BYTES
        for _ in range(limits.DECODE_CUT_TRIES_MAX):
            between = _BETWEEN.search(body, at, at + limits.DECODE_SLICE_BYTES)
            if between is None:
                return None
            part = _list_of(body, start, between.start() + 1)
            yield len(records) + len(part or ())
            if part is not None:
                break
            at = between.end()
        else:
            return None
        records += part
        start = between.end()
    rest = body[start:]
    if _MARK.encode() in rest:
        return None
    write = decoder.decode(b"".join((body[: found.end()], _MARK_RECORD, rest)))
    if not isinstance(write, WriteRequest) or not write.records or write.records[0].tag != _MARK:
        return None
    records += write.records[1:]
    write.records = records
    return write


def _list_of(body: bytes, start: int, end: int) -> list[NewRecord] | None:
    """None if the text does not end between two records."""
    try:
        return _list_decoder.decode(b"".join((b"[", memoryview(body)[start:end], b"]")))
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return None
