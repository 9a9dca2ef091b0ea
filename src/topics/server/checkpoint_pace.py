"""When the next checkpoint is due. It is asked once every `CHECKPOINT_POLL_S`, and counts these calls instead of
time."""

from topics import limits


class CheckpointPace:
    """After a checkpoint that the disk refused, the next one waits: a second, then twice as long each time."""

    __slots__ = ("_retry_s", "_sealed_bytes", "_settled_s", "_waited_s")

    def __init__(self) -> None:
        self._waited_s = 0.0
        self._retry_s = 0.0
        self._sealed_bytes = 0
        self._settled_s = 0.0

    def due(self, wal_bytes: int, *, sealed_bytes: int = 0, room_is_low: bool = False) -> bool:
        """`wal_bytes`: written since the last checkpoint. `sealed_bytes`: sealed since then; until a snapshot points to
        the segments, a start reads all of it from the log. `room_is_low`: what is deleted gives its room back two
        checkpoints later, and somebody waits for that."""
        interval_s, retry_s = limits.CHECKPOINT_INTERVAL_S, self._retry_s
        if room_is_low:
            interval_s, retry_s = (
                limits.CHECKPOINT_LOW_ROOM_INTERVAL_S,
                min(retry_s, limits.CHECKPOINT_LOW_ROOM_RETRY_S),
            )
        self._waited_s += limits.CHECKPOINT_POLL_S
        self._settled_s += limits.CHECKPOINT_POLL_S
        if sealed_bytes != self._sealed_bytes:
            self._sealed_bytes, self._settled_s = sealed_bytes, 0.0
        settled = sealed_bytes >= limits.CHECKPOINT_SEALED_BYTES and self._settled_s >= limits.CHECKPOINT_SETTLED_S
        if self._waited_s < retry_s:
            return False
        if wal_bytes < limits.CHECKPOINT_WAL_BYTES and self._waited_s < interval_s and not settled:
            return False
        self._waited_s = 0.0
        return True

    def done(self, *, succeeded: bool) -> None:
        if succeeded:
            self._retry_s = 0.0
        else:
            self._retry_s = min(max(2 * self._retry_s, limits.CHECKPOINT_RETRY_S_MIN), limits.CHECKPOINT_RETRY_S_MAX)
