"""An engine whose whole log is at hand, so that a test can fold it again and compare."""

import json
from collections.abc import Callable

import pytest
from engine_on_a_fake_clock import EngineOnAFakeClock, record
from msgspec import Raw

from doubles.manual_journal import ManualJournal
from topics.engine import log_reading
from topics.engine.apply import apply
from topics.engine.image import image_of
from topics.engine.journal import Busy, Commit
from topics.engine.replay import end_of_log
from topics.engine.state import State
from topics.engine.topic import Router, Topic
from topics.model.config import Durability, TopicConfigPatch
from topics.model.image import TopicImage
from topics.model.operation import Operation
from topics.model.router import RouterSettings
from topics.storage.frame import FrameDecoder
from topics.storage.operation_codec import encode, operations_of

PLAIN = RouterSettings()


class LoggingJournal(ManualJournal):
    """Has single records among its batches, too."""

    def append_single(self, topic_id: int, seq: int, ts: int, node: str | None, tag: str | None, data: Raw) -> bool:
        return False


class LoggedEngine(EngineOnAFakeClock):
    def __init__(self) -> None:
        self.journal = LoggingJournal()
        super().__init__(journal=self.journal)

    def make(self, name: str, durability: Durability = Durability.MEMORY, **patch: object) -> Topic:
        self.configure(TopicConfigPatch(durability=durability, **patch), name)  # type: ignore[arg-type]
        self.journal.sync()
        return self.engine.topic(name)

    def route(self, source: str, dest: str, settings: RouterSettings = PLAIN) -> Router:
        name = f"{source}->{dest}"
        self.engine.put_router(name, source, dest, settings, create_dest=False)
        self.journal.sync()
        return self.engine.router(name)

    def put(self, topic: str, *values: int) -> Commit | None:
        return self.write(*(record(b"%d" % value) for value in values), topic=topic).commit

    def data(self, topic: str) -> list[object]:
        return [json.loads(fragment)["data"] for fragment in self.read(topic=topic).fragments]

    def busy(self, call: Callable[[], object]) -> Commit:
        """What a call that cannot be taken now has to wait for."""
        with pytest.raises(Busy) as busy:
            call()
        return busy.value.commit

    def kinds(self) -> list[str]:
        return [type(each).__name__ for each in self.journal.operations]

    def folded(self) -> State:
        """The state a start would make of the log so far."""
        state = State()
        for operation in self.log():
            apply(state, operation)
        end_of_log(state)
        return state

    def log(self) -> list[Operation]:
        """Everything handed to the journal, written and read again."""
        frames = [frame for batch, gated in self.journal.batches for frame in encode(batch, durable=gated)]
        return list(operations_of(FrameDecoder(b"".join(frames))))


def shown(state: State) -> list[tuple[TopicImage, list[bytes]]]:
    """Every topic, as a snapshot and a reader would have it."""
    topics = sorted(state.topics, key=lambda topic: topic.topic_id)
    return [
        (image_of(topic), log_reading.texts_of(topic.log, log_reading.live_from(topic.log, 1, 1000)))
        for topic in topics
    ]
