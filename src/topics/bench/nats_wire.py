"""The NATS wire format as the load generator needs it: publishing with a reply, and following the replies.

JetStream answers every record it has stored with a message to the inbox: a line with the length, and a line of JSON. No
payload of the benchmark contains a line break, so counting lines is enough to follow replies, as with Redis.
"""

from topics.bench.errors import MalformedReply

INBOX = b"_INBOX.bench"
CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":false}\r\n'
LINE_END = b"\r\n"


def inbox_of(connection: int) -> bytes:
    """The inbox of one connection. Whoever listens to an inbox gets every reply sent there, so none is shared."""
    return b"%b.%d" % (INBOX, connection)


def subscribe(inbox: bytes) -> bytes:
    """The first bytes a connection sends."""
    return b"%bSUB %b 1\r\n" % (CONNECT, inbox)


def publish(subject: bytes, payload: bytes, *, reply_to: bytes, tag: bytes | None = None) -> bytes:
    """One message; a tag goes into its header."""
    if tag is None:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply_to, len(payload), payload)
    header = b"NATS/1.0\r\nTag: %b\r\n\r\n" % tag
    sizes = (len(header), len(header) + len(payload))
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply_to, *sizes, header, payload)


def reply_in(received: bytes) -> bytes | None:
    """The payload of the first whole message; anything else the server says is skipped."""
    at = 0
    while (end := received.find(LINE_END, at)) >= 0:
        line = received[at:end]
        at = end + len(LINE_END)
        if line.startswith(b"-ERR"):
            raise MalformedReply(f"NATS answered {line.decode('utf-8', 'replace')}")
        if line.startswith(b"MSG "):
            size = int(line.rsplit(b" ", 1)[1])
            return received[at : at + size] if len(received) >= at + size + len(LINE_END) else None
    return None


class NatsReply:
    """Follows the acks of one request, one for each of its records, across any split of their bytes."""

    __slots__ = ("_expected", "_left", "_line", "failure")

    def __init__(self, acks_expected: int) -> None:
        self.failure: bytes | None = None
        self._expected = acks_expected
        self._left = acks_expected
        self._line = b""

    def feed(self, data: bytes) -> bool:
        """Returns True when the last ack is there; `failure` is then the first refusal among them."""
        if self._left == self._expected:
            self.failure = None
        *lines, self._line = (self._line + data).split(LINE_END)
        for line in lines:
            if line.startswith(b'{"stream"'):
                self._left -= 1
            elif line.startswith(b'{"error"'):
                self._left -= 1
                self.failure = line
            elif line.startswith(b"-ERR"):
                raise MalformedReply(f"NATS answered {line.decode('utf-8', 'replace')}")
        if self._left > 0:
            return False
        if self._left < 0:
            raise MalformedReply("more acks than records")
        self._left = self._expected
        return True
