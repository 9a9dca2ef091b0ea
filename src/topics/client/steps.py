"""Calls that take more than one request, or more than one read of an answer; written once, for both shells."""

from typing import Unpack

from topics import limits
from topics.client import calls
from topics.client.caller import Broken, ByteStream, Caller
from topics.client.calls import Config
from topics.client.errors import ExportCut, UnexpectedReply
from topics.wire.responses import ExportEnd, PutTopicResponse, RecordReply


async def configure(caller: Caller, name: str, **config: Unpack[Config]) -> PutTopicResponse:
    """Changes the given fields of a topic's configuration. Raises `TopicNotFound` if the topic does not exist."""
    await caller.send(calls.topic(name))
    return await caller.send(calls.create(name, **config))


async def open_export(caller: Caller, topic: str, from_seq: int, to_seq: int | None) -> "Export":
    return Export(topic, await caller.open(calls.export(topic, from_seq, to_seq)), limits.CLIENT_EXPORT_STALL_S)


class Export:
    """A range as one stream of lines. Whole only with its trailer."""

    def __init__(self, topic: str, stream: ByteStream, stall_s: float) -> None:
        self._topic = topic
        self._stream = stream
        self._stall_s = stall_s
        self._rest = b""
        self.trailer = ExportEnd(0, [])
        self._over = False

    async def next_records(self) -> list[RecordReply] | None:
        """What has arrived, at least one record; None after the trailer."""
        while not self._over:
            try:
                data = await self._stream.read(self._stall_s)
            except Broken as broken:
                raise ExportCut(self._topic, broken.reason) from None
            if not data:
                raise ExportCut(self._topic, "the connection was closed")
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()
            if len(self._rest) > limits.CLIENT_LINE_BYTES_MAX:
                raise UnexpectedReply("a line of an export is too long", self._stream.answer.status)
            records = self._take(lines)
            if records:
                return records
        return None

    def close(self) -> None:
        self._stream.close()

    def _take(self, lines: list[bytes]) -> list[RecordReply]:
        records: list[RecordReply] = []
        for line in lines:
            item = calls.export_line(line)
            if isinstance(item, RecordReply):
                records.append(item)
            elif item.error is None:
                self.trailer, self._over = item, True
            else:
                raise ExportCut(self._topic, item.error)
        return records
