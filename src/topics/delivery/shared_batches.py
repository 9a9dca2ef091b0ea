"""Batches of one topic read once for all watchers that stand at the same place and want the same.

Lives for one serving of the topic, in which nothing changes.
"""

from topics.engine.topic import Topic
from topics.engine.topic_log import ReadBatch
from topics.model.read_options import ReadOptions


class SharedBatch:
    """A batch and the texts made from it, each made by the first who needs it."""

    __slots__ = ("batch", "texts")

    def __init__(self, batch: ReadBatch) -> None:
        self.batch = batch
        self.texts: dict[object, bytes] = {}


class SharedBatches:
    """`fresh`: the topic has been brought up to date, which is done once for all."""

    __slots__ = ("_read", "fresh", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.fresh = False
        self._read: dict[tuple[int, ReadOptions], SharedBatch] = {}

    def read(self, from_seq: int, options: ReadOptions) -> SharedBatch:
        key = (from_seq, options)
        shared = self._read.get(key)
        if shared is None:
            shared = self._read[key] = SharedBatch(self.topic.log.read(from_seq, options))
        return shared
