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
        self.unsent_bytes = 0  # of what was written last

    @property
    def written_bytes(self) -> int:
        return sum(map(len, self.writes))

    @property
    def left_bytes(self) -> int:
        return self.written_bytes - self.unsent_bytes

    def write(self, data: bytes) -> None:
        if not self.closed and not self.aborted:
            self.writes.append(data)
            self.unsent_bytes = 0 if self.writable else self.unsent_bytes + len(data)

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
