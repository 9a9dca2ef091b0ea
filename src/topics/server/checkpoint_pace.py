"""When the next checkpoint is due. Asked once every `CHECKPOINT_POLL_S`; it keeps no clock of its own."""

from topics import limits


class CheckpointPace:
    """After a checkpoint that the disk refused, the next one waits: a second, then twice as long each time."""

    __slots__ = ("_retry_s", "_waited_s")

    def __init__(self) -> None:
        self._waited_s = 0.0
        self._retry_s = 0.0

    def due(self, wal_bytes: int, *, room_is_low: bool = False) -> bool:
        """`wal_bytes`: written since the last checkpoint. `room_is_low`: what is deleted gives its room back two
        checkpoints later, and somebody waits for that."""
        interval_s, retry_s = limits.CHECKPOINT_INTERVAL_S, self._retry_s
        if room_is_low:
            interval_s, retry_s = (
                limits.CHECKPOINT_LOW_ROOM_INTERVAL_S,
                min(retry_s, limits.CHECKPOINT_LOW_ROOM_RETRY_S),
            )
        self._waited_s += limits.CHECKPOINT_POLL_S
        if self._waited_s < retry_s:
            return False
        if wal_bytes < limits.CHECKPOINT_WAL_BYTES and self._waited_s < interval_s:
            return False
        self._waited_s = 0.0
        return True

    def done(self, *, succeeded: bool) -> None:
        if succeeded:
            self._retry_s = 0.0
        else:
            self._retry_s = min(max(2 * self._retry_s, limits.CHECKPOINT_RETRY_S_MIN), limits.CHECKPOINT_RETRY_S_MAX)
