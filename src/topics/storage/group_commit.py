"""The thread of one WAL shard: turns what arrives into few writes and fewer syncs.

One turn (`step`): take everything queued, write it in one piece, then sync if anything in it asked for
that, or if unsynced bytes have waited `sync_interval_ms`. So a lone write is synced at once, and whatever
arrives while a sync runs shares the next one; there is no timer on that path. The journal wakes the thread at the end
of its turn, so that all writes of a turn share a sync.

Writes of one record that ask for no sync may be put into `deferred`: they become frames together, in `submit_deferred`
at the end of the turn of whoever submits, and in any case before what is submitted next.

Writes that do not ask for a sync wake a parked thread once and are then gathered for `write_gap_ms`,
because waking a thread for each of them costs more than the write. They are written within that time and
synced within `sync_interval_ms` of being written, also when nothing else arrives.

`on_durable(tickets, sync_ns)` and `on_failed(tickets, error)` are called on this thread, each ticket exactly
once, in the order of submission. `note_synced(lsn)` is called on it after each sync. After a failure everything not yet
durable and everything submitted later fails with the same error; `on_trouble` is told once. What the system had no room
for is no failure: it is held, with whatever comes behind it, and tried again while it `waits_for_room`, and
`on_trouble` is told once, too. Nor are files that cannot be removed: `on_untrimmed` is told, and it is tried again when
more are to go.

`submit` and `close` may be called from one other thread.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from msgspec import Struct, field

from topics import limits
from topics.clock import Clock
from topics.storage.errors import DiskFailed, NoRoom
from topics.storage.frame import SingleRecord, single_frames
from topics.storage.wal_writer import ShardWriter

Ticket = TypeVar("Ticket")


class LargeFrames(Protocol):
    """Frames that the writing thread makes, because that would take the submitting one too long."""

    def __len__(self) -> int:
        """About how many bytes that will be."""
        ...

    def encoded(self) -> bytes: ...


_Write = tuple[bytes | LargeFrames, int, bool, Ticket | None]
"""(frames, frame_count, needs_sync, ticket)"""

SYNC_BUCKETS_US = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000)


class SyncHistogram(Struct):
    """How long syncs took: `counts[i]` of up to `SYNC_BUCKETS_US[i]`, the last one of anything longer."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(SYNC_BUCKETS_US) + 1))
    total_us: int = 0

    def add(self, duration_ns: int) -> None:
        duration_us = duration_ns // 1000
        self.counts[bisect_left(SYNC_BUCKETS_US, duration_us)] += 1
        self.total_us += duration_us

    @property
    def count(self) -> int:
        return sum(self.counts)


class CommitThread(Generic[Ticket]):
    """See the module. `start` runs it as a thread; without that, `step` does one turn."""

    def __init__(
        self,
        writer: ShardWriter,
        clock: Clock,
        *,
        on_durable: Callable[[list[Ticket], int], None],
        on_failed: Callable[[list[Ticket], DiskFailed], None],
        sync_interval_ms: int,
        write_gap_ms: int,
        queue_writes_max: int,
        queue_bytes_max: int,
        note_synced: Callable[[int], None] = lambda lsn: None,
        on_trouble: Callable[[DiskFailed | NoRoom], None] = lambda trouble: None,
        on_untrimmed: Callable[[DiskFailed], None] = lambda failure: None,
    ) -> None:
        self.writer = writer  # for others its counters and lsns only: its methods belong to the thread
        self._clock = clock
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._note_synced = note_synced
        self._on_trouble = on_trouble
        self._on_untrimmed = on_untrimmed
        self._sync_interval_ns = sync_interval_ms * 1_000_000
        self._write_gap_ns = write_gap_ms * 1_000_000
        self._queue_writes_max = queue_writes_max
        self._queue_bytes_max = queue_bytes_max
        self._queue: deque[_Write[Ticket]] = deque()
        self._queued_bytes = 0
        self.deferred: list[SingleRecord] = []
        self._submitted_lsn = writer.next_lsn
        self._trim_below_lsn = 0
        self.failure: DiskFailed | None = writer.failure  # set, by the thread, once the shard is read-only
        # Guards what both threads touch: the queue, its size, the flags below.
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)
        self._sync_wanted = False
        self._gathering = False
        self.idle = False  # the thread neither writes nor syncs; set by it
        self._closing = False
        self._thread: threading.Thread | None = None
        # Touched by the writing side only.
        self._unsynced_tickets: list[Ticket] = []
        self._unsynced_since_ns = 0
        self._held: list[_Write[Ticket]] = []  # what the system had no room for, to be written before anything else
        self.no_room: NoRoom | None = None  # why, while that is so
        self.commit_window_ns = 0  # set by the other thread
        self.waits_for_room = True  # set by the other thread: False when what there is no room for is to be lost
        self._queue_depth_peak = 0
        self.sync_histogram = SyncHistogram()

    # The submitting side

    @property
    def queue_depth(self) -> int:
        return len(self._queue)

    @property
    def queue_depth_peak(self) -> int:
        return max(self._queue_depth_peak, len(self._queue))

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    @property
    def submitted_lsn(self) -> int:
        """The lsn after the last frame submitted, or deferred."""
        return self._submitted_lsn + len(self.deferred)

    @property
    def has_room(self) -> bool:
        """Whether a new operation may be begun; what belongs to one begun before is taken all the same."""
        return len(self._queue) < self._queue_writes_max and self._queued_bytes < self._queue_bytes_max

    @property
    def backlog_share(self) -> float:
        """How full the queue is: 1 when the next write would be refused."""
        return max(len(self._queue) / self._queue_writes_max, self._queued_bytes / self._queue_bytes_max)

    def submit(
        self,
        frames: bytes | LargeFrames,
        frame_count: int,
        needs_sync: bool,
        ticket: Ticket | None,
        *,
        wakes_later: bool = False,
    ) -> int:
        """Queue whole batches of frames. Returns the lsn after the last one. Hot; never blocks on the disk.

        Without a ticket nothing is reported. Raises the shard's `DiskFailed`, taking nothing. A full queue takes it
        all the same: who submits has asked `has_room` first. What needs a sync does not get it before `wake` is called
        by who `wakes_later`: so all of a turn share one, and the thread does not begin with the first.
        """
        if self.deferred:
            self.submit_deferred()
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._closing:
            raise ValueError("submit after close")
        self._submitted_lsn += frame_count
        self._queued_bytes += len(frames)
        if not needs_sync:
            # Without the lock, which the thread would have to hand over each time: it is gathering, and looks into the
            # queue after it has said that it is no more.
            self._queue.append((frames, frame_count, needs_sync, ticket))
            if self._gathering and self.has_room:
                return self._submitted_lsn
        with self._guard:
            if needs_sync:
                self._queue.append((frames, frame_count, needs_sync, ticket))
                self._sync_wanted = True
            if self.idle and not (needs_sync and wakes_later):
                self._changed.notify()
        return self._submitted_lsn

    def wake(self) -> None:
        """Begins with what was submitted by who `wakes_later`."""
        if self._sync_wanted:
            with self._guard:
                if self.idle:
                    self._changed.notify()

    def submit_deferred(self) -> None:
        """A shard that has failed meanwhile has lost them, as it has lost what was queued."""
        deferred, self.deferred = self.deferred, []
        if deferred:
            with suppress(DiskFailed):
                self.submit(single_frames(deferred), len(deferred), False, None)

    def trim_below(self, lsn: int) -> None:
        """Have the files removed that hold only frames below `lsn`, at the next turn."""
        with self._changed:
            self._trim_below_lsn = max(self._trim_below_lsn, lsn)
            self._changed.notify()

    def start(self, name: str) -> None:
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write and sync all that is queued, report it, end the thread, close the file.

        Every ticket is reported by then; `failure` tells whether the file was closed cleanly.
        """
        self.submit_deferred()
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        else:
            self._finish()

    # The writing side

    def step(self) -> int | None:
        """One turn. Returns in how many ns unsynced bytes are due, or None when everything is durable."""
        writes = self._take()
        if self.failure is not None:
            self._fail(writes, self.failure)
            return None
        try:
            if self.no_room is not None:
                self._trim()  # there may be room behind it
            if writes:
                # Theirs to fail from here on, should the write fail.
                self._unsynced_tickets += [ticket for _, _, _, ticket in writes if ticket is not None]
                self._held += writes
            needs_sync = self._write() if self._held else False
            if self.writer.unsynced:
                due_ns = self._unsynced_since_ns + self._sync_interval_ns - self._clock.monotonic_ns()
                if not needs_sync and due_ns > 0:
                    return due_ns
                self._sync()
            elif self._unsynced_tickets:
                # Whoever asked only whether everything is durable: it is.
                self._report(0)
            self._trim()
        except NoRoom as no_room:
            if self.waits_for_room:
                if self.no_room is None:
                    self.no_room = no_room
                    self._on_trouble(no_room)
                return None
            self.failure = DiskFailed(no_room.path, no_room.operation, no_room.os_error)
        except DiskFailed as failure:
            self.failure = failure
        if self.failure is not None:
            self._held = []
            self._fail([], self.failure)
            self._on_trouble(self.failure)
        return None

    def _trim(self) -> None:
        if self._trim_below_lsn:
            try:
                self.writer.remove_files_below(self._trim_below_lsn)
            except DiskFailed as failure:
                self._on_untrimmed(failure)
            self._trim_below_lsn = 0

    def _take(self) -> list[_Write[Ticket]]:
        with self._changed:
            count = len(self._queue)
            self._queue_depth_peak = max(self._queue_depth_peak, count)
            self._queued_bytes = 0
            self._sync_wanted = False
        # What is added meanwhile, without the lock, stays for the next turn.
        return [self._queue.popleft() for _ in range(count)]

    def _write(self) -> bool:
        """Writes what is held in one piece. Returns whether any of it asked for a sync. Raises `NoRoom`: it is held
        still."""
        writes = self._held
        if not self.writer.unsynced:
            self._unsynced_since_ns = self._clock.monotonic_ns()
        frame_count = sum(write[1] for write in writes)
        if frame_count:
            frames = [each if isinstance(each, bytes) else each.encoded() for each, _, _, _ in writes]
            self.writer.write(frames, frame_count)
        self._held, self.no_room = [], None
        return any(write[2] for write in writes)

    def _sync(self) -> None:
        began_ns = self._clock.monotonic_ns()
        self.writer.sync()
        self._note_synced(self.writer.synced_lsn)  # first: whoever is told may be gone with the next power cut
        sync_ns = self._clock.monotonic_ns() - began_ns
        self.sync_histogram.add(sync_ns)
        self._report(sync_ns)

    def _report(self, sync_ns: int) -> None:
        tickets, self._unsynced_tickets = self._unsynced_tickets, []
        if tickets:
            self._on_durable(tickets, sync_ns)

    def _fail(self, writes: list[_Write[Ticket]], failure: DiskFailed) -> None:
        tickets = self._unsynced_tickets + [ticket for _, _, _, ticket in writes if ticket is not None]
        self._unsynced_tickets = []
        if tickets:
            self._on_failed(tickets, failure)

    def _run(self) -> None:
        while not self._closing:
            due_ns = self.step()
            if self.no_room is not None:
                self._gather(limits.ROOM_RETRY_MS * 1_000_000)
                continue
            self._park(due_ns)
            if self.commit_window_ns:
                self._gather(self.commit_window_ns)
        self._finish()

    def _gather(self, window_ns: int) -> None:
        """Under pressure a commit waits for more to come: fewer syncs, each a little later."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or not (self.has_room or self._held), window_ns / 1e9)

    def _park(self, due_ns: int | None) -> None:
        """Sleep until there is work: at most until the sync is due, and gathering small writes meanwhile."""
        with self._changed:
            if due_ns is not None and not self._sync_wanted:
                self._gathering = True
                self._wait(min(due_ns, self._write_gap_ns))
                self._gathering = False
                due_ns -= self._write_gap_ns
            idle = not self._queue and (due_ns is not None or not self._trim_below_lsn)
            if idle and (due_ns is None or due_ns > 0):
                self._wait(due_ns)

    def _wait(self, timeout_ns: int | None) -> None:
        if self._closing:
            return
        self.idle = True
        self._changed.wait(None if timeout_ns is None else timeout_ns / 1e9)
        self.idle = False

    def _finish(self) -> None:
        self._sync_interval_ns = 0
        self.waits_for_room = False  # nobody tries again
        self.step()
        try:
            self.writer.close()
        except DiskFailed as failure:
            self.failure = failure
