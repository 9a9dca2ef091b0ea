"""The client's side of a WebSocket as the load generator needs it: text out, whole frames in."""

from enum import IntEnum

from topics.bench.http1 import HEAD_END, without_head

SWITCHED = b"HTTP/1.1 101 "
# A client must mask. All zeros is a mask too, and leaves the text as it is.
MASKED = 0x80
NO_MASK = bytes(4)
LENGTH_16_BITS = 126
LENGTH_64_BITS = 127


class Opcode(IntEnum):
    TEXT = 1
    CLOSE = 8
    PING = 9
    PONG = 10


def render_handshake(host: str, api_key: str | None = None) -> bytes:
    lines = [
        "GET /v0/ws HTTP/1.1",
        f"Host: {host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ]
    if api_key is not None:
        lines.append(f"Authorization: Bearer {api_key}")
    return "\r\n".join(lines).encode("ascii") + HEAD_END


def render_frame(payload: bytes, opcode: Opcode = Opcode.TEXT) -> bytes:
    """One message in one frame."""
    size = len(payload)
    first = 0x80 | opcode
    if size < LENGTH_16_BITS:
        head = bytes((first, MASKED | size))
    elif size < 1 << 16:
        head = bytes((first, MASKED | LENGTH_16_BITS)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, MASKED | LENGTH_64_BITS)) + size.to_bytes(8, "big")
    return head + NO_MASK + payload


class ServerFrames:
    """Follows the reply to the handshake and the frames after it. This server never splits a message."""

    __slots__ = ("_unread", "open")

    def __init__(self) -> None:
        self.open = False
        self._unread = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The opcode and payload of each whole frame. Hot: called for every piece that arrives."""
        if self._unread:
            data = self._unread + data
        if not self.open:
            rest = without_head(data, SWITCHED)
            if rest is None:
                self._unread = data
                return []
            self.open = True
            data = rest
        at, end = 0, len(data)
        frames: list[tuple[int, bytes]] = []
        while at + 2 <= end:
            size = data[at + 1]
            start = at + 2
            if size >= LENGTH_16_BITS:
                start += 2 if size == LENGTH_16_BITS else 8
                if start > end:
                    break
                size = int.from_bytes(data[at + 2 : start], "big")
            if start + size > end:
                break
            frames.append((data[at] & 0x0F, data[start : start + size]))
            at = start + size
        self._unread = data[at:]
        return frames
