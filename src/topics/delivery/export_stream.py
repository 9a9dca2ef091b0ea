"""A range of a topic as one stream: every record, then a trailer that says what was lost on the way.

Goes as fast as the client reads, and never holds more than one batch. On the loop a batch is only gathered, one a turn,
so nobody else notices; it is encoded on another thread. The range is fixed when the stream begins. If the topic is
deleted meanwhile, or a segment cannot be read, the stream ends with a trailer that says so.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from topics import limits
from topics.delivery.event_stream import Outlet
from topics.delivery.export_format import ExportFormat
from topics.delivery.hub import CallLater
from topics.engine import log_reading
from topics.engine.engine import Engine
from topics.engine.journal import Busy, Commit
from topics.engine.log_reading import ReadBatch
from topics.engine.topic import Topic
from topics.errors import TopicsError
from topics.model.read_options import ReadOptions
from topics.wire.responses import ExportedGap, ExportEnd

log = logging.getLogger("topics.export")


class OffLoop(Protocol):
    def __call__(self, job: Callable[[], bytes], done: Callable[[bytes | None], None]) -> None:
        """Runs `job` on another thread, and then `done` on this one: with the result, or None if it failed."""
        ...


class ExportStream:
    def __init__(
        self,
        engine: Engine,
        topic: Topic,
        from_seq: int,
        to_seq: int,
        form: ExportFormat,
        off_loop: OffLoop,
        call_later: CallLater,
        release: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._topic = topic
        self._cursor = from_seq
        self._to_seq = to_seq
        self._form = form
        self._off_loop = off_loop
        self._call_later = call_later
        self._release = release
        self._outlet: Outlet | None = None
        self._started = False
        self._ended: str | None = None  # why it has to end early
        self._busy = False  # a turn has been asked for, or a batch is fetched or encoded
        self._written = 0  # batches
        self._watching_for_stall = False
        self._tombstones: list[ExportedGap] = []
        self._options = ReadOptions(
            limit=limits.EXPORT_BATCH_RECORDS_MAX,
            bytes_max=limits.EXPORT_BATCH_BYTES_MAX,
            include_tags=True,
            to_seq=to_seq,
        )

    def opened(self, channel: Outlet) -> None:
        self._outlet = channel
        self._encode(partial(self._form.start, self._topic.name), self._begin)

    def received(self, data: bytes) -> None:
        """A stream has nothing to receive."""

    def drained(self) -> None:
        if not self._busy:
            self._turn()

    def end_with(self, error: TopicsError) -> None:
        self._ended = error.message
        if not self._busy:
            self._finish()

    def closed(self) -> None:
        self._outlet = None
        self._release()

    # A turn gathers a batch, has it encoded, and writes it; then comes the next one.

    def _begin(self, start: bytes) -> None:
        self._write(start)
        self._started = True

    def _turn(self) -> None:
        self._busy = False
        outlet = self._outlet
        if outlet is None:
            return
        if self._topic.deleted:
            self._ended = "the topic was deleted"
        if self._ended is not None or self._cursor >= self._to_seq:
            self._finish()
            return
        if not outlet.writable:
            self._watch_for_stall()
            return
        try:
            self._engine.refresh(self._topic)
            batch = log_reading.read(self._topic.log, self._cursor, self._options)
        except Busy as busy:
            self._busy = True
            busy.commit.when_done(self._fetched)
            return
        except TopicsError as error:
            self._fail(error)
            self._finish()
            return
        self._take(batch)

    def _take(self, batch: ReadBatch) -> None:
        if batch.gap is not None:
            gap = batch.gap
            self._tombstones.append(ExportedGap(gap.gap_from, min(gap.gap_to, self._to_seq), gap.reason.value))
        self._cursor = batch.next_from_seq
        if batch.fragments:
            self._encode(partial(self._form.records, batch.fragments), self._write)
        else:
            self._again()

    def _again(self) -> None:
        self._busy = True
        self._call_later(0, self._turn)

    def _fetched(self, commit: Commit) -> None:
        if commit.error is not None:
            self._fail(commit.error)
        self._turn()

    def _encode(self, job: Callable[[], bytes], then: Callable[[bytes], None]) -> None:
        def done(encoded: bytes | None) -> None:
            if encoded is None:
                self._ended = "the server could not encode it; its log says why"
            else:
                then(encoded)
            self._again()

        self._busy = True
        self._off_loop(job, done)

    def _write(self, data: bytes) -> None:
        self._written += 1
        if self._outlet is not None:
            self._outlet.write(data)

    def _fail(self, error: TopicsError) -> None:
        log.error('the export of topic "%s" ended early: %s', self._topic.name, error.message)
        self._ended = "the server could not read it; its log says why"

    def _finish(self) -> None:
        outlet = self._outlet
        if outlet is not None:
            # An Arrow stream that has no schema yet cannot have an end either: it is just cut off.
            if self._started:
                outlet.write(self._form.end(ExportEnd(self._cursor, self._tombstones, self._ended)))
            self.closed()
            outlet.close()

    # A client that stops reading

    def _watch_for_stall(self) -> None:
        if not self._watching_for_stall:
            self._watching_for_stall = True
            self._call_later(limits.EXPORT_STALL_S_MAX, partial(self._check_for_stall, self._written))

    def _check_for_stall(self, written: int) -> None:
        self._watching_for_stall = False
        outlet = self._outlet
        if outlet is None or outlet.writable:
            return
        if self._written > written:
            self._watch_for_stall()
        else:
            self.closed()
            outlet.close()
