"""Single writes that wait for the disk: those that come to a topic while the disk is busy are one append.

They share a sync anyway, and what surrounds it (an operation, its place in the queue, what is to happen when it is
durable) costs as much for one record as for all of them. The first is appended at the end of the loop's turn; those
that come before it is durable are the next append. Each is answered by itself. What the engine refuses together is
appended one by one, so that nobody is refused for the record of somebody else.
"""

from collections.abc import Callable

from topics import limits
from topics.api.call import Call
from topics.api.http import Response, Waiting
from topics.api.writes import reply_to
from topics.engine.engine import Appended, Engine, Write
from topics.engine.journal import Busy, Commit
from topics.engine.topic import Topic
from topics.errors import TopicsError

_Key = tuple[str, str | None]
"""Topic and default node."""


class GatheredWrites:
    def __init__(self, engine: Engine, at_turn_end: Callable[[Callable[[], None]], object]) -> None:
        self._engine = engine
        self._at_turn_end = at_turn_end
        self._gathered: dict[_Key, _Together] = {}
        self._under_way: set[_Key] = set()  # have an append that is not durable yet: what comes meanwhile is the next
        self._last_counts: dict[_Key, int] = {}  # how many the last append had, where it was more than one
        self._looks_at_turn_end = False

    def write(self, call: Call, topic: Topic, write: Write) -> Waiting:
        """Appends the one record of the write."""
        key = (topic.name, write.node)
        if key in self._under_way:
            self._engine.check_disk(topic)  # what is under way may wait for room: whoever comes then is refused at once
        together = self._gathered.get(key)
        if together is None:
            together = self._gathered[key] = _Together(self._engine, topic.name, self._last_counts.pop(key, 1))
        position = len(together.writes)
        together.writes.append(write)
        if position + 1 >= limits.WRITES_GATHERED_MAX:
            self._append(key, together)
        elif key not in self._under_way:
            self._look_at_turn_end()
        return Waiting(together.commit, lambda: together.answer(call, position))

    def _look_at_turn_end(self) -> None:
        if not self._looks_at_turn_end:
            self._looks_at_turn_end = True
            self._at_turn_end(self._look)

    def _look(self) -> None:
        """Appends what nothing more is expected for. Those who were answered together mostly write again together:
        waiting a moment for the last of them saves a sync."""
        self._looks_at_turn_end = False
        for key, together in list(self._gathered.items()):
            if key in self._under_way:
                continue
            if len(together.writes) < together.expected and together.turns_left:
                together.turns_left -= 1
                self._look_at_turn_end()
            else:
                self._append(key, together)

    def _append(self, key: _Key, together: "_Together") -> None:
        del self._gathered[key]
        self._under_way.add(key)
        together.commit.when_done(lambda _: self._over(key, len(together.writes)))
        together.append()

    def _over(self, key: _Key, count: int) -> None:
        self._under_way.discard(key)
        together = self._gathered.get(key)
        if together is not None:
            together.expected = len(together.writes) + count
            self._look_at_turn_end()
        elif count > 1:
            if len(self._last_counts) >= limits.WRITERS_REMEMBERED_MAX:
                self._last_counts.clear()
            self._last_counts[key] = count


class _Together:
    """Writes to one topic. `commit` is done when it is known what became of each."""

    __slots__ = ("_appended", "_engine", "_left", "_outcomes", "_topic", "commit", "expected", "turns_left", "writes")

    def __init__(self, engine: Engine, topic: str, expected: int) -> None:
        self._engine = engine
        self._topic = topic
        self.expected = expected  # how many there will probably be
        self.turns_left = limits.WRITES_AWAITED_TURNS
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
