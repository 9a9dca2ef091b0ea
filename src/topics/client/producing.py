"""A producer's records on their way: buffered, numbered, cut into batches, and answered for. Does no I/O itself.

    append ─► the open batch ─► (full, or old enough) ─► the batch that is sent ─► acknowledged

A batch is sent as the same bytes under the same numbers until it is acknowledged; only then is the next one sent. The
server leaves out a record that the topic already has under its number, so no break, kill or restart adds one twice. A
failure that retries cannot mend ends the producer: records after a hole would be out of order.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypedDict
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from topics import errors, limits
from topics.client import calls
from topics.client.caller import Caller
from topics.client.calls import NewRecord
from topics.client.core import Call
from topics.client.errors import ProducerFailed, ProducerForked
from topics.model.producer import Producer, check_producer_name
from topics.wire.responses import WriteResponse

_encode = msgspec.json.Encoder().encode


Callback = Callable[[int | None, BaseException | None], object]  # the seq, or why there is none


class Options(Struct, frozen=True, kw_only=True):
    """`linger_s`: how long a record waits for others to go with. `buffer_bytes`: what may wait in all; beyond it
    `append` waits, too."""

    batch_records: int = limits.PRODUCER_BATCH_RECORDS
    batch_bytes: int = limits.PRODUCER_BATCH_BYTES
    linger_s: float = limits.PRODUCER_LINGER_S
    buffer_bytes: int = limits.PRODUCER_BUFFER_BYTES
    create: bool = True
    config: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.batch_records <= limits.BATCH_RECORDS_MAX:
            raise errors.InvalidRequest.in_field("batch_records", f"is between 1 and {limits.BATCH_RECORDS_MAX}")
        for name in ("batch_bytes", "buffer_bytes"):
            if getattr(self, name) < 1:
                raise errors.InvalidRequest.in_field(name, "must be more than 0")
        if self.linger_s < 0:
            raise errors.InvalidRequest.in_field("linger_s", "must not be negative")


class ProducerOptions(TypedDict, total=False):
    """What a producer may be opened with; see `Options`."""

    batch_records: int
    batch_bytes: int
    linger_s: float
    buffer_bytes: int
    create: bool
    config: Mapping[str, object]


class Batch:
    """Records with consecutive numbers that go in one write. `done` once it is acknowledged, or never will be."""

    __slots__ = ("byte_count", "callbacks", "done", "error", "first_number", "opened_ns", "reply", "texts", "waiter")

    def __init__(self, first_number: int, opened_ns: int) -> None:
        self.first_number = first_number
        self.opened_ns = opened_ns
        self.texts: list[bytes] = []
        self.byte_count = 0
        self.callbacks: list[tuple[int, Callback]] = []
        self.waiter: Any = None  # what a shell waits with, once somebody waits
        self.done = False
        self.reply: WriteResponse | None = None
        self.error: BaseException | None = None

    def outcome(self, index: int) -> int | None:
        """The seq of a record of it; None if the topic had it before this batch was sent."""
        if self.error is not None:
            raise self.error
        assert self.reply is not None
        # Records the topic had already are the first ones; the reply counts the others.
        known = len(self.texts) - self.reply.count
        return self.reply.first_seq + index - known if index >= known else None


@dataclass(slots=True)
class Pending:
    """The records of a producer that are not acknowledged yet. Threads that share it hold a lock around every call."""

    topic: str
    name: str
    options: Options
    next_number: int
    open: Batch | None = field(default=None, init=False)
    full: deque[Batch] = field(default_factory=deque, init=False)  # closed, in order, the one under way first
    buffered_bytes: int = field(default=0, init=False)
    closed: bool = field(default=False, init=False)
    failure: ProducerFailed | None = field(default=None, init=False)
    appended: int = field(default=0, init=False)
    acknowledged: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_producer_name(self.name)

    @property
    def has_room(self) -> bool:
        return self.buffered_bytes < self.options.buffer_bytes

    @property
    def is_empty(self) -> bool:
        return self.open is None and not self.full

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.closed:
            raise errors.InvalidRequest("this producer is closed; make a new one")

    def add(self, text: bytes, number: int | None, now_ns: int) -> tuple[Batch, int]:
        """The batch the record is in, and its place there. Hot: about 0.7 µs."""
        if number is None:
            number = self.next_number
        elif number < self.next_number:
            raise errors.InvalidRequest.in_field(
                "sequence", f"is {number}; numbers rise, and the next must be at least {self.next_number}"
            )
        batch = self.open
        if batch is None:
            batch = self.open = Batch(number, now_ns)
        elif number != self.next_number or batch.byte_count + len(text) > self.options.batch_bytes:
            self.close_batch()
            batch = self.open = Batch(number, now_ns)
        self.next_number = number + 1
        index = len(batch.texts)
        batch.texts.append(text)
        batch.byte_count += len(text)
        self.buffered_bytes += len(text)
        self.appended += 1
        if index + 1 >= self.options.batch_records or batch.byte_count >= self.options.batch_bytes:
            self.close_batch()
        return batch, index

    def close_batch(self) -> None:
        if self.open is not None:
            self.full.append(self.open)
            self.open = None

    def linger_left_s(self, now_ns: int) -> float | None:
        """How much longer the open batch waits for more records; None if there is none."""
        if self.open is None:
            return None
        return max(self.options.linger_s - (now_ns - self.open.opened_ns) / 1e9, 0.0)

    def call(self, batch: Batch) -> Call[WriteResponse]:
        return calls.append_many(
            self.topic,
            Raw(b"[%b]" % b",".join(batch.texts)),
            producer=Producer(self.name, batch.first_number),
            create=self.options.create,
            config=self.options.config,
        )

    def acknowledge(self, batch: Batch, reply: WriteResponse) -> list[Batch]:
        """The first batch is written; returns what that completes."""
        assert batch is self.full[0]
        self.full.popleft()
        self.buffered_bytes -= batch.byte_count
        self.acknowledged += len(batch.texts)
        batch.reply, batch.done = reply, True
        return [batch]

    def fail(self, error: BaseException) -> list[Batch]:
        """Nothing more will be written; returns the batches that never will be."""
        self.close_batch()
        lost = sum(len(batch.texts) for batch in self.full)
        self.failure = ProducerFailed(self.topic, self.name, lost, error)
        given_up = list(self.full)
        self.full.clear()
        self.buffered_bytes = 0
        for batch in given_up:
            batch.error, batch.done = self.failure, True
        return given_up


class ProducerShell:
    """What producers of both shells have."""

    def __init__(self, caller: Caller, pending: Pending) -> None:
        self._caller = caller
        self._pending = pending
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._pending.topic!r}, name={self._pending.name!r})"

    @property
    def name(self) -> str:
        return self._pending.name

    @property
    def next_sequence(self) -> int:
        """The number of the next record. When the producer is opened, the first number that it has not written yet."""
        return self._pending.next_number

    @property
    def unacknowledged(self) -> int:
        """How many records are on their way."""
        return self._pending.appended - self._pending.acknowledged

    def _refuse_fork(self) -> None:
        if os.getpid() != self._process:
            raise ProducerForked("this producer belongs to the process before the fork; make one in each process")

    def _add(self, text: bytes, sequence: int | None, callback: Callback | None) -> tuple[Batch, int, bool]:
        """The batch the record is in, its place there, and whether the sender has something new to wait for or to
        send. Hot: the clock is read once a batch."""
        pending = self._pending
        if pending.closed or pending.failure is not None:
            pending.check()
        now_ns = self._caller.clock.monotonic_ns() if pending.open is None else pending.open.opened_ns
        batch, index = pending.add(text, sequence, now_ns)
        if callback is not None:
            batch.callbacks.append((index, callback))
        return batch, index, index == 0 or batch is not pending.open

    def _due(self) -> Batch | float | None:
        """The batch to send now; or how long the open one still waits for more (`inf`: there is none); None when the
        producer is closed and everything is written."""
        pending = self._pending
        if not pending.full:
            left_s = pending.linger_left_s(self._caller.clock.monotonic_ns())
            if left_s is None:
                return None if pending.closed else inf
            if left_s > 0:
                return left_s
            pending.close_batch()
        return pending.full[0]


def call_back(batch: Batch) -> None:
    """Calls the callbacks, in the order of their records."""
    for index, callback in batch.callbacks:
        callback(None if batch.error else batch.outcome(index), batch.error)


async def open_pending(caller: Caller, topic: str, name: str | None, options: Options) -> Pending:
    """A producer without a name is new every time. One with a name continues where the topic last saw it."""
    if name is None:
        return Pending(topic, f"client-{uuid4().hex}", options, 0)
    check_producer_name(name)
    try:
        known = await caller.send(calls.producer_state(topic, name))
    except errors.TopicNotFound:
        if not options.create:
            raise
        return Pending(topic, name, options, 0)
    return Pending(topic, name, options, known.next_sequence)


def record_text(
    data: object, tag: str | None, node: str | None, meta: Mapping[str, str] | None, delay_ms: int
) -> bytes:
    """Hot: a record that is nothing but data takes half the time of one with more."""
    try:
        if tag is None and node is None and meta is None and not delay_ms:
            return b'{"data":%b}' % _encode(data)
        return _encode(NewRecord(data, tag, node, meta, delay_ms))
    except (TypeError, msgspec.MsgspecError, RecursionError) as error:
        raise errors.InvalidRequest.in_field("data", f"cannot be written as JSON: {error}") from None
