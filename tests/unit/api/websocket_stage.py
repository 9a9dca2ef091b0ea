"""A WebSocket over a fake connection, frame by frame; the client's end is the library's own protocol."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from doubles.fake_channel import FakeChannel
from doubles.live_stage import LiveStage
from doubles.manual_journal import ManualJournal
from topics.api.auth import ANYBODY, Key
from topics.api.websocket import WebSocketConnection

MESSAGE_BYTES_MAX = 1000


class Stage(LiveStage):
    """With one open connection."""

    def __init__(self, key: Key = ANYBODY, journal: ManualJournal | None = None, topics_max: int = 10) -> None:
        super().__init__(journal)
        self.channel = FakeChannel()
        self.released = 0
        self.connection = WebSocketConnection(
            self.engine,
            self.hub,
            self.clock,
            key,
            self.loop.call_later,
            self._spawn,
            self._release,
            message_bytes_max=MESSAGE_BYTES_MAX,
            watch_topics_max=topics_max,
            diff_limit_max=1000,
            node_bytes_max=128,
        )
        self.client = Protocol(Side.CLIENT, state=State.OPEN, max_size=None)
        self.connection.opened(self.channel)

    def send(self, op: str, **command: Any) -> None:
        self.client.send_text(json.dumps({"op": op, **command}).encode())
        self.flush()

    def flush(self) -> None:
        for data in self.client.data_to_send():
            if data and not self.channel.closed:
                self.connection.received(data)

    def events(self) -> list[Frame]:
        """What the server has sent since the last call."""
        self.settle()
        self.client.receive_data(self.channel.take())
        events = self.client.events_received()
        self.client.data_to_send()
        assert all(isinstance(event, Frame) for event in events)
        return events  # type: ignore[return-value]

    def frames(self) -> list[dict[str, Any]]:
        events = self.events()
        assert all(event.opcode is Opcode.TEXT for event in events), events
        return [json.loads(bytes(event.data)) for event in events]

    def ask(self, op: str, **command: Any) -> list[dict[str, Any]]:
        self.send(op, **command)
        return self.frames()

    @property
    def close_code(self) -> int | None:
        self.events()
        return None if self.client.close_rcvd is None else self.client.close_rcvd.code

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.task = asyncio.get_running_loop().create_task(work)

    def _release(self) -> None:
        self.released += 1
