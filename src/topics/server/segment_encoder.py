"""Encodes large segments in a process of its own, so that the event loop does not wait for the interpreter meanwhile.

A full block takes 10 ms of Python, during which the loop would have to share the interpreter; what is left here is to
hand over the columns, 1.5 ms, and to write what comes back. The process starts with the first large block, knows no
files and no settings, ignores signals, and ends when this one does: its input is over then. Without it, because there
is none yet or it has died, blocks are encoded here, by the same function: both give the same bytes.

On the pipes, in the byte order of the machine:

    to the process      a length, that many bytes of msgpack: `_Block`
    from the process    four lengths (`_LENGTHS`), that many bytes each: .data, .idx, .tags, .text (length -1: none)
"""

import logging
import os
import signal
import subprocess
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct
from threading import Lock
from typing import IO, cast

import msgspec

from topics import limits
from topics.model.record import Columns
from topics.storage.segment_writer import SegmentFiles, encode_segment

log = logging.getLogger("topics.seal")

_LENGTH = Struct("=Q")
_LENGTHS = Struct("=qqqq")
_NONE = -1


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
    """`elsewhere`: whether it may start the process. It works for one thread at a time, in the order
    they come."""

    def __init__(self, *, elsewhere: bool) -> None:
        self._starts_left = limits.SEGMENT_PROCESS_STARTS_MAX if elsewhere and sys.executable else 0
        self._process: subprocess.Popen[bytes] | None = None
        self._queue, self._turn = Lock(), Lock()

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    def encode(self, first_seq: int, columns: Columns, *, with_text: bool) -> SegmentFiles:
        if len(columns.fragments) >= limits.ENCODED_ELSEWHERE_RECORDS_MIN:
            with self._queue:  # else a thread with much to do would take turn after turn
                self._turn.acquire()
            try:
                if self._process or self._starts_left:
                    return self._encode_elsewhere(first_seq, columns, with_text)
            except (_Gone, OSError) as error:
                self._bury(error)
            finally:
                self._turn.release()
        return encode_segment(first_seq, columns, with_text=with_text)

    def close(self) -> None:
        """Nobody encodes any more."""
        process, self._process = self._process, None
        self._starts_left = 0
        if process is None:
            return
        to_it, from_it = _pipes(process)
        from_it.close()
        try:
            to_it.close()
        except OSError:
            log.debug("the process that encodes segments had ended before")
        try:
            process.wait(limits.SEGMENT_PROCESS_END_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _encode_elsewhere(self, first_seq: int, columns: Columns, with_text: bool) -> SegmentFiles:
        process = self._process or self._start()
        to_it, from_it = _pipes(process)
        block = msgspec.msgpack.encode(_Block.of(first_seq, columns, with_text=with_text))
        to_it.write(_LENGTH.pack(len(block)))
        to_it.write(block)
        to_it.flush()
        data, idx, tags, text = _LENGTHS.unpack(_read(from_it, _LENGTHS.size))
        return SegmentFiles(
            _read(from_it, data),
            _read(from_it, idx),
            _read(from_it, tags),
            None if text == _NONE else _read(from_it, text),
        )

    def _start(self) -> "subprocess.Popen[bytes]":
        self._starts_left -= 1
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        return self._process

    def _bury(self, error: Exception) -> None:
        """It is started again with the next large block, but not for ever."""
        process, self._process = self._process, None
        status = "it could not be started"
        if process is not None:
            process.kill()
            status = f"exit status {process.wait()}"
            for pipe in _pipes(process):
                try:
                    pipe.close()
                except OSError:
                    log.debug("a pipe of the process that encoded segments was broken")
        log.warning(
            "the process that encodes segments has ended (%s, %s); %s",
            status,
            error or "end of its output",
            "the next large block starts another"
            if self._starts_left
            else "from now on the server encodes them itself",
        )


def _pipes(process: "subprocess.Popen[bytes]") -> tuple[IO[bytes], IO[bytes]]:
    """To it, and from it."""
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _read(stream: IO[bytes], length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise _Gone
    return data


def main() -> None:
    """The process: block by block, until its input is over."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever sends them means the server, which may have blocks left
    source, target = sys.stdin.buffer, sys.stdout.buffer
    decode = msgspec.msgpack.Decoder(_Block).decode
    try:
        while True:
            block = decode(_read(source, _LENGTH.unpack(_read(source, _LENGTH.size))[0]))
            files = encode_segment(block.first_seq, block.columns(), with_text=block.with_text)
            target.write(_LENGTHS.pack(*(_NONE if part is None else len(part) for part in files)))
            for part in files:
                if part is not None:
                    target.write(part)
            target.flush()
            del block, files  # while it waits, it holds nothing
    except (_Gone, BrokenPipeError):
        os._exit(0)  # the server is gone, or has ended this


if __name__ == "__main__":
    main()
