"""What of a range no file can have is a gap; what is not there yet is not."""

from typing import cast

import pytest

from topics.spark.errors import FilesBehind
from topics.spark.file_log import FileLog
from topics.spark.file_partition import FilePartition
from topics.spark.files import FilesLog, lost_of
from topics.spark.offsets import Gap, SeqRange, TopicRange
from topics.spark.options import Files, Mode, read_options

WANTED = SeqRange("t", 1, 4, 9)


def test_a_range_that_is_there_has_no_gap() -> None:
    assert lost_of(TopicRange(1, 1, 9), WANTED) == ((), 9)


def test_a_topic_that_is_gone_is_one_gap() -> None:
    assert lost_of(None, WANTED) == ((Gap(5, 9, "deleted_topic"),), 4)
    assert lost_of(TopicRange(2, 1, 9), WANTED) == ((Gap(5, 9, "recreated"),), 4)


def test_the_topic_of_before_is_a_gap_without_an_end() -> None:
    assert lost_of(TopicRange(2, 1, 9), SeqRange("t", 2, 0, 9, lost_from=5)) == ((Gap(5, None, "recreated"),), 9)


def test_files_that_end_before_the_range_are_an_error_and_no_loss() -> None:
    with pytest.raises(FilesBehind, match="end at seq 7, before 9"):
        lost_of(TopicRange(1, 1, 7), WANTED)


class Asked:
    """In place of the files: notes how many records a partition may have."""

    def topics(self) -> dict[str, TopicRange]:
        return {"t": TopicRange(1, 1, 1_000_000)}

    def partitions(self, topic: str, start: int, end: int, least: int, most: int) -> list[FilePartition]:
        self.most = most
        return []


@pytest.mark.parametrize(
    ("mode", "more", "cores", "most"),
    [
        (Mode.BATCH, {}, 2, 500_000),
        (Mode.BATCH, {}, 8, 125_000),
        (Mode.BATCH, {"maxRecordsPerPartition": "70"}, 2, 70),
        (Mode.STREAMING, {}, 2, 0),
        (Mode.STREAMING, {}, 8, 0),
    ],
)
def test_only_a_batch_query_has_partitions_by_the_cores_of_this_machine(
    mode: Mode, more: dict[str, str], cores: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A streaming batch that is planned again elsewhere has to have the same partitions."""
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    log = FilesLog(read_options({"path": "data", "subscribe": "t"} | more, mode), Files("data", None), frozenset())
    asked = Asked()
    log._seen = cast(FileLog, asked)
    log.plan([SeqRange("t", 1, 0, 1_000_000)], 1, log._options.partition_records_max)
    assert asked.most == most
