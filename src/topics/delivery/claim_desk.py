"""Where those who want jobs wait: claims inside their queue's window, and the streams jobs are pushed to.

A queue with `claim_jitter_ms` gathers claims that long and serves them, with its streams, in one pass that divides
the jobs. Without, a claim is served at once, and the streams whenever there may be something for them: jobs were
written, leases ended, or a worker has room again.
"""

import asyncio
from collections.abc import Callable
from itertools import count

from topics import limits
from topics.clock import Clock
from topics.delivery import sse
from topics.delivery.event_stream import EventStream
from topics.delivery.hub import CallLater, Hub
from topics.delivery.shared_batches import SharedBatches
from topics.engine.journal import Busy, Commit
from topics.engine.queues import Claim, Claimer, Job, Queues
from topics.engine.topic import Topic
from topics.errors import StorageFailed, Throttled, TopicNotFound, TopicsError


class _Waiting:
    """A claim inside its window."""

    __slots__ = ("answer", "claimer")

    def __init__(self, claimer: Claimer, answer: "asyncio.Future[Claim]") -> None:
        self.claimer = claimer
        self.answer = answer


class ClaimDesk:
    """Implements `topics.delivery.hub.Watcher` for all its streams."""

    def __init__(self, queues: Queues, hub: Hub, clock: Clock, call_later: CallLater) -> None:
        self._queues = queues
        self._hub = hub
        self._clock = clock
        self._call_later = call_later
        self._streams: dict[Topic, dict[WorkStream, None]] = {}
        self._waiting: dict[Topic, list[_Waiting]] = {}
        self._due: set[Topic] = set()  # a pass has been asked for
        self._alarms: dict[Topic, int] = {}  # when to look whether leases have ended, ms
        self._connections = count(1)
        queues.on_change = self.changed

    # Claims

    async def claim(self, topic: Topic, claimer: Claimer) -> Claim:
        """Serves the claim together with all others that come to this queue within its window."""
        waiting = _Waiting(claimer, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(topic, []).append(waiting)
        self._ask_for_pass(topic)
        return await waiting.answer

    def release(self) -> None:
        """Serves everybody who waits now: the server is stopping."""
        for topic in tuple(self._waiting):
            self._pass(topic)

    # Streams

    def new_connection(self) -> int:
        return next(self._connections)

    def join(self, worker: "WorkStream") -> None:
        topic = worker.topic
        if topic not in self._streams:
            self._hub.watch(topic, self)
        self._streams.setdefault(topic, {})[worker] = None
        self.changed(topic)

    def leave(self, worker: "WorkStream") -> None:
        streams = self._streams.get(worker.topic)
        if streams is None or worker not in streams:
            return
        del streams[worker]
        if not streams:
            del self._streams[worker.topic]
            self._hub.unwatch(worker.topic, self)
        self._queues.release(worker.topic, worker.claimer.connection)

    def changed(self, topic: Topic) -> None:
        """There may be something to claim, or room for it. Once per ack."""
        if topic in self._streams:
            self._ask_for_pass(topic)

    def serve(self, topic: Topic, shared: SharedBatches) -> int:
        self.changed(topic)
        return 0

    def pace(self, topics: list[str], retry_after_ms: int) -> None:
        """Jobs go on under pressure: a worker that has asked for them waits for nothing else."""

    # Passes

    def _ask_for_pass(self, topic: Topic) -> None:
        if topic not in self._due:
            self._due.add(topic)
            self._call_later(0 if topic.deleted else topic.config.claim_jitter_ms / 1000, lambda: self._pass(topic))

    def _pass(self, topic: Topic) -> None:
        self._due.discard(topic)
        polls = [waiting for waiting in self._waiting.pop(topic, ()) if not waiting.answer.done()]
        if topic.deleted:
            self._tell_gone(topic, polls)
            return
        self._queues.swept(topic)  # a worker has room again for jobs whose lease has ended
        wishes = [(worker, wish) for worker in self._streams.get(topic, ()) if (wish := worker.wish()) is not None]
        claimers = [*(poll.claimer for poll in polls), *(wish for _, wish in wishes)]
        if not claimers:
            self._set_alarm(topic)
            return
        try:
            claims = self._queues.claim(topic, claimers)
        except Busy as busy:
            self._waiting[topic] = polls + self._waiting.get(topic, [])
            self._due.add(topic)
            busy.when_over(lambda: self._pass(topic), lambda error: self._fail(topic, error))
            return
        except TopicsError as error:
            self._refuse(topic, polls, error)
            return
        except OSError as error:
            self._refuse(topic, polls, StorageFailed(f'queue "{topic.name}" cannot be read: {error}'))
            return
        for poll, claim in zip(polls, claims, strict=False):
            poll.answer.set_result(claim)
        for (worker, _), claim in zip(wishes, claims[len(polls) :], strict=True):
            if claim.commit is None:
                worker.push(claim.jobs)
            else:
                claim.commit.when_done(_pusher(worker, claim.jobs))
        self._set_alarm(topic)

    def _fail(self, topic: Topic, error: TopicsError) -> None:
        """A pass waited for something that failed."""
        self._due.discard(topic)
        self._refuse(topic, self._waiting.pop(topic, []), error)

    def _refuse(self, topic: Topic, polls: list[_Waiting], error: TopicsError) -> None:
        for poll in polls:
            if not poll.answer.done():
                poll.answer.set_exception(error)
        if isinstance(error, Throttled):
            # The streams stay: their turn comes when the disk has caught up.
            self._call_later(error.retry_after_s, lambda: self.changed(topic))
            return
        for worker in tuple(self._streams.get(topic, ())):
            worker.fail(503, error.message)

    def _tell_gone(self, topic: Topic, polls: list[_Waiting]) -> None:
        for poll in polls:
            poll.answer.set_exception(TopicNotFound(topic.name))
        for worker in tuple(self._streams.get(topic, ())):
            worker.fail(409, f'queue "{topic.name}" was deleted')

    def _set_alarm(self, topic: Topic) -> None:
        """Looks again when the next lease or delay ends: streams do not ask by themselves."""
        at_ms = None if topic.queue is None or topic not in self._streams else topic.queue.next_change_ms()
        if at_ms is None or self._alarms.get(topic, at_ms + 1) <= at_ms:
            return
        self._alarms[topic] = at_ms
        self._call_later(max(at_ms - self._clock.now_ms(), 0) / 1000, lambda: self._alarm(topic, at_ms))

    def _alarm(self, topic: Topic, at_ms: int) -> None:
        if self._alarms.get(topic) == at_ms:
            del self._alarms[topic]
            self.changed(topic)


class WorkStream(EventStream):
    """One open `/work` stream: jobs are leased to its worker and pushed, up to `max` at once. The worker acks over
    HTTP. When the connection ends, what it holds is released at once.

    `claimer` says for whom, how many at once, and as which connection.
    """

    def __init__(
        self,
        desk: ClaimDesk,
        topic: Topic,
        claimer: Claimer,
        clock: Clock,
        call_later: CallLater,
        release: Callable[[], None],
    ) -> None:
        super().__init__(clock, call_later, limits.HEARTBEAT_MS_DEFAULT, release)
        self._desk = desk
        self.topic = topic
        self.claimer = claimer
        self._head = b'{"topic":"%b",' % topic.name.encode()

    def started(self) -> None:
        self.write(sse.heartbeat(self._clock.now_ms()))
        self._desk.join(self)

    def resumed(self) -> None:
        self._desk.changed(self.topic)

    def stopped(self) -> None:
        self._desk.leave(self)

    def wish(self) -> Claimer | None:
        """How many jobs it could take now, if any."""
        queue = self.topic.queue
        if queue is None or not self.writable:
            return None
        room = self.claimer.count_max - len(queue.leases.held_by(self.claimer.connection))
        return self.claimer._replace(count_max=room) if room > 0 else None

    def push(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.write(sse.event(b"job", self._head + job.text[1:], b"%d" % job.seq))


def _pusher(worker: WorkStream, jobs: list[Job]) -> Callable[[Commit], None]:
    """Pushes jobs whose leases are durable. The others were taken back."""

    def push(commit: Commit) -> None:
        if commit.error is None:
            worker.push(jobs)
        else:
            worker.fail(503, commit.error.message)

    return push
