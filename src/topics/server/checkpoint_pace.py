"""When the next checkpoint is due. Asked once every `CHECKPOINT_POLL_S`; it keeps no clock of its own."""

from topics import limits


class CheckpointPace:
    """After a checkpoint that the disk refused, the next one waits: a second, then twice as long each time."""

    __slots__ = ("_blocks_filled", "_retry_s", "_waited_s")

    def __init__(self, blocks_filled: int) -> None:
        self._blocks_filled = blocks_filled
        self._waited_s = 0.0
        self._retry_s = 0.0

    def due(self, wal_bytes: int, blocks_filled: int) -> bool:
        """`wal_bytes`: written since the last checkpoint. `blocks_filled`: counted up by the engine."""
        self._waited_s += limits.CHECKPOINT_POLL_S
        if self._waited_s < self._retry_s:
            return False
        if (
            wal_bytes < limits.CHECKPOINT_WAL_BYTES
            and self._waited_s < limits.CHECKPOINT_INTERVAL_S
            and not (blocks_filled != self._blocks_filled and self._waited_s >= limits.CHECKPOINT_SEAL_INTERVAL_S)
        ):
            return False
        self._waited_s = 0.0
        self._blocks_filled = blocks_filled
        return True

    def done(self, *, succeeded: bool) -> None:
        if succeeded:
            self._retry_s = 0.0
        else:
            self._retry_s = min(max(2 * self._retry_s, limits.CHECKPOINT_RETRY_S_MIN), limits.CHECKPOINT_RETRY_S_MAX)
