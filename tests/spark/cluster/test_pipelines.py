"""Pipelines with executors in processes of their own."""

# ruff: noqa: F401 - importing a test is running it with the fixtures of this directory
from spark.test_archive import (
    test_every_seq_is_archived_lost_or_deleted_and_a_second_run_adds_only_what_is_new,
)
from spark.test_audit import test_read_and_deleted_and_lost_make_the_head_and_the_archive_matches
from spark.test_rollup import (
    test_a_batch_that_comes_again_adds_only_what_is_missing,
    test_a_closed_window_has_its_result_once,
)
