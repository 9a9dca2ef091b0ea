"""What batch and streaming queries share: where they begin and end, how a range is divided into tasks, and how a task
reads its part."""

import gc
import logging
from collections.abc import Iterator, Mapping
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from topics.errors import TopicNotFound
from topics.spark.boundary import EARLIEST, Boundary
from topics.spark.errors import DataLoss, InvalidOption
from topics.spark.log import Log
from topics.spark.offsets import Gap, Position, SeqRange, TopicRange
from topics.spark.options import OnDataLoss, ReadOptions
from topics.spark.origin import open_log
from topics.spark.schema import Table
from topics.spark.tasks import TaskReport, TopicsPartition, packed
from topics.spark.telling import is_worker, telling

LOGGER = logging.getLogger("topics.spark")


@cache
def settle() -> None:
    """Spark's workers collect all garbage after each task: 35 ms, since so much is loaded. What is loaded by now stays,
    so nothing of it has to be looked at again."""
    if is_worker():
        gc.freeze()


def require_topics(read: ReadOptions, ranges: Mapping[str, TopicRange]) -> None:
    for topic in read.topics:
        if topic not in ranges:
            raise TopicNotFound(topic)


def heads_of(ranges: Mapping[str, TopicRange]) -> dict[str, Position]:
    return {topic: Position(now.epoch, now.head_seq) for topic, now in ranges.items()}


def resolve(log: Log, ranges: Mapping[str, TopicRange], boundary: Boundary, option: str) -> dict[str, Position]:
    """The positions before the first record to read, or at the last one."""
    positions = {}
    for topic, now in ranges.items():
        wanted = boundary.seqs.get(topic, boundary.everywhere)
        ts = boundary.times.get(topic, boundary.ts)
        if ts is not None:
            found = log.seq_at(topic, ts)
            seq = now.head_seq if found is None else min(found - 1, now.head_seq)
        elif wanted > 0:
            seq = wanted - 1
            if seq > now.head_seq:
                raise InvalidOption(option, f'"{topic}" has {wanted}, but its last seq is {now.head_seq}')
        else:
            seq = now.earliest_seq - 1 if wanted == EARLIEST else now.head_seq
        positions[topic] = Position(now.epoch, seq)
    if unknown := sorted({*boundary.seqs, *boundary.times} - set(ranges)):
        raise InvalidOption(option, f'there is no topic "{unknown[0]}"')
    return positions


def plan(log: Log, read: ReadOptions, ranges: list[SeqRange]) -> list[InputPartition]:
    shares = log.plan(ranges, read.min_partitions, read.partition_records_max)
    return packed(shares, read.min_partitions, read.partition_records_max)


def read_partition(read: ReadOptions, table: Table, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # If there are no partitions, Spark makes one up.
    if not isinstance(partition, TopicsPartition):
        return
    report = TaskReport(partition)
    with telling(), open_log(read, table.needs) as log:
        settle()
        for topic, item in log.read_all(partition.shares):
            if not isinstance(item, Gap):
                batch = table.batch(topic, item)
                report.rows += batch.num_rows
                report.bytes += batch.nbytes
                yield batch
                continue
            report.add_loss(item)
            if read.on_data_loss is OnDataLoss.ROWS:
                yield table.gap_batch(topic, item)
            elif read.on_data_loss is OnDataLoss.WARN:
                LOGGER.warning("%s", DataLoss(topic, *item).message)
            else:
                raise DataLoss(topic, *item)
    LOGGER.info("%s", report)
