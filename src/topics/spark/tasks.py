"""One task's share of a query: small ranges are packed into one task."""

from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from topics import limits
from topics.spark.log import Planned
from topics.spark.offsets import Gap

NAMED_MAX = 5


class TopicsPartition(InputPartition):
    """The shares one task reads, in this order."""

    def __init__(self, shares: Sequence[Planned]) -> None:
        self.shares = tuple(shares)


def packed(shares: Sequence[Planned], tasks_min: int, records_max: int | None) -> list[InputPartition]:
    """Packs shares into tasks. A task costs some 20 ms before it reads anything, so 200 topics of 100 records become
    one task. Shares keep their order and are always packed the same way, so a repeated batch has the same tasks. There
    are at least `tasks_min` tasks, if there are that many shares, and none has more than `records_max` seqs."""
    total = sum(share.size for share in shares)
    most = min(limits.SPARK_TASK_RECORDS, total // max(tasks_min, 1), records_max or total)
    tasks: list[list[Planned]] = []
    room = 0
    for share in shares:
        if not tasks or share.size > room:
            tasks.append([])
            room = most
        tasks[-1].append(share)
        room -= share.size
    if len(tasks) < tasks_min:
        return [TopicsPartition((share,)) for share in shares]
    return [TopicsPartition(task) for task in tasks]


class TaskReport:
    """Counts what a task has read, for the log: Spark's Python API has no metrics for sources."""

    def __init__(self, partition: TopicsPartition) -> None:
        self._shares = partition.shares
        self.rows = 0
        self.bytes = 0
        self._gaps = 0
        self._lost = 0

    def add_loss(self, gap: Gap) -> None:
        self._gaps += 1
        if gap.gap_to is not None:
            self._lost += gap.gap_to - gap.gap_from + 1

    def __str__(self) -> str:
        topics = sorted({share.topic for share in self._shares})
        named = ", ".join(topics[:NAMED_MAX]) + (f" and {len(topics) - NAMED_MAX} more" if topics[NAMED_MAX:] else "")
        seqs = sum(share.size for share in self._shares)
        return (
            f"read {self.rows} rows ({self.bytes} bytes) of {seqs} seqs of {named}; "
            f"{self._lost} seqs lost in {self._gaps} gaps"
        )
