"""How long a server takes from the start of its process until it is ready, after a kill and after a clean stop."""

import tempfile
from pathlib import Path

import msgspec

from topics.bench.control import HttpControl
from topics.bench.errors import BenchError
from topics.bench.measurement import Figure, Measurement, MeasurementResult, Progress
from topics.bench.own_process import server_on
from topics.bench.records import DATA_BYTES, fill

TOPICS = 10
RECORDS_DEFAULT = 1_000_000
KILLED_S_MAX = 2.0
STOPPED_S_MAX = 0.3
LOST_SHARE_MAX = 0.01


class _State(msgspec.Struct):
    count: int


class RecoveryMeasurement(Measurement):
    """Writes records, kills the server with SIGKILL right after the last reply, and starts it again."""

    name = "recovery"

    def __init__(self, records: int | None, durability: str) -> None:
        self._records = records or RECORDS_DEFAULT
        self._durability = durability
        self._config = msgspec.json.encode({"durability": durability})
        self._topics = [f"bench-recovery-{number}" for number in range(TOPICS)]

    def measure(self, progress: Progress) -> MeasurementResult:
        with tempfile.TemporaryDirectory(prefix="topics-bench-") as name:
            directory = Path(name)
            progress(f"recovery: writing {self._records} records")
            with server_on(directory) as server:
                with server.control() as control:
                    for topic in self._topics:
                        control.call("PUT", f"/v0/topics/{topic}", self._config)
                    fill(control, self._topics, 0, self._records)
                server.kill()
            progress("recovery: starting after SIGKILL")
            with server_on(directory) as server:
                killed_s = server.started_s
                found = self._count(server.control())
                server.stop()
            progress("recovery: starting after a clean stop")
            with server_on(directory) as server:
                stopped_s = server.started_s
                if self._count(server.control()) != found:
                    raise BenchError("a clean stop lost records")
        if found < self._records * (1 - LOST_SHARE_MAX):
            raise BenchError(f"only {found} of {self._records} records were there after SIGKILL")
        return MeasurementResult(
            self.name,
            f"{self._records} records of {DATA_BYTES} bytes in {TOPICS} topics, {self._durability} class",
            (
                Figure("start to ready after SIGKILL", killed_s, "s", KILLED_S_MAX),
                Figure("records a second of that", found / killed_s, "records/s"),
                Figure("start to ready after a clean stop", stopped_s, "s", STOPPED_S_MAX),
                Figure("records not yet written when killed", self._records - found, "records"),
            ),
            ("times include the start of Python; the files are in the page cache, as after any kill",),
        )

    def _count(self, control: HttpControl) -> int:
        with control:
            states = [control.call("GET", f"/v0/topics/{topic}?touch=false") for topic in self._topics]
        return sum(msgspec.json.decode(state, type=_State).count for state in states)
