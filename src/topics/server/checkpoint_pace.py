"""When the next checkpoint is due. Asked once every `CHECKPOINT_POLL_S`; it keeps no clock of its own."""

from topics import limits


class CheckpointPace:
    """After a checkpoint that the disk refused, the next one waits: a second, then twice as long each time."""

    __slots__ = ("_retry_s", "_waited_s")

    def __init__(self) -> None:
        self._waited_s = 0.0
        self._retry_s = 0.0

    def due(self, wal_bytes: int) -> bool:
        """`wal_bytes`: written since the last checkpoint."""
        self._waited_s += limits.CHECKPOINT_POLL_S
        if self._waited_s < self._retry_s:
            return False
        if wal_bytes < limits.CHECKPOINT_WAL_BYTES and self._waited_s < limits.CHECKPOINT_INTERVAL_S:
            return False
        self._waited_s = 0.0
        return True

    def done(self, *, succeeded: bool) -> None:
        if succeeded:
            self._retry_s = 0.0
        else:
            self._retry_s = min(max(2 * self._retry_s, limits.CHECKPOINT_RETRY_S_MIN), limits.CHECKPOINT_RETRY_S_MAX)
