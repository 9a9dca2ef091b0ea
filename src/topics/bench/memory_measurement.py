"""What a record costs in memory beyond its own bytes, while it is unsealed and once it is in a sealed segment.

The kernel tells the memory of the server and of the process that encodes its segments (`RssAnon`: everything but mapped
files), so allocator waste counts.

- Unsealed: by how much memory grows per record written into a block that never fills, minus the bytes of data and tag.
- Written: the memory of a server moments after it received that many records of 200 bytes.
- Sealed: a server starts on sealed records, which are all read once, and another on a tenth of them; the difference per
  record. Payloads are in mapped files by then, so nothing is subtracted.
"""

import tempfile
import time
from pathlib import Path

import msgspec

from topics.bench.control import HttpControl
from topics.bench.errors import BenchError
from topics.bench.measurement import Figure, Measurement, MeasurementResult, Progress
from topics.bench.own_process import server_on
from topics.bench.records import DATA_BYTES, data_of, fill, tag_of
from topics.limits import GIB, SEGMENT_EVENTS_MAX, U32_MAX

TOPIC = "bench-memory"
SEALED_RECORDS_DEFAULT = 1_000_000
UNSEALED_RECORDS_MAX = 200_000  # few enough that no checkpoint happens during the measurement
WARM_UP_RECORDS = 10_000
READ_RECORDS = 1000
LARGE_DATA_BYTES = 200
SETTLED_S = 8.0
WRITTEN_MIB_MAX = 150.0  # with a million records
SEALED_BYTES_MAX = 4.0
UNSEALED_BYTES_MAX = 250.0
ONE_PROCESS = {
    "TOPICS_SEAL_PROCESS": "0"
}  # where memory is divided by records: a second process takes the same for any


class _Diff(msgspec.Struct):
    records: list[msgspec.Raw]
    next_from_seq: int
    head_seq: int


class MemoryMeasurement(Measurement):
    name = "memory"

    def __init__(self, records: int | None, durability: str) -> None:
        wanted = records or SEALED_RECORDS_DEFAULT
        # Whole segments: a remainder would stay unsealed.
        self._few = max(wanted // 10 // SEGMENT_EVENTS_MAX, 1) * SEGMENT_EVENTS_MAX
        self._many = max(wanted // SEGMENT_EVENTS_MAX, 2) * SEGMENT_EVENTS_MAX
        self._unsealed = min(wanted, UNSEALED_RECORDS_MAX)
        self._config = msgspec.json.encode({"durability": durability})

    def measure(self, progress: Progress) -> MeasurementResult:
        progress(f"memory: {self._unsealed} unsealed records")
        unsealed = self._unsealed_bytes()
        written = self._written_memory(progress)
        few = self._sealed_memory(self._few, progress)
        many = self._sealed_memory(self._many, progress)
        return MeasurementResult(
            self.name,
            f"{self._unsealed} unsealed and {self._many} sealed records of {DATA_BYTES} bytes, each with its own tag",
            (
                Figure(
                    f"server {SETTLED_S:.0f} s after {self._many} records of {LARGE_DATA_BYTES} bytes",
                    written / 2**20,
                    "MiB",
                    WRITTEN_MIB_MAX,
                ),
                Figure("per unsealed record, beyond data and tag", unsealed, "bytes", UNSEALED_BYTES_MAX),
                Figure("per sealed record", (many - few) / (self._many - self._few), "bytes", SEALED_BYTES_MAX),
                Figure(f"server with {self._many} sealed records, all read once", many / 2**20, "MiB"),
            ),
            ("memory is the kernel's figure for the process without mapped files, allocator waste included",),
        )

    def _unsealed_bytes(self) -> float:
        never_full = ONE_PROCESS | {"TOPICS_SEGMENT_MAX_EVENTS": str(U32_MAX), "TOPICS_SEGMENT_MAX_BYTES": str(GIB)}
        with (
            tempfile.TemporaryDirectory(prefix="topics-bench-") as name,
            server_on(Path(name), never_full) as server,
            server.control() as control,
        ):
            control.call("PUT", f"/v0/topics/{TOPIC}", self._config)
            fill(control, [TOPIC], 0, WARM_UP_RECORDS)
            before = server.anonymous_bytes()
            fill(control, [TOPIC], WARM_UP_RECORDS, self._unsealed)
            after = server.anonymous_bytes()
        return (after - before) / self._unsealed - len(data_of(0)) - len(tag_of(0))

    def _written_memory(self, progress: Progress) -> int:
        progress(f"memory: writing {self._many} records of {LARGE_DATA_BYTES} bytes")
        with (
            tempfile.TemporaryDirectory(prefix="topics-bench-") as name,
            server_on(Path(name)) as server,
            server.control() as control,
        ):
            control.call("PUT", f"/v0/topics/{TOPIC}", self._config)
            fill(control, [TOPIC], 0, self._many, LARGE_DATA_BYTES)
            time.sleep(SETTLED_S)
            return server.anonymous_bytes()

    def _sealed_memory(self, records: int, progress: Progress) -> int:
        with tempfile.TemporaryDirectory(prefix="topics-bench-") as name:
            directory = Path(name)
            progress(f"memory: writing {records} records to be sealed")
            with server_on(directory) as server:
                with server.control() as control:
                    control.call("PUT", f"/v0/topics/{TOPIC}", self._config)
                    fill(control, [TOPIC], 0, records)
                server.stop()
            progress(f"memory: reading {records} sealed records")
            with server_on(directory, ONE_PROCESS) as server:
                with server.control() as control:
                    if _read_all(control) != records:
                        raise BenchError(f"not all of {records} records could be read back")
                return server.anonymous_bytes()


def _read_all(control: HttpControl) -> int:
    count = from_seq = 0
    while True:
        body = msgspec.json.encode({"from_seq": from_seq, "limit": READ_RECORDS})
        reply = msgspec.json.decode(control.call("POST", f"/v0/topics/{TOPIC}/diff", body), type=_Diff)
        count += len(reply.records)
        if reply.next_from_seq >= reply.head_seq:
            return count
        from_seq = reply.next_from_seq
