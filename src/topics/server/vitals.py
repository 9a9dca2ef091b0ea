"""The state of the process: memory, files, free disk, and how late its loop runs.

A thread asks the system every few seconds: listing the open files of a server with ten thousand connections, or asking
a sick disk for its room, must not hold up the loop.
"""

import asyncio
import resource
from bisect import bisect_left
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from topics import limits
from topics.storage.fs import Disk

LAG_BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_STATM = "/proc/self/statm"
_OPEN_FILES = "/proc/self/fd"


class LoopLag:
    """How late the loop ran, of samples taken every `PRESSURE_SAMPLE_INTERVAL_MS`: the worst of the last ten seconds,
    and a histogram of all."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque([0.0], maxlen=limits.LOOP_LAG_SAMPLES)
        self.counts = [0] * (len(LAG_BUCKETS_MS) + 1)
        self.sum_ms = 0.0

    def add(self, late_ms: float) -> None:
        self._recent.append(late_ms)
        self.counts[bisect_left(LAG_BUCKETS_MS, late_ms)] += 1
        self.sum_ms += late_ms

    @property
    def last_ms(self) -> float:
        return self._recent[-1]

    @property
    def recent_max_ms(self) -> float:
        return max(self._recent)


class Vitals(NamedTuple):
    """None where the system does not tell."""

    memory_bytes: int | None = None
    files_open: int | None = None
    files_max: int | None = None
    disk_free_bytes: int | None = None


class VitalSigns:
    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self.loop_lag = LoopLag()
        self.latest = Vitals()

    async def run(self) -> None:
        """Looks until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.latest = await loop.run_in_executor(None, self.look)
            await asyncio.sleep(limits.VITALS_INTERVAL_S)

    def look(self) -> Vitals:
        """Runs on any thread."""
        memory_bytes = files_open = disk_free_bytes = None
        with suppress(OSError):
            memory_bytes = int(self._disk.read(_STATM).split()[1]) * resource.getpagesize()
        with suppress(OSError):
            files_open = len(self._disk.list_dir(_OPEN_FILES)) or None
        with suppress(OSError):
            disk_free_bytes = self._disk.free_bytes(self._data_dir)
        files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return Vitals(
            memory_bytes, files_open, None if files_max == resource.RLIM_INFINITY else files_max, disk_free_bytes
        )
