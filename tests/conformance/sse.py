"""A small client for event streams. It parses as a browser does: CR, LF and CRLF all end a line.

A read that takes longer than `TIMEOUT_S` fails the test; that nothing comes is shown by what comes next.
"""

import base64
import codecs
import contextlib
import http.client
import json
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.client import TIMEOUT_S, Api, Reply, success

SSE_ACCEPT = {"Accept": "text/event-stream"}

_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything up to one empty line. `id` and `retry` are None where the frame has none."""

    event: str
    data: str
    id: str | None
    retry: str | None
    comments: tuple[str, ...]

    @property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.data)
        assert isinstance(value, dict), value
        return value

    @property
    def seqs(self) -> list[int]:
        assert self.event == "record", self
        return [record["$seq"] for record in self.json["records"]]

    @property
    def cursors(self) -> dict[str, int]:
        """The id as the map it stands for."""
        assert self.id is not None, self
        return cursors_of(self.id)


def cursors_of(identifier: str) -> dict[str, int]:
    """The seq of each topic; what else an id may hold has names that no topic can have."""
    assert re.fullmatch(r"[A-Za-z0-9_-]+", identifier), identifier
    value = json.loads(base64.urlsafe_b64decode(identifier + "=" * (-len(identifier) % 4)))
    assert isinstance(value, dict), value
    return {name: seq for name, seq in value.items() if not name.startswith("$")}


def id_of(cursors: Mapping[str, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(cursors).encode()).rstrip(b"=").decode()


class EventStream:
    """An open stream. The first frame, `retry`, is taken and kept when it opens."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self._unparsed = ""
        self._searched = 0  # up to here there is no line end
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._at_end = False
        self.headers = response.headers
        self.opening = self.next()

    def next(self) -> Frame:
        frame = self._next()
        assert frame is not None, "the stream has ended"
        return frame

    def take(self, count: int) -> list[Frame]:
        return [self.next() for _ in range(count)]

    def until(self, event: str) -> list[Frame]:
        """The frames up to the first of this kind, which comes last."""
        frames = [self.next()]
        while frames[-1].event != event:
            frames.append(self.next())
        return frames

    def record(self) -> Frame:
        """The next frame, which must hold records."""
        frame = self.next()
        assert frame.event == "record", frame
        return frame

    def rest(self) -> list[Frame]:
        """Everything up to the server's end of the stream."""
        frames: list[Frame] = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def _next(self) -> Frame | None:
        lines: list[str] = []
        while (line := self._line()) is not None:
            if line:
                lines.append(line)
            elif lines:
                return _parse(lines)
        assert not lines, ("the stream ended inside a frame", lines)
        return None

    def _line(self) -> str | None:
        while True:
            found = _LINE_END.search(self._unparsed, self._searched)
            # A CR at the end of what was read may be half a CRLF.
            if found is not None and (found.end() < len(self._unparsed) or found[0] != "\r" or self._at_end):
                line, self._unparsed = self._unparsed[: found.start()], self._unparsed[found.end() :]
                self._searched = 0
                return line
            if self._at_end:
                assert not self._unparsed, ("the stream ended inside a line", self._unparsed)
                return None
            self._searched = max(len(self._unparsed) - 1, 0)
            read = self._response.read1(1 << 20)
            self._at_end = not read
            self._unparsed += self._decoder.decode(read, final=self._at_end)


def _parse(lines: list[str]) -> Frame:
    fields: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name, []).append(value.removeprefix(" "))
    assert fields.keys() <= {"event", "data", "id", "retry", ""}, lines
    return Frame(
        event=fields.get("event", ["message"])[-1],
        data="\n".join(fields.get("data", [])),
        id=fields["id"][-1] if "id" in fields else None,
        retry=fields["retry"][-1] if "retry" in fields else None,
        comments=tuple(fields.get("", [])),
    )


def create(api: Api, topics: Mapping[str, Any], **body: Any) -> dict[str, Any]:
    """A new session; asserts success."""
    return success(api.post("/v0/watch", {"topics": topics, **body}))


def try_to_open(api: Api, path: str, headers: Mapping[str, str] | None = None) -> Reply:
    """A GET that must be refused."""
    reply = api.get(path, headers=SSE_ACCEPT if headers is None else headers)
    assert reply.status != 200
    return reply


@contextlib.contextmanager
def streaming(
    api: Api, path: str, last_event_id: str | None = None, *, receive_buffer_bytes: int = 0
) -> Iterator[EventStream]:
    """Opens the stream at `path`. A small receive buffer makes a client that does not read noticed sooner."""
    connection = http.client.HTTPConnection(api.host, api.port, timeout=TIMEOUT_S)
    if receive_buffer_bytes:
        connection.sock = socket.socket(socket.AF_INET)
        connection.sock.settimeout(TIMEOUT_S)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connection.sock.connect((api.host, api.port))
    headers = dict(SSE_ACCEPT)
    if api.key is not None:
        headers["Authorization"] = f"Bearer {api.key}"
    if last_event_id is not None:
        headers["Last-Event-ID"] = last_event_id
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    try:
        assert response.status == 200, (response.status, response.read())
        yield EventStream(connection, response)
    finally:
        response.close()
        connection.close()


@contextlib.contextmanager
def watching(
    api: Api, topics: Mapping[str, Any], *, receive_buffer_bytes: int = 0, **body: Any
) -> Iterator[EventStream]:
    """A new session and its stream."""
    path = create(api, topics, **body)["stream_url"]
    with streaming(api, path, receive_buffer_bytes=receive_buffer_bytes) as stream:
        yield stream


@contextlib.contextmanager
def torn(api: Api, request: bytes) -> Iterator[None]:
    """Sends a request and waits for the head of its answer; at the end the connection is reset, not closed."""
    with api.connection() as connection:
        connection.send(request)
        assert connection.stream.readline().split()[1] in {b"200", b"101"}
        yield
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def open_connections(api: Api) -> int:
    """How many live connections the server counts."""
    reply = api.get("/v0/metrics")
    assert reply.status == 200, reply.body
    found = re.search(rb"^topics_sse_connections (\d+)$", reply.body, re.MULTILINE)
    assert found is not None, reply.body
    return int(found[1])
