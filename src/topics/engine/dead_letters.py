"""Moves records from one topic to another: dead letters of a queue, and their way back.

The deletion here and the append there are one batch of one log, the one of topics that exchange records: whenever a
crash comes, a job is in exactly one of the two. Both topics enter that log at their first move.
"""

from collections.abc import Callable, Iterable

from topics import limits
from topics.engine import log_reading
from topics.engine.admission import WriteLimits, admit
from topics.engine.flow import Flow
from topics.engine.forwarding import Forwarding
from topics.engine.journal import Busy, Commit
from topics.engine.records import Records
from topics.engine.topic import Topic
from topics.engine.topics import Topics
from topics.errors import TopicNotFound, TopicsError
from topics.model.config import Durability
from topics.model.operation import JobsDeleted
from topics.model.record import NewRecord

# The records have been admitted once; what is added to their meta must not stop them.
_UNBOUNDED = WriteLimits(*(1 << 40 for _ in WriteLimits._fields))


class DeadLetters:
    def __init__(self, flow: Flow, topics: Topics, records: Records, forwarding: Forwarding) -> None:
        self._flow = flow
        self._topics = topics
        self._records = records
        self._forwarding = forwarding
        self._moving: dict[Topic, set[int]] = {}

    def moving(self, source: Topic) -> set[int]:
        """The records of the topic that are on their way."""
        return self._moving.get(source, set())

    def move(
        self, source: Topic, records: dict[int, NewRecord], dest: str, *, dead_letters: bool, create: bool
    ) -> Commit:
        """Moves these live records. Done when they are there, or, with an error, when they are certain to be still
        here."""
        done = Commit()
        moving = self._moving.setdefault(source, set())
        moving.update(records)

        def end(commit: Commit) -> None:
            moving.difference_update(records)
            if not moving:
                self._moving.pop(source, None)

        done.when_done(end)
        self._begin(source, records, dest, done, dead_letters=dead_letters, create=create)
        return done

    def _begin(
        self,
        source: Topic,
        records: dict[int, NewRecord],
        dest_name: str,
        done: Commit,
        *,
        dead_letters: bool,
        create: bool,
    ) -> None:
        def again() -> None:
            self._begin(source, records, dest_name, done, dead_letters=dead_letters, create=create)

        def fail(error: TopicsError) -> None:
            self._stay(source, records, dead_letters=dead_letters)
            done.resolve(error, 0)

        if source.deleted:
            fail(TopicNotFound(source.name))
            return
        # It may have waited, and what was deleted, evicted or expired meanwhile has gone its own way.
        records = {seq: record for seq, record in records.items() if log_reading.is_live(source.log, seq)}
        if not records:
            done.resolve(None, 0)
            return
        if source.queue is not None:
            self._flow.state.before_change(source)
            source.queue.leave(records)
        try:
            dest = self._topics.find(dest_name)
            if dest is None:
                if not create:
                    raise TopicNotFound(dest_name)
                self._flow.await_open(dest_name)
                created = self._topics.create(self._topics.new(dest_name), exchange=True)
                if created is not None:
                    raise Busy(created)
                again()
                return
            self._flow.await_open(source.name, dest_name)
            if dead_letters:
                records = self._keep_back_what_does_not_fit(source, dest, records)
            commit = self._submit(source, dest, records, dead_letters=dead_letters)
        except Busy as busy:
            busy.when_over(again, fail)
            return
        except TopicsError as error:
            fail(error)
            return
        # Should the disk fail now, they may be there or here: nobody gets them, and the next start knows.
        _then(commit, lambda commit: done.resolve(commit.error, commit.sync_ns))

    def _submit(
        self, source: Topic, dest: Topic, records: dict[int, NewRecord], *, dead_letters: bool
    ) -> Commit | None:
        joined = self._flow.joined(source, dest)
        self._flow.admit(source, dest)
        if source.outbound:
            self._forwarding.forward_from(source)
        now_ms = self._flow.clock.now_ms()
        ts = max(now_ms, dest.assigned_ts)
        batch = admit(list(records.values()), None, dest.assigned_seq + 1, ts, _UNBOUNDED)
        self._records.check_room(dest, batch)
        deleted = JobsDeleted(topic_id=source.topic_id, ts=now_ms, seqs=list(records), dead_letters=dead_letters)
        journalled = source.log.outlives_process or dest.config.durability is not Durability.EPHEMERAL
        appended = self._records.appended(dest, batch, ts)
        if dest.config.durability is Durability.DISK:
            self._flow.reserve(dest, dest.assigned_seq, now_ms)
        return self._flow.submit([*joined, deleted, appended], (source, dest), gated=True, journalled=journalled)

    def _keep_back_what_does_not_fit(
        self, source: Topic, dest: Topic, records: dict[int, NewRecord]
    ) -> dict[int, NewRecord]:
        """Leaves out records that do not fit, so that the others need not wait: a later try takes them, when there is
        room."""
        fitting = self._records.fitting(dest, list(records.values()), _UNBOUNDED)
        seqs = list(records)
        going = {seqs[position]: records[seqs[position]] for position in fitting}
        self._stay(source, [seq for seq in seqs if seq not in going], dead_letters=True)
        return going

    def _stay(self, source: Topic, seqs: Iterable[int], *, dead_letters: bool) -> None:
        if source.queue is not None:
            # A dead letter that cannot be moved is not delivered either: the next try comes after a while.
            retry_ms = self._flow.clock.now_ms() + limits.MOVE_RETRY_MS if dead_letters else 0
            source.queue.stay(seqs, retry_ms)


def _then(commit: Commit | None, step: Callable[[Commit], None]) -> None:
    if commit is None:
        commit = Commit()
        commit.done = True
    commit.when_done(step)
