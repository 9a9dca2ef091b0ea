"""Lines of stdin as they come, each with its number. A thread reads, so that whatever has gathered can be written at
once."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from queue import Queue
from typing import NamedTuple

from topics import limits
from topics.errors import TopicsError

READ_BYTES = 1 << 18
CHUNKS_WAITING_MAX = 4
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Line(NamedTuple):
    number: int
    text: bytes


class InputUnusable(TopicsError):
    """Stdin could not be read, or a line of it is too long. The message says which."""


def numbered(texts: Sequence[str]) -> list[Line]:
    return [Line(number, text.encode("utf-8", "surrogateescape")) for number, text in enumerate(texts, start=1)]


def lines_of_stdin() -> Iterator[list[Line]]:
    """Chunks of lines, whole ones, as fast as they come and no faster than they are taken."""
    return lines_of(sys.stdin.fileno())


def lines_of(descriptor: int) -> Iterator[list[Line]]:
    chunks: Queue[bytes | OSError] = Queue(CHUNKS_WAITING_MAX)
    # A daemon: a process that was interrupted does not wait for a terminal's next line.
    threading.Thread(target=_read, args=(descriptor, chunks), daemon=True).start()
    rest, number = b"", 0
    while data := chunks.get():
        if isinstance(data, OSError):
            raise InputUnusable(f"stdin could not be read: {data.strerror}")
        *texts, rest = (rest + data).split(b"\n")
        if len(rest) > limits.CLI_LINE_BYTES_MAX:
            raise InputUnusable(f"line {number + len(texts) + 1} has more than {limits.CLI_LINE_BYTES_MAX} bytes")
        if texts:
            if number == 0:
                texts[0] = texts[0].removeprefix(BYTE_ORDER_MARK)
            yield [Line(number + at, text) for at, text in enumerate(texts, start=1)]
            number += len(texts)
    if rest:
        yield [Line(number + 1, rest.removeprefix(BYTE_ORDER_MARK) if number == 0 else rest)]


def _read(descriptor: int, chunks: "Queue[bytes | OSError]") -> None:
    data = b"-"
    while data:
        try:
            data = os.read(descriptor, READ_BYTES)
        except OSError as error:
            chunks.put(error)
            return
        chunks.put(data)
