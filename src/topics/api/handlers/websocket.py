"""GET /v0/ws: the handshake, after which the connection speaks JSON over WebSocket."""

import asyncio
import base64
from collections.abc import Callable, Coroutine
from typing import Any

from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.http import ChannelOwner, Request, Response, Upgrade
from topics.api.live import LiveConnections
from topics.api.routing import Route
from topics.errors import InvalidRequest, UpgradeRequired

NewConnection = Callable[[Call, Callable[[], None]], ChannelOwner]


class WebSocketHandlers:
    """`new_connection` makes the owner of a connection, given the call and how to give its slot back."""

    def __init__(self, connections: LiveConnections, new_connection: NewConnection) -> None:
        self._connections = connections
        self._new_connection = new_connection

    @Route(
        "GET",
        "/v0/ws",
        Scope.NONE,
        "Subscribe and publish over one WebSocket",
        {101: "application/json"},
        (400, 426),
    )
    def open(self, call: Call) -> Response:
        request = call.request
        if request.headers.get(b"upgrade", b"").lower() != b"websocket" or request.method != b"GET":
            raise UpgradeRequired("this path speaks WebSocket: open it with a WebSocket client")
        from websockets.utils import accept_key  # noqa: PLC0415 - with the first one, as the rest of the library

        accept = accept_key(check_handshake(request))
        connection = self._new_connection(call, self._connections.enter(call.key))
        head = (
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: %b\r\n\r\n" % accept.encode()
        )
        return Upgrade(101, b"", owner=connection, head=head)


def check_handshake(request: Request) -> str:
    """The client's key, when the request is a WebSocket handshake this server takes."""
    if not request.offers_upgrade:
        raise InvalidRequest(
            "the WebSocket handshake is an HTTP/1.1 request without a body and with Connection: Upgrade"
        )
    key = request.headers.get(b"sec-websocket-key", b"").decode("latin-1")
    if request.headers.get(b"sec-websocket-version") != b"13" or not _is_nonce(key):
        raise InvalidRequest(
            "the WebSocket handshake needs Sec-WebSocket-Version: 13 and a Sec-WebSocket-Key of 16 bytes in base64"
        )
    return key


def _is_nonce(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except ValueError:
        return False


class Tasks:
    """Coroutines under way: kept alive until they are done."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
