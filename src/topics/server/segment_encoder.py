"""Encodes large segments in a process of its own, so that the event loop does not wait for the interpreter meanwhile.

A full block takes 10 ms of Python, during which the loop would have to share the interpreter; what is left here is to
hand over the columns, 1.5 ms, and to write what comes back. The process starts with the first large block, knows no
files and no settings, ignores signals, and ends when this one does: its input is over then. While it is busy with a
block, or has died, others are encoded here, by the same function: both give the same bytes. So under more load than it
can bear the loop gets less of the interpreter, and writers are slowed down before they have to be refused.

They talk over a pair of sockets, because a socket gives any number of bytes for one system call, after which a thread
has to wait for the interpreter; a pipe gives 64 KiB. In the byte order of the machine:

    to the process      a length, that many bytes of msgpack: `_Block`
    from the process    first `_READY`; then, for each block, four lengths (`_LENGTHS`), that many bytes each:
                        .data, .idx, .tags, .text (length -1: none)
"""

import logging
import os
import signal
import socket
import subprocess
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from struct import Struct
from threading import Lock
from typing import cast

import msgspec

from topics import limits
from topics.model.record import Columns
from topics.storage.segment_writer import SegmentFiles, encode_segment

log = logging.getLogger("topics.seal")

_LENGTH = Struct("=Q")
_LENGTHS = Struct("=qqqq")
_NONE = -1
_READY = b"r"


class _Block(msgspec.Struct, array_like=True):
    """The columns of a block: fragments in one piece, numbers as they lie in memory, and no names or tags where no
    record has one. `dead`: positions without a fragment."""

    first_seq: int
    with_text: bool
    fragments: bytes
    lengths: bytes
    dead: list[int]
    timestamps: bytes
    meta_at: bytes
    nodes: Sequence[str | None] | None
    tags: Sequence[str | None] | None

    @classmethod
    def of(cls, first_seq: int, columns: Columns, *, with_text: bool) -> "_Block":
        fragments, timestamps, meta_at, nodes, tags = columns
        dead: list[int] = []
        if None in fragments:
            dead = [position for position, fragment in enumerate(fragments) if fragment is None]
        texts = cast(Sequence[bytes], [fragment or b"" for fragment in fragments] if dead else fragments)
        return cls(
            first_seq,
            with_text,
            b"".join(texts),
            array("I", map(len, texts)).tobytes(),
            dead,
            array("q", timestamps).tobytes(),
            array("I", meta_at).tobytes(),
            None if nodes.count(None) == len(nodes) else nodes,
            None if tags.count(None) == len(tags) else tags,
        )

    def columns(self) -> Columns:
        ends = [*accumulate(array("I", self.lengths))]
        text = self.fragments
        fragments: list[bytes | None] = [text[at:end] for at, end in zip([0, *ends], ends, strict=False)]
        for position in self.dead:
            fragments[position] = None
        nothing = [None] * len(fragments)
        return Columns(
            fragments,
            array("q", self.timestamps),
            array("I", self.meta_at),
            self.nodes or nothing,
            self.tags or nothing,
        )


class _Gone(Exception):
    """The process has ended."""


class SegmentEncoder:
    """`elsewhere`: whether it may start the process. Threads may share it."""

    def __init__(self, *, elsewhere: bool) -> None:
        self._starts_left = limits.SEGMENT_PROCESS_STARTS_MAX if elsewhere and sys.executable else 0
        self._process: subprocess.Popen[bytes] | None = None
        self._talk: socket.socket | None = None
        self._is_ready = False
        self._turn = Lock()

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    def encode(self, first_seq: int, columns: Columns, *, with_text: bool) -> SegmentFiles:
        if len(columns.fragments) >= limits.ENCODED_ELSEWHERE_RECORDS_MIN and self._turn.acquire(blocking=False):
            try:
                if self.is_ready() and self._talk is not None:
                    return self._encode_elsewhere(self._talk, first_seq, columns, with_text)
            except (_Gone, OSError) as error:
                self._bury(error)
            finally:
                self._turn.release()
        return encode_segment(first_seq, columns, with_text=with_text)

    def is_ready(self) -> bool:
        """Whether the process can be asked. The first call starts it, and does not wait for it."""
        if self._talk is None:
            if self._starts_left:
                self._start()
        elif not self._is_ready:
            with suppress(BlockingIOError):  # it has not said so yet
                self._is_ready = _receive(self._talk, len(_READY), socket.MSG_DONTWAIT) == _READY
        return self._is_ready

    def close(self) -> None:
        """Nobody encodes any more."""
        self._starts_left = 0
        if self._process is None:
            return
        self._end_of_talk()
        try:
            self._process.wait(limits.SEGMENT_PROCESS_END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    @staticmethod
    def _encode_elsewhere(talk: socket.socket, first_seq: int, columns: Columns, with_text: bool) -> SegmentFiles:
        block = msgspec.msgpack.encode(_Block.of(first_seq, columns, with_text=with_text))
        talk.sendall(_LENGTH.pack(len(block)))
        talk.sendall(block)
        data, idx, tags, text = _LENGTHS.unpack(_receive(talk, _LENGTHS.size))
        return SegmentFiles(
            _receive(talk, data),
            _receive(talk, idx),
            _receive(talk, tags),
            None if text == _NONE else _receive(talk, text),
        )

    def _start(self) -> None:
        self._starts_left -= 1
        self._talk, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    def _end_of_talk(self) -> None:
        talk, self._talk, self._is_ready = self._talk, None, False
        if talk is not None:
            talk.close()

    def _bury(self, error: Exception) -> None:
        """It is started again with the next large block, but not for ever."""
        self._end_of_talk()
        process, self._process = self._process, None
        status = "it could not be started"
        if process is not None:
            process.kill()
            status = f"exit status {process.wait()}"
        log.warning(
            "the process that encodes segments has ended (%s, %s); %s",
            status,
            error or "end of its output",
            "the next large block starts another"
            if self._starts_left
            else "from now on the server encodes them itself",
        )


def _receive(talk: socket.socket, length: int, how: int = socket.MSG_WAITALL) -> bytes:
    data = talk.recv(length, how) if length else b""
    if len(data) < length:
        raise _Gone
    return data


def main() -> None:
    """The process: block by block, until its input is over."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever sends them means the server, which may have blocks left
    talk = socket.socket(fileno=sys.stdin.fileno())
    decode = msgspec.msgpack.Decoder(_Block).decode
    try:
        talk.sendall(_READY)
        while True:
            block = decode(_receive(talk, _LENGTH.unpack(_receive(talk, _LENGTH.size))[0]))
            files = encode_segment(block.first_seq, block.columns(), with_text=block.with_text)
            talk.sendall(_LENGTHS.pack(*(_NONE if part is None else len(part) for part in files)))
            for part in files:
                if part is not None:
                    talk.sendall(part)
            del block, files  # while it waits, it holds nothing
    except (_Gone, OSError):
        os._exit(0)  # the server is gone, or has ended this


if __name__ == "__main__":
    main()
