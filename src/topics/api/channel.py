"""A connection that an application has taken over: one stream without an end, or one upgraded to another protocol.

Owns what the HTTP protocol owned before: the transport, the polite close and the bound on what a client that does not
read can hold. Its only deadline is that of the close, because only the owner knows what silence means. What the bytes
mean is the owner's business.

Writes of one turn of the loop leave together: a system call takes 8 us, everything else here one. Whoever knows that
nothing more comes in this turn sends at once. The same bytes may be written to any number of channels; they are not
copied for each, unless they are so small that it is cheaper.
"""

import asyncio
import enum
import logging
from collections.abc import Callable
from typing import Final, TypeVarTuple

from topics import limits
from topics.api.connections import NEVER_NS, Connections
from topics.api.encoding import CHUNK, CHUNK_END, CHUNK_SIZE, LAST_CHUNK
from topics.api.http import Channel, ChannelOwner
from topics.clock import Clock
from topics.errors import ShuttingDown, TopicsError, Unauthorized

OPEN: Final = 0
CLOSING: Final = 1  # the last bytes are on their way; input is thrown away
CLOSED: Final = 2

_JOIN_BYTES_MAX = limits.STREAM_JOIN_BYTES_MAX
_CLOSE_TIMEOUT_NS = int(limits.STREAM_CLOSE_TIMEOUT_S * 1e9)

log = logging.getLogger("topics.api")

_Arguments = TypeVarTuple("_Arguments")


class Wire(enum.Enum):
    """How the owner's bytes look on the wire."""

    CHUNKED = enum.auto()  # each write is one chunk
    UNFRAMED = enum.auto()  # the end of the connection is the end of the body
    UPGRADED = enum.auto()  # raw, in both directions


class _Nobody:
    """The owner of a connection that is gone, so that the channel does not hold on to the one it had."""

    def opened(self, channel: Channel) -> None: ...
    def received(self, data: bytes) -> None: ...
    def drained(self) -> None: ...
    def end_with(self, error: TopicsError) -> None: ...
    def closed(self) -> None: ...


_NOBODY = _Nobody()


class ChannelConnection(asyncio.Protocol):
    """Takes the place of the HTTP protocol, towards the transport and in the registry of connections."""

    __slots__ = (
        "_call_soon",
        "_chunked",
        "_clock",
        "_connections",
        "_ends",
        "_flush_due",
        "_half_closed",
        "_handed_bytes",
        "_input_bytes",
        "_is_closing",
        "_key_digest",
        "_left_bytes",
        "_overrun_bytes",
        "_owner",
        "_reading_paused",
        "_sends_on",
        "_state",
        "_told_to_stop",
        "_transport",
        "_unsent",
        "_unsent_bytes",
        "_upgraded",
        "_write",
        "deadline_ns",
        "writable",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        connections: Connections,
        clock: Clock,
        owner: ChannelOwner,
        wire: Wire,
        key_digest: bytes,
        *,
        ends: bool = False,
    ) -> None:
        self._transport = transport
        self._write = transport.write
        self._is_closing = transport.is_closing
        self._connections = connections
        self._clock = clock
        self._owner = owner
        self._key_digest = key_digest
        self._chunked = wire is Wire.CHUNKED
        self._upgraded = wire is Wire.UPGRADED
        self._call_soon = asyncio.get_running_loop().call_soon
        self._state: int = OPEN
        self.deadline_ns = NEVER_NS
        self.writable = True
        self._unsent: list[bytes] = []  # of this turn
        self._unsent_bytes = 0
        self._handed_bytes = 0  # to the transport, ever
        self._left_bytes = 0
        self._overrun_bytes = 0  # written while it was not writable
        self._flush_due = False
        self._reading_paused = False
        self._input_bytes = 0
        self._sends_on = False
        self._ends = ends
        self._half_closed = False  # the client sends no more, and reads on
        self._told_to_stop = False

    def start(self, unsent: list[bytes], rest: bytes, *, more_behind: bool, writable: bool) -> None:
        """Begins, with what the HTTP protocol has not sent and with what it has read but not parsed. `more_behind`: the
        client has sent more than the request that is answered here."""
        self.writable = writable
        self._sends_on = more_behind
        self._unsent = unsent
        self._unsent_bytes = sum(map(len, unsent))
        # The transport keeps nothing back: what it is handed goes to the socket at once, and while the socket takes no
        # more this is not writable.
        self._transport.set_write_buffer_limits(high=0)
        self._tell(self._owner.opened, self)
        self._flush()
        if rest and self._upgraded:
            self.data_received(rest)
        if self._connections.draining:
            self.drain()

    # --- what the owner calls

    @property
    def written_bytes(self) -> int:
        return self._handed_bytes + self._unsent_bytes

    @property
    def left_bytes(self) -> int:
        self._note_left()
        return self._left_bytes

    def write(self, data: bytes) -> None:
        # Hot: called for each watcher of a topic with each batch of records.
        if self._state != OPEN or not data:
            return
        if self._chunked:
            size = CHUNK_SIZE % len(data)
            self._unsent += (size, data, CHUNK_END)
            self._unsent_bytes += len(size) + len(data) + len(CHUNK_END)
        else:
            self._unsent.append(data)
            self._unsent_bytes += len(data)
        if self._unsent_bytes > limits.STREAM_TURN_BYTES_MAX:
            self._flush()  # now, so that the owner learns from `writable` when it is too much
        elif not self._flush_due:
            self._flush_due = True
            self._call_soon(self._flush_this_turn)

    def send(self, data: bytes) -> bool:
        # Hot, as above. Mostly it is what the last channel has sent, too: its chunk is made once for all.
        connections = self._connections
        if self._unsent or self._state or not self.writable or len(data) > _JOIN_BYTES_MAX:
            self.write(data)
            return False
        if self._chunked:
            if connections.sent_text is not data:
                connections.sent_text = data
                connections.sent_chunk = CHUNK % (len(data), data)
            data = connections.sent_chunk
        handed_bytes = len(data)
        connections.sent_bytes += handed_bytes
        self._handed_bytes = handed_bytes = self._handed_bytes + handed_bytes
        self._write(data)
        if self.writable and not self._is_closing():  # it is paused as soon as anything stays in the buffer
            self._left_bytes = handed_bytes
            return True
        return False

    def pause_reading(self) -> None:
        if self._state == OPEN and self._upgraded and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused and self._state != CLOSED:
            self._reading_paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        if self._state != OPEN:
            return
        if self._chunked:
            self._unsent.append(LAST_CHUNK)
        self._flush()
        if self._state != OPEN:
            return
        self.resume_reading()
        self._begin_close()
        # A peer that speaks another protocol, or sends requests behind a stream, may be sending still. Closing then
        # would reset the connection, and the reset may overtake our last words: shut our side only, and wait for the
        # peer to do the same.
        sends_on = (self._upgraded or self._sends_on) and not self._half_closed
        if sends_on and self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def abort(self) -> None:
        if self._state != CLOSED:
            self._note_left()  # as long as the transport knows
            self._state = CLOSED
            self._unsent.clear()
            self._transport.abort()

    # --- what the transport calls

    def data_received(self, data: bytes) -> None:
        self._connections.received_bytes += len(data)
        if self._upgraded and self._state == OPEN:
            self._tell(self._owner.received, data)
            return
        self._sends_on = True
        self._input_bytes += len(data)
        if self._input_bytes > (limits.STREAM_INPUT_BYTES_MAX if self._state == OPEN else limits.LINGER_BYTES_MAX):
            self.abort()

    def eof_received(self) -> bool:
        """The client is gone, or has shut its side, which looks the same. What ends by itself is sent to the end: a
        client that is gone resets the connection. Else the transport closes, because this returns False."""
        self._flush()
        if self._state == OPEN and self._ends:
            self._half_closed = True
            return True
        if self._state == OPEN:
            self._note_left()  # before the transport closes
            self._begin_close()
        self._disown()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = CLOSED
        self._unsent.clear()
        self.deadline_ns = NEVER_NS
        self._connections.remove(self)
        self._disown()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._overrun_bytes = 0
        if self._state == OPEN:
            self._tell(self._owner.drained)

    # --- what the registry calls

    @property
    def answering(self) -> bool:
        return True

    def expire(self, now_ns: int) -> None:
        self.abort()

    def drain(self) -> None:
        if self._state == OPEN and not self._told_to_stop:
            self._told_to_stop = True
            self._tell(self._owner.end_with, ShuttingDown("the server is shutting down"))

    def revoke(self, digests: frozenset[bytes]) -> bool:
        if self._state != OPEN or self._key_digest not in digests:
            return False
        self._tell(self._owner.end_with, Unauthorized.revoked())
        return True

    # --- inside

    def _flush_this_turn(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        unsent = self._unsent
        if not unsent or self._state != OPEN:
            return
        unsent_bytes = self._unsent_bytes
        if not self.writable:
            self._overrun_bytes += unsent_bytes
            if self._overrun_bytes > limits.STREAM_BUFFER_BYTES_MAX:
                log.warning("closed a connection: its client does not read, and more and more was written to it")
                self.abort()
                return
        self._note_left()  # should the connection end now, this much is known
        self._connections.sent_bytes += unsent_bytes
        self._unsent = []
        self._unsent_bytes = 0
        self._handed_bytes += unsent_bytes
        # Copying little is cheaper than a list of buffers in the system call, copying much is not: 30 writes of 500
        # bytes cost 38 us of CPU time joined and 42 as a list, one of 60 000 bytes 20 us and 19 (1000 channels).
        if unsent_bytes <= limits.STREAM_JOIN_BYTES_MAX:
            self._transport.write(b"".join(unsent))
        else:
            self._transport.writelines(unsent)

    def _note_left(self) -> None:
        # A transport that is closing has thrown away its buffer, or soon will: what it says then counts for nothing.
        if self._state == OPEN and not self._transport.is_closing():
            self._left_bytes = max(self._handed_bytes - self._transport.get_write_buffer_size(), self._left_bytes)

    def _begin_close(self) -> None:
        self._state = CLOSING
        self.deadline_ns = self._clock.monotonic_ns() + _CLOSE_TIMEOUT_NS

    def _tell(self, call: Callable[[*_Arguments], None], *arguments: *_Arguments) -> None:
        """Calls the owner. If it raises, it loses this connection, and nobody else is affected."""
        try:
            call(*arguments)
        except Exception:  # a bug in one owner: all other connections go on
            log.exception("the owner of a connection failed")
            self.abort()

    def _disown(self) -> None:
        owner, self._owner = self._owner, _NOBODY
        self._tell(owner.closed)
