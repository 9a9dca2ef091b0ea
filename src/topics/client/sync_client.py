"""The blocking client: one keep-alive connection, used by one thread at a time."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TypeVar
from uuid import uuid4

from msgspec import UNSET, Raw, Struct, UnsetType

from topics import limits
from topics.client import core
from topics.client.core import Address, Answer, Call, NewRecord, Retries, RetryPolicy
from topics.client.errors import ExportCut, UnexpectedReply
from topics.clock import Clock, SystemClock
from topics.model.producer import Producer
from topics.wire.queue_messages import JobReply
from topics.wire.responses import (
    CursorResponse,
    DiffReply,
    ExportEnd,
    LossOut,
    RecordReply,
    StateReply,
    TopicSummary,
    WriteResponse,
)

T = TypeVar("T", bound=Struct)

FAILURES = (OSError, http.client.HTTPException)


def pause(duration_s: float) -> None:
    threading.Event().wait(duration_s)


class SyncClient:
    """Calls wait for each other. An API key is sent but never shown: it is not in `repr`, errors or logs."""

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
        pause_s: Callable[[float], None] = pause,
        new_key: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        self.url = url
        self._address = Address.of(url)
        if api_key is not None:
            core.check_api_key(api_key)
        self._api_key = api_key
        self._policy = policy or RetryPolicy()
        self._clock = clock or SystemClock()
        self._pause_s = pause_s
        self._new_key = new_key
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def __repr__(self) -> str:
        return f"SyncClient({self.url!r})"

    def __enter__(self) -> "SyncClient":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    # Calls

    def server_id(self) -> str:
        """Of the server's data; empty when it has none."""
        return self.send(core.ready()).server_id

    def state(self, topic: str) -> StateReply:
        return self.send(core.get_state(topic))

    def topics(self, prefix: str = "") -> Iterator[TopicSummary]:
        """All topics whose names begin with `prefix`, in the order of names."""
        cursor: str | UnsetType = UNSET
        while True:
            page = self.send(core.list_topics(prefix, cursor))
            yield from page.topics
            cursor = page.next_cursor
            if cursor is UNSET:
                return

    def read(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        to_seq: int | None = None,
        from_ts: int | None = None,
        limit: int = limits.DIFF_LIMIT_MAX,
        match: Sequence[str] | None = None,
        node: Sequence[str] = (),
    ) -> DiffReply:
        """The records after `from_seq`, one reply's worth."""
        return self.send(
            core.diff(topic, from_seq, to_seq=to_seq, from_ts=from_ts, limit=limit, match=match, node=node)
        )

    def append(
        self,
        topic: str,
        records: Sequence[NewRecord] | Raw,
        *,
        idempotency_key: str | None = None,
        producer: Producer | None = None,
        create: bool = True,
        config: Mapping[str, object] | None = None,
    ) -> WriteResponse:
        """Without a key or a producer the client makes a key, so that its own retries add nothing twice.
        `records` may also be the JSON text of the list, for those who made it elsewhere."""
        known_as = producer or idempotency_key or self._new_key()
        return self.send(core.append(topic, records, known_as, create=create, config=config))

    def claim(self, queue: str, node: str, max_jobs: int = 1, *, lease_ms: int | None = None) -> list[JobReply]:
        """Leases jobs to the worker `node`. Fewer than asked for: there are no more now."""
        return self.send(core.claim(queue, node, max_jobs, lease_ms)).claimed

    def ack(self, queue: str, node: str, jobs: Sequence[JobReply]) -> list[int]:
        """Completes jobs; returns the seqs of those that somebody else has by now."""
        return self.send(core.ack(queue, node, jobs)).skipped

    def nack(self, queue: str, node: str, jobs: Sequence[JobReply], *, delay_ms: int = 0) -> list[int]:
        """Gives jobs back, to be claimed again at once or after a while; returns as `ack` does."""
        return self.send(core.nack(queue, node, jobs, delay_ms)).skipped

    def extend(self, queue: str, node: str, jobs: Sequence[JobReply], lease_ms: int) -> list[int]:
        """Keeps jobs for `lease_ms` from now; returns as `ack` does."""
        return self.send(core.extend(queue, node, jobs, lease_ms)).skipped

    def put_cursor(self, topic: str, name: str, seq: int) -> CursorResponse:
        return self.send(core.put_cursor(topic, name, seq))

    def cursor(self, topic: str, name: str) -> CursorResponse:
        return self.send(core.get_cursor(topic, name))

    def delete_cursor(self, topic: str, name: str) -> None:
        self.send(core.delete_cursor(topic, name))

    def losses(self, topic: str) -> list[LossOut]:
        return self.send(core.losses(topic)).losses

    def export(
        self, topic: str, from_seq: int = 0, to_seq: int | None = None
    ) -> Generator[RecordReply, None, ExportEnd]:
        """Every record of the range, as one stream on a connection of its own. The generator returns the trailer.

        A broken stream is not resumed here: it raises, and the caller has the last record to go on from.
        """
        call = core.export(topic, from_seq, to_seq)
        with contextlib.closing(self._connect()) as connection:
            self._request(connection, call)
            response = connection.getresponse()
            if response.status != 200:
                raise core.refusal(_answer(response))
            while line := response.readline(limits.CLIENT_LINE_BYTES_MAX):
                if not line.endswith(b"\n") and len(line) >= limits.CLIENT_LINE_BYTES_MAX:
                    raise UnexpectedReply("a line of an export is too long", response.status)
                item = core.export_line(line)
                if isinstance(item, RecordReply):
                    yield item
                elif item.error is None:
                    return item
                else:
                    raise ExportCut(topic, item.error)
        raise ExportCut(topic, "the connection was closed")

    # The socket

    def send(self, call: Call[T]) -> T:
        retries = Retries(self._policy, lambda: self._clock.monotonic_ns() // 1_000_000)
        with self._lock:
            while True:
                try:
                    answer = self._once(call)
                except FAILURES as error:
                    self._disconnect()
                    pause_ms: int | None = retries.after_failure(error, self.url)
                else:
                    pause_ms = retries.after_answer(answer)
                    if pause_ms is None:
                        return core.result(call, answer)
                assert pause_ms is not None
                self._pause_s(pause_ms / 1000)

    def _once(self, call: Call[T]) -> Answer:
        if self._connection is None:
            self._connection = self._connect()
        self._request(self._connection, call)
        response = self._connection.getresponse()
        answer = _answer(response)
        if response.will_close:
            self._disconnect()
        return answer

    def _request(self, connection: http.client.HTTPConnection, call: Call[T]) -> None:
        path = self._address.prefix + call.path
        connection.request(call.method, path, body=call.body, headers=call.headers(self._api_key))

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._address.secure else http.client.HTTPConnection
        return kind(self._address.host, self._address.port, timeout=limits.CLIENT_TIMEOUT_S)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _answer(response: http.client.HTTPResponse) -> Answer:
    body = response.read(limits.CLIENT_REPLY_BYTES_MAX)
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, body)


def listens(host: str, port: int) -> bool:
    """Whether a connection to the port is taken: whether anybody is there at all."""
    try:
        socket.create_connection((host, port), limits.CLIENT_PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True
