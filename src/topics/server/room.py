"""Room on the disk of the log: writes are refused while there is too little, before anything fails.

What is below the low-water mark is the reserve for what must go on: deletes and acks, which the log has to take, the
next file of each shard, checkpoints and the start after a crash. What has been taken and still needs room counts as
used: what waits in the queues of the log, what the next checkpoint copies, what is not sealed yet. On a slow disk that
is much: when it was not counted, segments took the reserve that checkpoints need to free what a delete removed.
"""

import asyncio
import logging
from collections.abc import Callable

from topics import limits
from topics.errors import StorageFull
from topics.storage.fs import Disk

log = logging.getLogger("topics.room")


class Room:
    """`owed_bytes` returns what is taken and still needs room. `full` is set while writes are refused; `spare_bytes` is
    what may be taken until the next look at the disk."""

    def __init__(self, disk: Disk, root: str, free_bytes_min: int, owed_bytes: Callable[[], int]) -> None:
        self._disk = disk
        self._root = root
        self._free_bytes_min = free_bytes_min
        self._owed_bytes = owed_bytes
        self.full: StorageFull | None = None
        self.spare_bytes = limits.U64_MAX

    async def run(self, looked: Callable[[], None]) -> None:
        """Looks until cancelled, on a thread, because a sick disk may not answer for long."""
        loop = asyncio.get_running_loop()
        is_known = True
        while True:
            try:
                free_bytes = await loop.run_in_executor(None, self._disk.free_bytes, self._root)
            except OSError as error:
                if is_known:
                    log.warning("the free space on the disk of %s could not be read: %s", self._root, error)
                is_known = False
            else:
                is_known = True
                self.judge(free_bytes)
                looked()
            await asyncio.sleep(limits.ROOM_INTERVAL_S)

    def judge(self, free_bytes: int) -> None:
        left_bytes = free_bytes - self._owed_bytes()
        self.spare_bytes = left_bytes - self._free_bytes_min
        if self.spare_bytes >= 0:
            if self.full is not None:
                log.info("the disk of %s has room again: writes go on", self._root)
            self.full = None
            return
        if self.full is None:
            log.error(
                "the disk of %s has %d bytes left, and TOPICS_MIN_FREE_BYTES=%d are kept free: writes are refused, "
                "deletes and acks go on. Free space or delete records; writing goes on by itself",
                self._root,
                max(left_bytes, 0),
                self._free_bytes_min,
            )
        self.full = StorageFull(
            f"the disk has {max(left_bytes, 0)} bytes left and {self._free_bytes_min} are kept free: nothing new is "
            "taken. Free space or delete records; writing goes on by itself",
            free_bytes=max(left_bytes, 0),
            free_bytes_min=self._free_bytes_min,
        )
