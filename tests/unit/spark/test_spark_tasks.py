"""Tasks: small ranges share one, large ones and bounds that somebody asked for are kept."""

import pytest

from topics import limits
from topics.spark.offsets import Gap, SeqRange
from topics.spark.tasks import TaskReport, TopicsPartition, packed


def shapes(sizes: list[int], tasks_min: int = 1, records_max: int | None = None) -> list[list[int]]:
    shares = [SeqRange(f"t{number}", 1, 0, size) for number, size in enumerate(sizes)]
    tasks = packed(shares, tasks_min, records_max)
    found = [task.shares for task in tasks if isinstance(task, TopicsPartition)]
    assert [share for task in found for share in task] == shares
    return [[share.size for share in task] for task in found]


@pytest.mark.parametrize(
    ("sizes", "tasks_min", "records_max", "expected"),
    [
        ([], 1, None, []),
        ([100] * 200, 1, None, [[100] * 200]),
        ([limits.SPARK_TASK_RECORDS, 1, 1], 1, None, [[limits.SPARK_TASK_RECORDS], [1, 1]]),
        ([10, 10, 10, 10], 2, None, [[10, 10], [10, 10]]),
        ([10, 10, 10], 3, None, [[10], [10], [10]]),
        ([10, 10, 10], 5, None, [[10], [10], [10]]),
        ([10, 10, 10, 10], 1, 20, [[10, 10], [10, 10]]),
        ([0, 0, 5], 1, None, [[0, 0, 5]]),
    ],
)
def test_small_ranges_share_a_task(
    sizes: list[int], tasks_min: int, records_max: int | None, expected: list[list[int]]
) -> None:
    assert shapes(sizes, tasks_min, records_max) == expected


def test_a_task_says_what_it_read_and_what_was_lost() -> None:
    report = TaskReport(TopicsPartition([SeqRange("a", 1, 0, 10), SeqRange("b", 1, 5, 10)]))
    report.rows, report.bytes = 8, 120
    report.add_loss(Gap(1, 4, "cap"))
    report.add_loss(Gap(9, None, "recreated"))
    assert str(report) == "read 8 rows (120 bytes) of 15 seqs of a, b; 4 seqs lost in 2 gaps"
