"""The blocking producer: `producing.py` behind a lock, and a thread that sends."""

import atexit
import os
import select
import threading
from collections.abc import Mapping
from math import inf
from typing import Self

from topics.client.caller import Caller, run
from topics.client.producing import Batch, Callback, Pending, ProducerShell, call_back, record_text

SHARE_MASK = 63  # with a batch on its way, every 64th record lets other threads run


class Delivery:
    """A record on its way."""

    __slots__ = ("_batch", "_changed", "_index")

    def __init__(self, batch: Batch, index: int, changed: threading.Condition) -> None:
        self._batch = batch
        self._index = index
        self._changed = changed

    @property
    def done(self) -> bool:
        return self._batch.done

    def result(self, timeout_s: float | None = None) -> int | None:
        """Waits until the record is written as durably as its topic asks for; returns its seq, or None if the topic had
        it already under its number. Raises `ProducerFailed` where it never will be."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._batch.done, timeout_s):
                raise TimeoutError("the record is not acknowledged yet")
        return self._batch.outcome(self._index)


class Producer(ProducerShell):
    """Appends records in batches, each exactly once. For any number of threads; after a fork it refuses to work."""

    def __init__(self, caller: Caller, pending: Pending) -> None:
        super().__init__(caller, pending)
        self._lock = threading.Lock()  # taken by itself where it is hot: through the condition it costs twice as much
        self._changed = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._work, name=f"producer {pending.name}", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def append(
        self,
        data: object,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: Mapping[str, str] | None = None,
        delay_ms: int = 0,
        sequence: int | None = None,
        callback: Callback | None = None,
    ) -> Delivery:
        """Puts a record on its way; waits only while the buffer is full. `sequence` is its number, if the records have
        numbers of their own, such as lines of a file; it rises from record to record. `callback(seq, error)` is called
        once the record is written or given up, on the producer's own thread."""
        text = record_text(data, tag, node, meta, delay_ms)
        pending, changed = self._pending, self._changed
        if os.getpid() != self._process:
            self._refuse_fork()
        with self._lock:
            if not pending.has_room:
                changed.wait_for(lambda: pending.has_room or pending.failure is not None or pending.closed)
            batch, index, news = self._add(text, sequence, callback)
            if news:
                changed.notify_all()
        if not index & SHARE_MASK and pending.full:
            # The thread that sends may wait for the interpreter's lock: without this, for 5 ms each time.
            select.select((), (), (), 0)
        return Delivery(batch, index, changed)

    def flush(self) -> None:
        """Waits until everything appended so far is written. Raises `ProducerFailed` if that is not possible."""
        self._refuse_fork()
        with self._changed:
            self._pending.close_batch()
            last = self._pending.full[-1] if self._pending.full else None
            self._changed.notify_all()
            self._changed.wait_for(lambda: last is None or last.done)
            if self._pending.failure is not None:
                raise self._pending.failure

    def close(self) -> None:
        """Writes what is left and ends. Raises `ProducerFailed` if that is not possible; called again, it does
        nothing."""
        if os.getpid() != self._process:
            return  # the parent has all there is to close
        with self._changed:
            if self._pending.closed:
                return
            self._pending.closed = True
            self._pending.close_batch()
            self._changed.notify_all()
        self._thread.join()
        atexit.unregister(self.close)
        if self._pending.failure is not None:
            raise self._pending.failure

    # The thread

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            try:
                reply = run(self._caller.send(self._pending.call(batch)))
            except BaseException as error:  # nobody watches this thread: those who wait for a write, or close, get it
                self._settle_failed(error)
                return
            with self._changed:
                done = self._pending.acknowledge(batch, reply)
                self._changed.notify_all()
            try:
                for each in done:
                    call_back(each)
            except BaseException as error:  # raised by a callback: reported in the same way
                self._settle_failed(error)
                return

    def _next(self) -> Batch | None:
        """The batch to send; waits for it. None when the producer is closed and everything is written."""
        with self._changed:
            while isinstance(due := self._due(), float | int):
                self._changed.wait(None if due == inf else due)
            return due

    def _settle_failed(self, error: BaseException) -> None:
        with self._changed:
            given_up = self._pending.fail(error)
            self._changed.notify_all()
        for batch in given_up:
            call_back(batch)
