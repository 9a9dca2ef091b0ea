"""A large write, decoded in parts so that no step takes long. In one go, 57 MiB of nested values take 0.1 s, and 57 MiB
of the smallest records 0.6 s.

JSON is read from left to right. If the text from `"records":[` to some `},{` is a list of records by itself, then a
decoder of the whole stands between two records there, too; so the lists of all parts, joined, are the list of the
whole. The last part is decoded with everything around the records, after a record that marks where the others were: if
`records` occurred twice, the mark would not be in the last list, which is the one that counts.

For the same reason the first error in a part is the first error in the whole, once the bytes and records before the
part are added to the place that it names. If the records cannot be told apart like this, a decoder of the whole has to
do it.
"""

import re
from collections.abc import Generator
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from topics import limits
from topics.model.record import NewRecord
from topics.wire.requests import WriteRequest, decoder_of, is_unknown_field, refuse, refuse_bytes, unknown_field_in
from topics.wire.unknown_fields import lenient, warnings_of

_SPACE = rb"[ \t\n\r]*"
_RECORDS = re.compile(rb'"records"' + _SPACE + rb":" + _SPACE + rb"\[")
_BETWEEN = re.compile(rb"\}" + _SPACE + rb"," + _SPACE + rb"(?=\{" + _SPACE + rb'"(?:data|tag|node|meta|delay_ms)")')
_MARK = "the records before this one were decoded already"
_MARK_RECORD = b'{"data":0,"tag":"%b"},' % _MARK.encode()

# What msgspec says.
_ERRORS = (msgspec.DecodeError, RecursionError)
_LIST_ENDED = "trailing characters"
_NOT_A_LIST = "Expected `array`, got `int` - at `$.records`"
_BYTE = re.compile(r"(?<= \(byte )\d+(?=\)$)")
_RECORD = re.compile(r"(?P<place>(?: - at `\$|^unknown field ))(?:\.?records)?\[(?P<index>\d+)\]")

Message = TypeVar("Message")


class LargeWrite(Generic[Message]):
    """A `body` to be decoded into `kind`, which is a write or may be one."""

    def __init__(self, body: bytes, kind: Any) -> None:
        self._body = body
        self._kind = kind
        self._records: list[NewRecord] = []
        self._warnings: dict[str, str] = {}
        self._head_end = self._find_records()

    def decode(self) -> Generator[int, None, Message | None]:
        """Yields after each step, with the number of records so far. Returns the message, or None if it has to be
        decoded in one go. Raises `InvalidRequest` as `requests.decode_leniently` would."""
        yield from self._check_utf8()
        body, start = self._body, self._head_end
        if not start:
            return None
        while len(body) - start > 2 * limits.DECODE_SLICE_BYTES:
            at = start + limits.DECODE_SLICE_BYTES
            for _ in range(limits.DECODE_CUT_TRIES_MAX):
                end = at + limits.DECODE_CUT_BYTES_MAX
                between = _BETWEEN.search(body, at, end)
                if between is None:
                    return self._last_part(start) if end >= len(body) else None
                part = self._part(start, between.start() + 1)
                yield len(self._records) + len(part or ())
                if part is not None:
                    break
                at = between.end()
            else:
                return None
            self._records += part
            start = between.end()
        return self._last_part(start)

    @property
    def warnings(self) -> list[str] | None:
        """About the unknown fields in what was decoded."""
        return [*self._warnings.values()][: limits.WARNINGS_MAX] or None

    def outline(self) -> bytes:
        """The message without its records, if that can be told: it may be wrong."""
        tail = self._body.rfind(b"]", -limits.DECODE_HEAD_BYTES_MAX)
        return self._body[: self._head_end] + self._body[tail:] if 0 < self._head_end <= tail else b""

    def _check_utf8(self) -> Generator[int, None, None]:
        body, start = self._body, 0
        while start < len(body):
            end = start + limits.DECODE_SLICE_BYTES
            while end < len(body) and body[end] & 0xC0 == 0x80 and end > start + 1:
                end -= 1  # it does not end within a character
            part = body[start:end]
            if not part.isascii():
                try:
                    part.decode()
                except UnicodeDecodeError as error:
                    refuse_bytes(start + error.start)
            start = end
            yield 0

    def _find_records(self) -> int:
        """Where the text of the records begins; 0 if that is not certain. The same text may be in something else, but
        only there does the decoder want a list of records."""
        found = _RECORDS.search(self._body, 0, limits.DECODE_HEAD_BYTES_MAX)
        if found is not None:
            try:
                decoder_of(lenient(self._kind)).decode(self._body[: found.end() - 1] + b"0}")
            except _ERRORS as error:
                return found.end() if str(error) == _NOT_A_LIST else 0
        return 0

    def _part(self, start: int, end: int) -> list[NewRecord] | None:
        """None if the text does not end between two records."""
        text = b"[%b]" % self._body[start:end]
        try:
            records: list[NewRecord] = self._decoded(text, list[NewRecord], len(self._records))
        except msgspec.ValidationError as error:
            self._refuse(error, start - 1, len(self._records))
        except _ERRORS as error:
            place = _BYTE.search(str(error))
            if place is None or int(place[0]) >= len(text) - 1 or _LIST_ENDED in str(error):
                return None
            self._refuse(error, start - 1, len(self._records))
        return records

    def _last_part(self, start: int) -> Message | None:
        """With everything around the records."""
        if not self._records or _MARK.encode() in self._body[start:]:
            return None
        head = self._body[: self._head_end] + _MARK_RECORD
        records_before = len(self._records) - 1
        try:
            message: Any = self._decoded(head + self._body[start:], self._kind, records_before)
        except _ERRORS as error:
            self._refuse(error, start - len(head), records_before)
        if not isinstance(message, WriteRequest) or not message.records or message.records[0].tag != _MARK:
            return None
        message.records = self._records + message.records[1:]
        whole: Message = message  # type: ignore[assignment]
        return whole

    def _decoded(self, text: bytes, kind: Any, records_before: int) -> Any:
        """`text` as `kind`. There are this many records before its own."""
        try:
            return decoder_of(kind).decode(text)
        except msgspec.ValidationError as error:
            if not is_unknown_field(error):
                raise
            first = unknown_field_in(str(error))
        decoded = decoder_of(lenient(kind)).decode(text)
        for each in warnings_of(text, kind) or [first]:
            self._warnings.setdefault(_RECORD.sub(r"\g<place>", each), _in_whole(each, records_before))
        return decoded

    def _refuse(self, error: Exception, bytes_before: int, records_before: int) -> NoReturn:
        message = _BYTE.sub(lambda found: str(int(found[0]) + bytes_before), str(error))
        refuse(error, _in_whole(message, records_before))


def _in_whole(message: str, records_before: int) -> str:
    """With the number that a record has among all of them."""

    def numbered(found: "re.Match[str]") -> str:
        dot = "." if "$" in found["place"] else ""
        return f"{found['place']}{dot}records[{int(found['index']) + records_before}]"

    return _RECORD.sub(numbered, message, count=1)
