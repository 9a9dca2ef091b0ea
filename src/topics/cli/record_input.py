"""A line of input as a record: its data checked here, so that what is wrong is told by its line."""

import argparse
import json
from typing import TYPE_CHECKING, Any

import msgspec

from topics.cli.input_lines import Line
from topics.cli.output import clipped, harmless
from topics.cli.values import at_path
from topics.errors import TopicsError

if TYPE_CHECKING:
    from topics.client.calls import NewRecord

SHOWN_CHARS_MAX = 60
SYNTAX = msgspec.json.Decoder(msgspec.Raw)  # checks it, and takes 1e400 as it is


class InvalidLine(TopicsError):
    """A line is not a record. The message names it; everything before it is written."""

    def after(self, records: int) -> "InvalidLine":
        before = f"; the {records:,} before it are written" if records else "; nothing was written"
        return InvalidLine(self.message + before)


class Records:
    """Makes records of lines, with the tag, meta and delay that the options name."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._text = args.text
        self._tag = args.tag
        self._tag_from = args.tag_from
        self._key_from = args.key_from
        self._meta = dict(args.meta) or None
        self._delay_ms = args.delay
        self._single = len(args.data) == 1

    def of(self, line: Line) -> "NewRecord | None":
        """None for a blank line."""
        from topics.client.calls import NewRecord  # noqa: PLC0415 (help does not wait for it)

        text = line.text.rstrip(b"\r")
        if not self._text and not text.strip():
            return None
        data: Any
        if self._text:
            data = self._decoded(line, text)
        else:
            self._check(line, text)
            data = msgspec.Raw(text.strip())
        return NewRecord(data, self._tag_of(line, data), None, self._meta, self._delay_ms)

    def key_of(self, record: "NewRecord") -> str:
        """With --key-from: never empty, `of` has seen to that."""
        return _as_text(at_path(self._value(record.data), self._key_from))

    def _tag_of(self, line: Line, data: Any) -> str | None:
        if self._tag_from is None and self._key_from is None:
            return self._tag  # type: ignore[no-any-return]
        value = self._value(data)
        if self._key_from is not None and not _as_text(at_path(value, self._key_from)):
            raise InvalidLine(f"{self._place(line)} has nothing at .{'.'.join(self._key_from)}, so it has no key")
        if self._tag_from is None:
            return self._tag  # type: ignore[no-any-return]
        return _as_text(at_path(value, self._tag_from)) or self._tag

    def _value(self, data: Any) -> object:
        # The standard library's: it takes every number there is.
        return json.loads(bytes(data)) if isinstance(data, msgspec.Raw) else data

    def _decoded(self, line: Line, text: bytes) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise InvalidLine(f"{self._place(line)} is not UTF-8") from None

    def _check(self, line: Line, text: bytes) -> None:
        try:
            text.decode()
            SYNTAX.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            shown = harmless(clipped(text.decode("utf-8", "replace"), SHOWN_CHARS_MAX))
            raise InvalidLine(
                f"{self._place(line)} is not JSON ({error}): {shown}; write text in quotes, or add --text"
            ) from None

    def _place(self, line: Line) -> str:
        return "the record" if self._single else f"line {line.number:,}"


def _as_text(value: object) -> str:
    """A string as it is, other values as JSON; nothing for null."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
