"""The session over WebSocket for asyncio: `conversing.py` over a connection of the library `websockets`."""

from collections.abc import Mapping
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from topics.client.async_items import AsyncItems
from topics.client.conversing import Conversation
from topics.client.settings import ClientSettings
from topics.client.watching import Starts
from topics.client.websocket import breaking, connect_options
from topics.wire.responses import WriteResponse


class AwaitedSocket:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, text: bytes) -> None:
        with breaking(sent=True):
            await self._connection.send(text, text=True)

    async def receive(self) -> bytes:
        with breaking(sent=True):
            text: Any = await self._connection.recv(decode=False)
        return bytes(text)

    def close(self) -> None:
        self._connection.transport.abort()


async def connecting(settings: ClientSettings) -> AwaitedSocket:
    with breaking(sent=False):
        connection: Any = await connect(**connect_options(settings))
    return AwaitedSocket(connection)


class AsyncSession(AsyncItems[Any]):
    """Both directions over one connection: subscribe and iterate, publish in between. For one task at a time."""

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(conversation)
        self._conversation = conversation

    async def subscribe(self, topics: Starts, *, tail: bool = False) -> None:
        """Subscribes to these topics, from their beginning, or after the seqs given for them."""
        await self._conversation.subscribe(topics, tail=tail)

    async def unsubscribe(self, topic: str) -> None:
        await self._conversation.unsubscribe(topic)

    async def publish(
        self, topic: str, *records: object, key: str | None = None, config: Mapping[str, object] | None = None
    ) -> WriteResponse:
        """Appends records, all or none. What arrives meanwhile is kept for the iteration."""
        return await self._conversation.publish(topic, records, key=key, config=config)

    async def ping(self) -> None:
        """Returns when the server has answered."""
        await self._conversation.ping()
