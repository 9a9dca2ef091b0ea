"""One open `/work` stream: jobs are leased to its worker and pushed, up to `max` at once.

The worker acks over HTTP. When the connection ends, what it holds is released at once.
"""

from collections.abc import Callable

from topics import limits
from topics.clock import Clock
from topics.delivery import sse
from topics.delivery.claim_desk import ClaimDesk
from topics.delivery.event_stream import EventStream
from topics.delivery.hub import CallLater
from topics.engine.queues import Claimer, Job
from topics.engine.topic import Topic


class WorkStream(EventStream):
    """`claimer` says for whom, how many at once, and as which connection."""

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
        """What it could take now, if anything."""
        queue = self.topic.queue
        if queue is None or not self.writable:
            return None
        room = self.claimer.count_max - queue.held_by(self.claimer.connection)
        return self.claimer._replace(count_max=room) if room > 0 else None

    def push(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.write(sse.event(b"job", self._head + job.text[1:], b"%d" % job.seq))
