"""A range of a topic as one stream of lines: every record, then a trailer that says what was lost on the way.

Goes as fast as the client reads, one batch a turn of the loop, so nobody else notices. The range is fixed when the
stream begins. A topic that is deleted meanwhile ends the stream with a trailer that says so.
"""

from collections.abc import Callable

from msgspec.json import encode

from topics import limits
from topics.delivery.hub import CallLater
from topics.delivery.watch_stream import Outlet
from topics.engine.engine import Engine
from topics.engine.journal import Busy
from topics.engine.topic import Topic
from topics.model.read_options import ReadOptions


class ExportStream:
    def __init__(
        self,
        engine: Engine,
        topic: Topic,
        from_seq: int,
        to_seq: int,
        call_later: CallLater,
        release: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._topic = topic
        self._cursor = from_seq
        self._to_seq = to_seq
        self._call_later = call_later
        self._release = release
        self._outlet: Outlet | None = None
        self._waiting = False  # a turn has been asked for, or a fetch
        self._tombstones: list[dict[str, object]] = []
        self._options = ReadOptions(
            limit=limits.DIFF_LIMIT_MAX, bytes_max=limits.DIFF_REPLY_BYTES_MAX, include_tags=True, to_seq=to_seq
        )

    def opened(self, channel: Outlet) -> None:
        self._outlet = channel
        self._turn()

    def received(self, data: bytes) -> None:
        """A stream has nothing to receive."""

    def drained(self) -> None:
        if not self._waiting:
            self._turn()

    def shutting_down(self) -> None:
        self._finish("the server is shutting down")

    def closed(self) -> None:
        self._outlet = None
        self._release()

    def _turn(self) -> None:
        self._waiting = False
        outlet = self._outlet
        if outlet is None or not outlet.writable:
            return
        if self._topic.deleted:
            self._finish("the topic was deleted")
            return
        if self._cursor >= self._to_seq:
            self._finish(None)
            return
        try:
            self._engine.refresh(self._topic)
            batch = self._topic.log.read(self._cursor, self._options)
        except Busy as busy:
            self._waiting = True
            busy.commit.when_done(lambda _: self._turn())
            return
        if batch.gap is not None:
            gap = batch.gap
            self._tombstones.append({"gap_from": gap.gap_from, "gap_to": gap.gap_to, "reason": gap.reason.value})
        self._cursor = batch.next_from_seq
        if batch.fragments:
            # A line is a record: line breaks between its tokens become spaces.
            lines = [fragment.replace(b"\n", b" ").replace(b"\r", b" ") for fragment in batch.fragments]
            outlet.write(b"\n".join(lines) + b"\n")
        self._waiting = True
        self._call_later(0, self._turn)

    def _finish(self, error: str | None) -> None:
        outlet = self._outlet
        if outlet is not None:
            end: dict[str, object] = {"next_from_seq": self._cursor, "tombstones": self._tombstones}
            if error is not None:
                end["error"] = error
            outlet.write(encode({"$end": end}) + b"\n")
            self.closed()
            outlet.close()
