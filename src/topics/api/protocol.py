"""One HTTP/1.1 connection: the transport on one side, the application on the other, answers in order.

Owns order, keep-alive, back-pressure, deadlines and the polite close. What the bytes mean is the
business of `request_reader`, `encoding` and `packing`, what a request means the application's.

A request goes `data_received` -> reader -> `on_request` -> `_dispatch` -> `_send` -> `flush`, all in one
call when the application answers at once; the answers to all requests of one read leave in one write, at the end
of the loop's turn.
A connection that must wait (for a coroutine, or for a client that does not read) is *blocked*: requests
already parsed stay in `_queue`, bytes not yet parsed in `_intake`, and reading pauses, so that what a
client can pile up is bounded by one read.

An answer that is a `Streaming` or an `Upgrade` ends this protocol, not the connection: `_hand_over` puts a
`ChannelConnection` in its place.
"""

import asyncio
import inspect
import logging
import socket
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, cast

from topics import limits
from topics.api.channel import ChannelConnection, Wire
from topics.api.connections import NEVER_NS, Connections
from topics.api.encoding import CLOSE, CONTINUE, render, render_stream_head
from topics.api.http import Application, ChannelOwner, HandOver, Request, Response, Streaming, Waiting
from topics.api.intake import Intake
from topics.api.packing import GZIPPED, VARY, deflate, handle_packed, is_packed, packs_reply, reply_body
from topics.api.request_reader import BODY, HEAD, IDLE, STOPPED, RequestReader
from topics.clock import Clock
from topics.errors import Unauthorized

OPEN: Final = 0
LINGERING: Final = 1  # everything is answered and our side is shut; waiting for the client to close
CLOSED: Final = 2
HANDED_OVER: Final = 3  # the connection lives on, without us

log = logging.getLogger("topics.api")

_HEAD_TIMEOUT_NS = int(limits.HEAD_TIMEOUT_S * 1e9)
_BODY_STALL_TIMEOUT_NS = int(limits.BODY_STALL_TIMEOUT_S * 1e9)
_IDLE_TIMEOUT_NS = int(limits.IDLE_TIMEOUT_S * 1e9)
_DRAIN_TIMEOUT_NS = int(limits.DRAIN_TIMEOUT_S * 1e9)
_LINGER_TIMEOUT_NS = int(limits.LINGER_TIMEOUT_S * 1e9)
_LINGER_NS_MAX = int(limits.LINGER_S_MAX * 1e9)


class HttpProtocol(asyncio.Protocol):
    """Made by the server's protocol factory, one for each accepted socket."""

    __slots__ = (
        "_application",
        "_blocked",
        "_body_bytes_max",
        "_clock",
        "_connections",
        "_continue_due",
        "_coroutine",
        "_discarded_bytes",
        "_half_closed",
        "_hand_over_due",
        "_intake",
        "_last_ns",
        "_linger",
        "_linger_until_ns",
        "_out",
        "_out_bytes",
        "_queue",
        "_reader",
        "_state",
        "_task",
        "_task_request",
        "_transport",
        "_unsent_bytes",
        "_waiting",
        "_writing_paused",
        "deadline_ns",
    )

    _transport: asyncio.Transport
    _intake: Intake
    _reader: RequestReader

    def __init__(
        self,
        application: Application,
        connections: Connections,
        clock: Clock,
        *,
        body_bytes_max: int = limits.BODY_BYTES_MAX,
    ) -> None:
        self._application = application
        self._connections = connections
        self._clock = clock
        self._body_bytes_max = body_bytes_max
        self._state: int = OPEN
        self.deadline_ns = NEVER_NS
        self._last_ns = 0  # when the client last had reason to send something new

        # Requests waiting for their turn, each with its refusal if there is one and its `connection` line.
        self._queue: deque[tuple[Request, Response | None, bytes]] = deque()
        self._continue_due = False
        self._blocked = False  # = a task runs, writing is paused or a hand-over is due
        self._hand_over_due: tuple[HandOver, Wire, bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self._task_request: Request | None = None
        self._coroutine: Coroutine[Any, Any, Response] | None = None
        self._waiting: Waiting | None = None
        self._half_closed = False  # the client sends no more, and may wait for answers still
        self._writing_paused = False

        self._out: list[bytes] = []
        self._out_bytes = 0
        self._unsent_bytes = 0
        self._linger = False
        self._linger_until_ns = NEVER_NS
        self._discarded_bytes = 0

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._intake = Intake(self._transport)
        number = self._connections.register(self)
        self._reader = RequestReader(
            self, self._application, self._clock, f"{number or 0:x}-", self._body_bytes_max, self._connections.heads
        )
        if number is None:
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=limits.WRITE_BUFFER_HIGH_BYTES)
        peer = transport.get_extra_info("socket")
        if peer is not None and peer.family in (socket.AF_INET, socket.AF_INET6):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_ns = self._clock.monotonic_ns()
        self.deadline_ns = self._last_ns + _IDLE_TIMEOUT_NS

    def data_received(self, data: bytes) -> None:
        # Hot: a small read on a connection that does not wait is answered before this returns.
        reader = self._reader
        self._connections.received_bytes += len(data)
        if not self._blocked and reader.stage != STOPPED and len(data) <= limits.PARSE_SLICE_BYTES:
            try:
                rest = reader.feed(data)
            except BaseException:
                # Only an application that breaks its promise not to raise gets here.
                self.abort()
                raise
            if reader.stage == IDLE and not self._blocked and not rest:
                self._connections.flush(self)
                if not self._blocked:
                    self.deadline_ns = self._last_ns + _IDLE_TIMEOUT_NS
                    return
            self._intake.put_back(rest)
        elif reader.stage == STOPPED:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > limits.LINGER_BYTES_MAX:
                self.abort()
            elif self._state == LINGERING:
                # While it comes, the client may be about to read why it was refused.
                self.deadline_ns = min(self._clock.monotonic_ns() + _LINGER_TIMEOUT_NS, self._linger_until_ns)
            return
        else:
            self._intake.append(data)
        self._proceed()

    def eof_received(self) -> bool:
        """The client is gone, or has shut its side, which looks the same. What it has asked for is answered, unless the
        answer waits for something that may never come; the transport stays open that long.

        Returning False makes the transport close once what is already written has been sent.
        """
        if self._half_closed:
            return True
        self.flush()
        request = self._task_request
        waits = self._hand_over_due is not None or (request is not None and request.waits)
        if self._state == OPEN and self._blocked and not waits:
            self._half_closed = True
            return True
        self._drop_work()
        self._state = CLOSED
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self.deadline_ns = self._clock.monotonic_ns() + _DRAIN_TIMEOUT_NS
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_work()
        self._state = CLOSED
        self._reader.release()
        self.deadline_ns = NEVER_NS
        self._connections.remove(self)

    def pause_writing(self) -> None:
        self._writing_paused = self._blocked = True
        if self._state == OPEN:
            self._intake.pause()
            self._unsent_bytes = self._transport.get_write_buffer_size()
            self.deadline_ns = self._clock.monotonic_ns() + _DRAIN_TIMEOUT_NS

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._blocked = self._task is not None or self._waiting is not None
        if self._state == OPEN:
            self._last_ns = self._clock.monotonic_ns()
            self._proceed()

    # --- what the registry calls

    @property
    def answering(self) -> bool:
        # Not open means that the last answer is written and the transport, or the client, is about to end it.
        return self._blocked or self._state != OPEN

    def expire(self, now_ns: int) -> None:
        unsent_bytes = self._transport.get_write_buffer_size()
        if 0 < unsent_bytes < self._unsent_bytes:
            # Slow, but reading.
            self._unsent_bytes = unsent_bytes
            self.deadline_ns = now_ns + _DRAIN_TIMEOUT_NS
            return
        self.abort()

    def drain(self) -> None:
        if self._state == OPEN and self._reader.stage == IDLE and not self._blocked:
            self._close()

    def revoke(self, digests: frozenset[bytes]) -> bool:
        """Refuses what waits for something to happen. What is under way besides was allowed, and is answered."""
        request = self._task_request
        if self._state != OPEN or request is None or not request.waits or request.key_digest not in digests:
            return False
        self.flush()
        self._drop_work()
        refusal = self._application.refuse(Unauthorized.revoked(), request.request_id)
        self._send(request, refusal, refusal.body, b"", CLOSE)
        return True

    def abort(self) -> None:
        self._state = CLOSED
        self._out.clear()
        self._reader.stop()
        self._transport.abort()

    # --- what the reader calls

    def on_request(self, request: Request, connection: bytes) -> None:
        if self._blocked:
            self._continue_due = False  # it came without being asked for
            self._queue.append((request, None, connection))
        else:
            self._last_ns = request.received_ns
            self._dispatch(request, None, connection)

    def on_refusal(self, request: Request, refusal: Response) -> None:
        self._linger = True
        self._continue_due = False
        if self._blocked:
            self._queue.append((request, refusal, CLOSE))
        else:
            self._dispatch(request, refusal, CLOSE)

    def on_continue(self) -> None:
        if self._blocked:
            self._continue_due = True
        else:
            self._out.append(CONTINUE)

    # --- answering

    def _dispatch(self, request: Request, refusal: Response | None, connection: bytes) -> None:
        if refusal is not None:
            answer: Response | Waiting | Coroutine[Any, Any, Response] = refusal
        elif b"content-encoding" in request.headers and is_packed(request):
            answer = handle_packed(self._application, request, self._body_bytes_max)
        else:
            answer = self._application.handle(request)
        if isinstance(answer, Response):
            body = answer.body
            if len(body) < limits.GZIP_REPLY_BYTES_MIN:
                if not body and isinstance(answer, HandOver):
                    self._send_last_head(request, answer, connection)
                    return
                self._send(request, answer, body, b"", connection)
                return
            if not packs_reply(request, answer):
                self._send(request, answer, body, VARY, connection)
                return
            if len(body) <= limits.GZIP_INLINE_BYTES_MAX:
                self._send(request, answer, deflate(body), GZIPPED, connection)
                return
        elif isinstance(answer, Waiting):
            self._blocked = True
            self._task_request = request
            self._waiting = answer
            answer.commit.when_done(lambda _: self._answer_waited(request, answer, connection))
            return
        else:
            self._coroutine = answer
        self._blocked = True
        self._task_request = request
        self._task = asyncio.get_running_loop().create_task(self._answer_later(request, answer, connection))
        if self._half_closed and request.waits:
            self.flush()
            self._drop_work()
            self._close()

    def _answer_waited(self, request: Request, answer: Waiting, connection: bytes) -> None:
        """What an answer waited for has happened."""
        if self._waiting is not answer:
            return  # dropped meanwhile
        self._waiting = None
        response = answer.result()
        if len(response.body) >= limits.GZIP_REPLY_BYTES_MIN:
            self._task = asyncio.get_running_loop().create_task(self._answer_later(request, response, connection))
            return
        self._task_request = None
        self._blocked = self._writing_paused
        self._last_ns = self._clock.monotonic_ns()
        self._send(request, response, response.body, b"", connection)
        more_to_do = self._queue or self._intake.unparsed or self._half_closed or self._continue_due
        if more_to_do or self._blocked or self._state != OPEN or self._reader.stage != IDLE:
            self._proceed()
        else:
            # Hot: those that one sync has made durable leave together, as in `data_received`.
            self._connections.flush(self)
            self.deadline_ns = self._last_ns + _IDLE_TIMEOUT_NS

    async def _answer_later(
        self, request: Request, answer: Response | Coroutine[Any, Any, Response], connection: bytes
    ) -> None:
        """The part of `_dispatch` that has to wait. While it runs the connection is blocked."""
        try:
            response = answer if isinstance(answer, Response) else await answer
            body = response.body
            fields = b""
            if len(body) >= limits.GZIP_REPLY_BYTES_MIN:
                body, fields = await reply_body(request, response)
        except BaseException:
            # Cancelled because the client is gone, or broken: either way no answer will come.
            if self._state != CLOSED:
                self.abort()
            raise
        if self._state == CLOSED:
            if isinstance(response, HandOver) and not _declined(response.owner):
                self.abort()
            return
        self._task = self._coroutine = self._task_request = None
        self._blocked = self._writing_paused
        self._last_ns = self._clock.monotonic_ns()
        if isinstance(response, HandOver):
            self._send_last_head(request, response, connection)
        else:
            self._send(request, response, body, fields, connection)
        self._proceed()

    def _send(self, request: Request, response: Response, body: bytes, fields: bytes, connection: bytes) -> None:
        """Renders into `_out`, which `flush` writes. Once per request."""
        connections = self._connections
        if connections.draining:
            connection = CLOSE
        fields = connections.date_line + connection + fields if connection or fields else connections.date_line
        if response.status >= 400:
            fields += b"x-request-id: %b\r\n" % request.request_id.encode()
        rendered = render(response, body, fields, head_only=request.method == b"HEAD")
        self._out.append(rendered)
        self._out_bytes += len(rendered)
        if connection is CLOSE:
            self._close()
        elif self._out_bytes > limits.WRITE_BUFFER_HIGH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hands everything rendered so far to the transport."""
        out = self._out
        if out:
            rendered = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self._out_bytes = 0
            self._connections.sent_bytes += len(rendered)
            self._transport.write(rendered)

    # --- handing over

    def _send_last_head(self, request: Request, answer: HandOver, connection: bytes) -> None:
        """Renders the head into `_out` and lets `_proceed` hand over: what follows the request is known only then."""
        if isinstance(answer, Streaming):
            wire = Wire.UNFRAMED if request.http_1_0 else Wire.CHUNKED
            fields = self._connections.date_line
            if request.method != b"HEAD" and all(name != b"connection" for name, _ in answer.headers):
                fields += CLOSE  # or the client would send its next request here
            head = render_stream_head(answer, fields, chunked=wire is Wire.CHUNKED)
        elif request.offers_upgrade:
            wire = Wire.UPGRADED
            head = answer.head
        else:
            log.error("%s was answered with an upgrade that it did not offer", request.request_id)
            _declined(answer.owner)
            self.abort()
            return
        self._out.append(head)
        self._out_bytes += len(head)
        if request.method != b"HEAD":
            self._hand_over_due = (answer, wire, request.key_digest)
            self._blocked = True
            return
        if not _declined(answer.owner):
            self.abort()
        if self._state == OPEN and (connection is CLOSE or self._connections.draining):
            self._close()

    def _hand_over(self, answer: HandOver, wire: Wire, key_digest: bytes) -> None:
        """Leaves the connection to a channel. Requests behind a stream are dropped, bytes behind an upgrade are not."""
        self._state = HANDED_OVER
        self._hand_over_due = None
        transport, unsent, rest = self._transport, self._out, bytes(self._intake.unparsed)
        more_behind = bool(self._queue or rest)
        self._out = []
        self._drop_work()
        self._reader.release()
        channel = ChannelConnection(
            transport, self._connections, self._clock, answer.owner, wire, key_digest, ends=_ends(answer)
        )
        self._connections.replace(self, channel)
        transport.set_protocol(channel)
        self._intake.resume()
        channel.start(unsent, rest, more_behind=more_behind, writable=not self._writing_paused)
        if self._half_closed:
            channel.eof_received()

    # --- going on, waiting, ending

    def _proceed(self) -> None:
        """Goes on with whatever waits, as far as possible; then settles reading and the deadline."""
        try:
            while not self._blocked and self._state == OPEN:
                if self._queue:
                    self._dispatch(*self._queue.popleft())
                elif self._intake.unparsed:
                    rest = self._reader.feed(self._intake.next_slice(self._reader.body_bytes_missing))
                    if self._reader.stage == STOPPED:
                        self._intake.clear()
                    else:
                        self._intake.put_back(rest)
                else:
                    break
        except BaseException:  # as in data_received
            self.abort()
            raise
        if self._state != OPEN:
            return
        if self._hand_over_due is not None:
            if self._half_closed and not _ends(self._hand_over_due[0]):
                if not _declined(self._hand_over_due[0].owner):
                    self.abort()
                self._close()
            else:
                self._hand_over(*self._hand_over_due)
            return
        self.flush()
        if self._half_closed and not self._blocked:
            self._close()
            return
        if self._blocked:
            # With nothing queued reading goes on, so that a client that hangs up is noticed.
            if self._queue or self._intake.unparsed:
                self._intake.pause()
            if not self._writing_paused:
                self.deadline_ns = NEVER_NS
            return
        if self._continue_due:
            self._continue_due = False
            self._transport.write(CONTINUE)
        self._intake.resume()
        stage = self._reader.stage
        if stage == IDLE:
            if self._connections.draining:
                self._close()
            else:
                self.deadline_ns = self._last_ns + _IDLE_TIMEOUT_NS
        else:
            timeout_ns = _HEAD_TIMEOUT_NS if stage == HEAD else _BODY_STALL_TIMEOUT_NS
            self.deadline_ns = max(self._reader.progress_ns, self._last_ns) + timeout_ns

    def _close(self) -> None:
        """Ends the connection once everything written has been sent.

        Closing a socket that still receives would reset the connection, and the reset may overtake our
        last answer. Where that can happen only our side is shut, and input is thrown away for a while.
        """
        self.flush()
        transport = self._transport
        linger = self._linger or self._reader.stage in (HEAD, BODY)
        linger = linger and not self._half_closed and transport.can_write_eof()
        self._reader.stop()
        self._queue.clear()
        self._intake.clear()
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self.deadline_ns = self._clock.monotonic_ns() + _DRAIN_TIMEOUT_NS
        if linger:
            self._state = LINGERING
            now_ns = self._clock.monotonic_ns()
            self.deadline_ns = now_ns + _LINGER_TIMEOUT_NS
            self._linger_until_ns = now_ns + _LINGER_NS_MAX
            self._intake.resume()
            transport.write_eof()
        else:
            self._state = CLOSED
            transport.close()

    def _drop_work(self) -> None:
        """Nobody waits for the answers any more."""
        task, coroutine = self._task, self._coroutine
        self._task = self._coroutine = self._task_request = None
        if self._waiting is not None:
            self._waiting.drop()
            self._waiting = None
        if task is not None:
            task.cancel()
            # A task cancelled before its first step never gets to await the handler.
            if coroutine is not None and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()
        self._reader.stop()
        self._queue.clear()
        self._out.clear()
        self._intake.clear()


def _ends(answer: HandOver) -> bool:
    return isinstance(answer, Streaming) and answer.ends


def _declined(owner: ChannelOwner) -> bool:
    """Tells `owner` that it gets no connection, so that it gives back what it set aside. False if that failed."""
    try:
        owner.closed()
    except Exception:  # our mistake in one owner: the connections of all others go on
        log.exception("the owner of a connection failed")
        return False
    return True
