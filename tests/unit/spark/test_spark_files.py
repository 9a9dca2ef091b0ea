"""What of a range no file can have is a gap; what is not there yet is not."""

import pytest

from topics.spark.errors import FilesBehind
from topics.spark.files import lost_of
from topics.spark.offsets import Gap, SeqRange, TopicRange

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
