"""The blocking session over WebSocket: `conversing.py` over a connection of the library `websockets`."""

from collections.abc import Mapping
from typing import Any

from websockets.sync.client import ClientConnection, connect

from topics.client.caller import run
from topics.client.conversing import Conversation
from topics.client.settings import ClientSettings
from topics.client.sync_items import Items
from topics.client.watching import Starts
from topics.client.websocket import breaking, connect_options
from topics.wire.responses import WriteResponse


class BlockingSocket:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, text: bytes) -> None:
        with breaking(sent=True):
            self._connection.send(text, text=True)

    async def receive(self) -> bytes:
        with breaking(sent=True):
            text: Any = self._connection.recv(decode=False)
        return bytes(text)

    def close(self) -> None:
        self._connection.close()


async def connecting(settings: ClientSettings) -> BlockingSocket:
    with breaking(sent=False):
        connection: Any = connect(**connect_options(settings), legacy=True)
    return BlockingSocket(connection)


class Session(Items[Any]):
    """Both directions over one connection: subscribe and iterate, publish in between. For one thread at a time."""

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(conversation)
        self._conversation = conversation

    def subscribe(self, topics: Starts, *, tail: bool = False) -> None:
        """Subscribes to these topics, from their beginning, or after the seqs given for them."""
        run(self._conversation.subscribe(topics, tail=tail))

    def unsubscribe(self, topic: str) -> None:
        run(self._conversation.unsubscribe(topic))

    def publish(
        self, topic: str, *records: object, key: str | None = None, config: Mapping[str, object] | None = None
    ) -> WriteResponse:
        """Appends records, all or none. What arrives meanwhile is kept for the iteration."""
        return run(self._conversation.publish(topic, records, key=key, config=config))

    def ping(self) -> None:
        """Returns when the server has answered."""
        run(self._conversation.ping())
