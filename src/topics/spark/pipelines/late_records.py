"""How many records of a batch came after the window they belong to was closed.

Spark drops them, and counts groups instead of records. But a batch is a range of seqs that reads the same every time,
and the checkpoint has the watermark that was applied to it: that of the batch before.
"""

import os
from typing import Any

import msgspec
import pyspark.sql.functions as sf
from pyspark.sql import SparkSession

from topics.spark.offsets import from_json
from topics.spark.pipelines.rollup_frames import SOURCE, events, range_options
from topics.spark.pipelines.rollup_spec import RollupSpec


class LateRecords:
    def __init__(self, spark: SparkSession, spec: RollupSpec, checkpoint: str) -> None:
        self._spark = spark
        self._spec = spec
        self._checkpoint = checkpoint

    def count(self, report: Any) -> int:
        """Of the batch in this progress report. With sliding windows: the records that missed at least one."""
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
