"""Moves records from one topic to another so that, whenever a crash comes, they are in one of the two.

Both topics may be on different shards of the log, so one write cannot do it:

    begun       durable in the source: these records go to that topic, in a write with this idempotency key
    copied      durable in the destination, under that key, before anybody sees it there
    deleted     in the source, as durably as its class makes any deletion

After a crash the key says whether the copy is there: then the deletion is done again, else the move never happened.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from topics import limits
from topics.clock import Clock
from topics.engine.admission import WriteLimits
from topics.engine.engine import Appended, Engine, Write
from topics.engine.journal import Busy, Commit, Journal
from topics.engine.topic import Topic
from topics.errors import InvalidRequest, TopicNotFound, TopicsError
from topics.model.config import TopicConfigPatch
from topics.model.lease_event import MoveBegun, MoveGivenUp
from topics.model.record import NewRecord

# The records have been admitted once; what is added to their meta must not stop them.
_UNBOUNDED = WriteLimits(*(1 << 40 for _ in WriteLimits._fields))


class Moves:
    def __init__(self, engine: Engine, clock: Clock, journal: Journal) -> None:
        self._engine = engine
        self._clock = clock
        self._journal = journal

    def start(
        self, source: Topic, records: dict[int, NewRecord], dest: str, *, dead_letters: bool, create: bool
    ) -> Commit:
        """Moves these live records. Done when they are where they belong: there, or, with an error, still here."""
        done = Commit()
        move = _Move(self._engine, self._clock, self._journal, source, records, dest, dead_letters, create, done)
        move.begin()
        return done


class _Move:
    """One move under way. Each step runs when the one before is durable."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        journal: Journal,
        source: Topic,
        records: dict[int, NewRecord],
        dest: str,
        dead_letters: bool,
        create: bool,
        done: Commit,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._journal = journal
        self._source = source
        self._records = records
        self._dest = dest
        self._dead_letters = dead_letters
        self._create = create
        self._done = done
        self._dest_id = 0
        self._key = ""
        self._copied: list[int] = []
        self._sync_ns = 0

    def begin(self) -> None:
        engine, source = self._engine, self._source
        if source.deleted:
            self._fail(TopicNotFound(source.name))
            return
        # It may have waited, and what was deleted, evicted or expired meanwhile has gone its own way.
        self._records = {seq: record for seq, record in self._records.items() if source.log.is_live(seq)}
        if not self._records:
            self._done.resolve(None, self._sync_ns)
            return
        if source.queue is not None:
            source.queue.leave(self._records)
        try:
            dest = engine.find_topic(self._dest)
            if dest is None:
                if not self._create:
                    raise TopicNotFound(self._dest)
                # Its own commit, so that the copies below are for a topic that is there whatever happens.
                self._then(engine.put_topic(self._dest, TopicConfigPatch()).commit, self.begin)
                return
            if self._dead_letters:
                self._keep_back_what_does_not_fit(dest)
            if self._is_journalled:
                self._journal.admit(source.topic_id)
        except Busy as busy:
            self._then(busy.commit, self.begin)
            return
        except TopicsError as error:
            self._fail(error)
            return
        number = source.event_number + 1
        self._dest_id = dest.topic_id
        self._key = f"$move/{source.topic_id}/{number}"
        event = MoveBegun(number, list(self._records), self._dest_id, self._key, self._dead_letters)
        commit = None
        if self._is_journalled:
            commit = self._journal.lease(source.topic_id, self._clock.now_ms(), event, gated=True)
        engine.apply_lease_event(source, event)
        self._then(commit, self._copy)

    def _keep_back_what_does_not_fit(self, dest: Topic) -> None:
        """The others need not wait for it: the next try takes it, when there is room."""
        fitting = self._engine.fitting_records(dest, list(self._records.values()), _UNBOUNDED)
        seqs = list(self._records)
        moving = {seqs[position]: self._records[seqs[position]] for position in fitting}
        self._stay(seq for seq in seqs if seq not in moving)
        self._records = moving

    def _copy(self) -> None:
        source = self._source
        if source.deleted:
            self._fail(TopicNotFound(source.name))
            return
        # What was deleted, evicted or expired meanwhile has gone its own way.
        self._copied = [seq for seq in self._records if source.log.is_live(seq)]
        if not self._copied:
            self._delete()
            return
        try:
            appended = self._append()
        except Busy as busy:
            self._then(busy.commit, self._copy)
        except TopicsError as error:
            self._give_up(error)
        else:
            self._then(appended.commit, self._delete, self._break_off)

    def _append(self) -> Appended:
        dest = self._engine.find_topic(self._dest)
        if dest is None or dest.topic_id != self._dest_id:
            raise TopicNotFound(self._dest)  # or another one of its name, of which `begun` says nothing
        write = Write([self._records[seq] for seq in self._copied], idempotency_key=self._key, create=False, gated=True)
        appended = self._engine.append(self._dest, write, _UNBOUNDED)
        if appended.deduped:
            # Somebody has used this very key. The next try has another one.
            raise InvalidRequest(f'a write to "{self._dest}" used the key {self._key}')
        return appended

    def _delete(self) -> None:
        source = self._source
        commit = None
        if not source.deleted:
            try:
                commit = self._engine.delete_jobs(
                    source, self._copied, node=None, move=self._key, journalled=self._is_journalled
                )
            except TopicsError as error:
                self._break_off(error)
                return
        self._then(commit, lambda: self._done.resolve(None, self._sync_ns), self._break_off)

    def _give_up(self, error: TopicsError) -> None:
        source = self._source
        self._stay(self._records)
        if not source.deleted:
            event = MoveGivenUp(source.event_number + 1, self._key)
            if self._is_journalled:
                with suppress(TopicsError):  # after a restart the missing copy says the same
                    self._journal.admit(source.topic_id)
                    self._journal.lease(source.topic_id, self._clock.now_ms(), event, gated=False)
            self._engine.apply_lease_event(source, event)
        self._done.resolve(error, self._sync_ns)

    def _fail(self, error: TopicsError) -> None:
        self._stay(self._records)
        self._source.moves.pop(self._key, None)
        self._done.resolve(error, self._sync_ns)

    def _break_off(self, error: TopicsError) -> None:
        """A disk failed, so the copy is there or may be: nobody gets the records here. The next start knows."""
        self._done.resolve(error, self._sync_ns)

    def _stay(self, seqs: Iterable[int]) -> None:
        if self._source.queue is not None:
            # A dead letter that cannot be moved is not delivered either: the next try comes after a while.
            retry_ms = self._clock.now_ms() + limits.MOVE_RETRY_MS if self._dead_letters else 0
            self._source.queue.stay(seqs, retry_ms)

    @property
    def _is_journalled(self) -> bool:
        return self._source.log.outlives_process

    def _then(
        self, commit: Commit | None, step: Callable[[], None], fail: Callable[[TopicsError], None] | None = None
    ) -> None:
        if commit is None:
            step()
            return

        def done(commit: Commit) -> None:
            self._sync_ns += commit.sync_ns
            if commit.error is None:
                step()
            else:
                (fail or self._fail)(commit.error)

        commit.when_done(done)
