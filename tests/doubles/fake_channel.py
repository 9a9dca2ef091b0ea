"""A connection without a socket, as the owner of a stream sees it."""


class FakeChannel:
    """Implements `topics.api.http.Channel`. Keeps what is written; a test makes it writable or not."""

    def __init__(self) -> None:
        self.writable = True
        self.writes: list[bytes] = []
        self.closed = False
        self.aborted = False
        self.reading = True
        self._taken = 0
        self.stuck = False  # it keeps the last byte of whatever is written
        self.unsent_bytes = 0  # of what was written last
        self.sent_at_once = 0  # how many of the writes did not wait for the end of the turn

    @property
    def written_bytes(self) -> int:
        return sum(map(len, self.writes))

    @property
    def left_bytes(self) -> int:
        return self.written_bytes - self.unsent_bytes

    def write(self, data: bytes) -> None:
        if not self.closed and not self.aborted:
            self.writes.append(data)
            self.unsent_bytes = int(self.stuck) if self.writable else self.unsent_bytes + len(data)

    def send(self, data: bytes) -> bool:
        self.write(data)
        self.sent_at_once += 1
        return not self.unsent_bytes and not self.closed and not self.aborted

    def take(self) -> bytes:
        """What was written since the last call."""
        fresh = b"".join(self.writes[self._taken :])
        self._taken = len(self.writes)
        return fresh

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True
