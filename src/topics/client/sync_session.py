"""The blocking session over WebSocket: `conversing.py` over a connection of the library `websockets`."""

from collections.abc import Mapping
from typing import Any

from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from topics import limits
from topics.client.caller import Broken, run
from topics.client.conversing import Conversation, refused_handshake
from topics.client.settings import ClientSettings
from topics.client.sync_items import Items
from topics.client.watching import Starts
from topics.wire.responses import WriteResponse


class BlockingSocket:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, text: bytes) -> None:
        try:
            self._connection.send(text, text=True)
        except (OSError, WebSocketException) as error:
            raise Broken(str(error), sent=True) from None

    async def receive(self) -> bytes:
        try:
            text: Any = self._connection.recv(decode=False)
        except (OSError, WebSocketException) as error:
            raise Broken(str(error), sent=True) from None
        return bytes(text)

    def close(self) -> None:
        self._connection.close()


async def connecting(settings: ClientSettings) -> BlockingSocket:
    try:
        connection: Any = connect(
            settings.websocket_url,
            additional_headers=settings.websocket_headers,
            ssl=settings.tls,
            compression=None,
            proxy=None,
            open_timeout=settings.timeout_s,
            close_timeout=limits.CLIENT_SESSION_CLOSE_S,
            max_size=limits.CLIENT_LINE_BYTES_MAX,
            legacy=True,
        )
    except InvalidStatus as refused:
        raise refused_handshake(refused.response) from None
    except (OSError, WebSocketException) as error:
        raise Broken(str(error) or type(error).__name__, sent=False) from None
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
