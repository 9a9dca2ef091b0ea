"""A client of `/v0/ws`: commands out, frames in, and connections for what the library would not send."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from conformance.client import TIMEOUT_S, Api, Reply, Topic

NewTopic = Callable[..., Topic]

UPGRADE = [
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
]
HANDSHAKE = "".join(f"{line}\r\n" for line in ["GET /v0/ws HTTP/1.1", "Host: h", *UPGRADE, ""]).encode()


class Client:
    """Commands out, frames in. A frame that does not come fails the test."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, op: str, **command: Any) -> None:
        self.connection.send(json.dumps({"op": op, **command}))

    def frame(self) -> dict[str, Any]:
        message = self.connection.recv(TIMEOUT_S)
        assert isinstance(message, str)
        value = json.loads(message)
        assert isinstance(value, dict)
        return value

    def ask(self, op: str, **command: Any) -> dict[str, Any]:
        self.send(op, **command)
        return self.frame()

    def error(self, op: str, **command: Any) -> tuple[str, str | None]:
        """The code and request id of the error a command is answered with."""
        frame = self.ask(op, **command)
        assert frame["op"] == "error", frame
        assert isinstance(frame["message"], str)
        assert frame["message"]
        return frame["code"], frame.get("request_id")

    def subscribe(self, **command: Any) -> list[dict[str, Any]]:
        """Subscribes to one topic; the frames up to caught_up."""
        assert self.ask("subscribe", **command)["op"] == "subscribed"
        frames = [self.frame()]
        while frames[-1]["op"] != "caught_up":
            frames.append(self.frame())
        return frames

    def close_code(self) -> int:
        """The next thing that comes must be the server's close."""
        with pytest.raises(ConnectionClosed) as closed:
            self.connection.recv(TIMEOUT_S)
        assert closed.value.rcvd is not None, "the server went without a word"
        return closed.value.rcvd.code


@contextlib.contextmanager
def connected(api: Api) -> Iterator[Client]:
    headers = {} if api.key is None else {"Authorization": f"Bearer {api.key}"}
    with connect(
        f"ws://{api.host}:{api.port}/v0/ws",
        additional_headers=headers,
        open_timeout=TIMEOUT_S,
        close_timeout=TIMEOUT_S,
        max_size=None,
        proxy=None,
    ) as connection:
        yield Client(connection)


def seqs(frame: dict[str, Any]) -> list[int]:
    assert frame["op"] == "record", frame
    return [record["$seq"] for record in frame["records"]]


def gist(frames: list[dict[str, Any]]) -> list[Any]:
    return [seqs(frame) if frame["op"] == "record" else frame["op"] for frame in frames]


def handshake(api: Api, *lines: str, method: str = "GET") -> Reply:
    with api.connection() as connection:
        connection.send(connection.head(f"{method} /v0/ws", *lines))
        return connection.reply(to_head=method == "HEAD")


@contextlib.contextmanager
def raw_connection(api: Api) -> Iterator[Any]:
    """A connection after its handshake, for what the library would not send."""
    with api.connection() as connection:
        connection.send(connection.head("GET /v0/ws", *UPGRADE))
        assert connection.reply().status == 101
        yield connection


def client_frame(first_byte: int, payload: bytes) -> bytes:
    """A short masked frame; the mask is all zeros."""
    assert len(payload) < 126
    return bytes([first_byte, 0x80 | len(payload)]) + bytes(4) + payload


def server_frame(stream: Any) -> tuple[int, bytes]:
    """The first byte and the payload of a short frame."""
    first_byte, length = stream.read(2)
    assert length < 126
    return first_byte, stream.read(length)
