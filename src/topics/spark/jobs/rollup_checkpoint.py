"""What a roll-up notes beside Spark's own checkpoint: its options, who is using it, and how far it got.

Spark reports only with a batch which groups are open and up to when windows are closed, so a run without a batch would
not know. The last report is therefore noted together with its batch. A killed run leaves an older note, which is
ignored.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyspark.sql.functions as sf
from msgspec import Struct
from pyspark.sql import SparkSession

from topics.spark.errors import PipelineError
from topics.spark.jobs.rollup_frames import SOURCE, events, range_options
from topics.spark.jobs.rollup_spec import RollupSpec
from topics.spark.offsets import from_json
from topics.storage.errors import DirectoryInUse
from topics.storage.fs import RealDisk

SPEC_FILE = "rollup.json"  # the options of the roll-up
LOCK_FILE = "LOCK"
PLACE_FILE = "place.json"


class CheckpointOfAnother(PipelineError):
    """The checkpoint belongs to a roll-up with other options. Use those options, or another --checkpoint, which begins
    at the start of the topic."""

    def __init__(self, path: str, field: str, before: object, now: object) -> None:
        super().__init__(f"the checkpoint {path} belongs to a roll-up with {field} {before!r}, not {now!r}; "
                         "use another --checkpoint to start over")  # fmt: skip


class CheckpointInUse(PipelineError):
    """Another process is running this roll-up, or these pipelines. Wait for it, or stop it."""

    def __init__(self, path: str, holder: str) -> None:
        by = f" by process {holder}" if holder else ""
        super().__init__(f"the checkpoint {path} is in use{by}; wait for it, or stop it, then run again", path=path)


@contextmanager
def alone(checkpoint: str) -> Iterator[None]:
    """Holds the checkpoint for one run: two at a time would write the same batches."""
    disk = RealDisk()
    disk.make_dir(checkpoint)
    try:
        lock = disk.lock(os.path.join(checkpoint, LOCK_FILE))
    except DirectoryInUse as error:
        raise CheckpointInUse(checkpoint, error.holder) from None
    try:
        yield
    finally:
        lock.release()


def check_checkpoint(spec: RollupSpec) -> None:
    """Raises `CheckpointOfAnother`. Writes the note into a new checkpoint."""
    path = os.path.join(spec.checkpoint, SPEC_FILE)
    if not os.path.exists(path):
        partial = f"{path}.partial"
        with open(partial, "wb") as file:
            file.write(msgspec.json.encode(spec.identity))
        os.replace(partial, path)
        return
    with open(path, "rb") as file:
        before: dict[str, object] = msgspec.json.decode(file.read())
    for field, now in spec.identity.items():
        if before.get(field) != now:
            raise CheckpointOfAnother(spec.checkpoint, field, before.get(field), now)


class Place(Struct, frozen=True):
    """The state after batch `batch`, which is -1 before the first; None where it is not known."""

    batch: int
    open_groups: int | None
    watermark: str | None


def read_place(directory: str, query_directory: str) -> Place:
    """`query_directory` is Spark's own checkpoint, which has a file for each batch it has finished."""
    batch = _last_batch(query_directory)
    if batch == -1:
        return Place(-1, 0, None)
    path = os.path.join(directory, PLACE_FILE)
    if os.path.exists(path):
        with open(path, "rb") as file:
            noted = msgspec.json.decode(file.read(), type=Place)
        if noted.batch == batch:
            return noted
    return Place(batch, None, None)


def write_place(directory: str, place: Place) -> None:
    path = os.path.join(directory, PLACE_FILE)
    with open(f"{path}.partial", "wb") as file:
        file.write(msgspec.json.encode(place))
    os.replace(f"{path}.partial", path)


def _last_batch(query_directory: str) -> int:
    commits = os.path.join(query_directory, "commits")
    names = os.listdir(commits) if os.path.isdir(commits) else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


class LateRecords:
    """Counts the records of a batch that came after their window was closed.

    Spark drops them, and counts groups instead of records. But a batch is a range of seqs that reads the same every
    time, and the checkpoint has the watermark that applied to it: that of the batch before.
    """

    def __init__(self, spark: SparkSession, spec: RollupSpec, checkpoint: str) -> None:
        self._spark = spark
        self._spec = spec
        self._checkpoint = checkpoint

    def count(self, report: Any) -> int:
        """The late records of the batch in this progress report; with sliding windows, those that missed at least
        one."""
        spec, topic = self._spec, self._spec.topic
        source = report["sources"][0]
        last = from_json(msgspec.json.decode(source["endOffset"]))[topic].seq
        before = from_json(msgspec.json.decode(source["startOffset"])) if source["startOffset"] else {}
        first = before[topic].seq + 1 if topic in before else 1
        rows = self._spark.read.format("topics").schema(SOURCE).options(**range_options(spec, first, last)).load()
        watermark_us = self._watermark_ms(report["batchId"] - 1) * 1000
        window_us, slide_us = spec.window_ms * 1000, (spec.slide_ms or spec.window_ms) * 1000
        # The first window a record is in is the first to close. Windows begin at multiples of the slide.
        after = sf.unix_micros("time") - window_us
        first_end = after - sf.pmod(after, sf.lit(slide_us)) + slide_us + window_us
        found = events(rows, spec).where("time is not null and not is_lost")
        return found.where(first_end <= watermark_us).count()

    def _watermark_ms(self, batch: int) -> int:
        path = os.path.join(self._checkpoint, "offsets", str(batch))
        with open(path, "rb") as file:
            lines = file.read().splitlines()
        # A version, then the metadata of the batch, then an offset for each source.
        metadata: dict[str, Any] = msgspec.json.decode(lines[1])
        return int(metadata["batchWatermarkMs"])
