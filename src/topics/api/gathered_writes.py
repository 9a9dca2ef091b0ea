"""Single writes that wait for the disk: all that come to a topic in one turn of the loop are one append.

They share a sync anyway, and what surrounds it (an operation, its place in the queue, what is to happen when it is
durable) costs as much for one record as for all of them. Each is answered by itself. What the engine refuses together
is appended one by one, so that nobody is refused for the record of somebody else.
"""

from collections.abc import Callable

from topics import limits
from topics.api.call import Call
from topics.api.http import Response, Waiting
from topics.api.writes import reply_to
from topics.engine.engine import Appended, Engine, Write
from topics.engine.journal import Busy, Commit
from topics.errors import TopicsError


class GatheredWrites:
    def __init__(self, engine: Engine, at_turn_end: Callable[[Callable[[], None]], object]) -> None:
        self._engine = engine
        self._at_turn_end = at_turn_end
        self._gathered: dict[tuple[str, str | None], _Together] = {}

    def write(self, call: Call, write: Write) -> Waiting:
        """Appends the one record of the write at the end of this turn; the topic has to be there."""
        key = (call.name, write.node)
        is_first = not self._gathered
        together = self._gathered.get(key)
        if together is None:
            together = self._gathered[key] = _Together(self._engine, call.name)
        position = len(together.writes)
        together.writes.append(write)
        if position + 1 == limits.WRITES_GATHERED_MAX:
            del self._gathered[key]
            together.append()
        elif is_first:
            self._at_turn_end(self._append_all)
        return Waiting(together.commit, lambda: together.answer(call, position))

    def _append_all(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for together in gathered.values():
            together.append()


class _Together:
    """Writes to one topic. `commit` is done when it is known what became of each."""

    __slots__ = ("_appended", "_engine", "_left", "_outcomes", "_topic", "commit", "writes")

    def __init__(self, engine: Engine, topic: str) -> None:
        self._engine = engine
        self._topic = topic
        self.commit = Commit()
        self.writes: list[Write] = []
        self._appended: Appended | None = None  # all of them
        self._outcomes: dict[int, Appended | TopicsError] = {}  # else each, by its position
        self._left = 0

    def append(self) -> None:
        writes = self.writes
        if len(writes) > 1:
            # A topic that is deleted in the same turn is made again by one of them, which then says so.
            all_of_them = Write([write.records[0] for write in writes], writes[0].node, create=False)
            try:
                appended = self._engine.append(self._topic, all_of_them)
            except (Busy, TopicsError):
                pass  # one of them is in the way of the others
            else:
                self._appended = appended
                self._when_durable(appended, self.commit.resolve)
                return
        self._left = len(writes)
        for position in range(len(writes)):
            self._append_one(position)

    def _append_one(self, position: int) -> None:
        try:
            appended = self._engine.append(self._topic, self.writes[position])
        except Busy as busy:
            busy.when_over(lambda: self._append_one(position), lambda error: self._settle(position, error))
        except TopicsError as error:
            self._settle(position, error)
        else:
            self._when_durable(appended, lambda error, _: self._settle(position, error or appended))

    @staticmethod
    def _when_durable(appended: Appended, call: Callable[[TopicsError | None, int], None]) -> None:
        if appended.commit is None:
            call(None, 0)
        else:
            appended.commit.when_done(lambda commit: call(commit.error, commit.sync_ns))

    def _settle(self, position: int, outcome: Appended | TopicsError) -> None:
        self._outcomes[position] = outcome
        self._left -= 1
        if not self._left:
            self.commit.resolve(None, 0)

    def answer(self, call: Call, position: int) -> Response:
        """To the write at this position, once the commit is done."""
        if self.commit.error is not None:
            raise self.commit.error
        outcome, place = (self._appended, position) if self._appended is not None else (self._outcomes[position], 0)
        if isinstance(outcome, TopicsError):
            raise outcome
        reply = reply_to(call.name, outcome, True, call.elapsed_ms(), 0.0, place)
        return Response(201 if outcome.created else 200, reply)
