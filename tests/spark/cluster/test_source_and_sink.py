"""Tests of source and sink once more, with executors in processes of their own: all they need is sent to them."""

# ruff: noqa: F401 - importing a test is running it with the fixtures of this directory
from spark.test_batch_read import (
    test_files_give_the_same_rows_as_the_server,
    test_rows_and_tombstones_and_deleted_make_the_range,
)
from spark.test_stream_read import (
    test_a_bound_is_shared_by_the_topics,
    test_a_deleted_and_recreated_topic_is_a_loss_and_not_a_silent_restart,
    test_what_is_available_is_read_in_bounded_batches_and_a_restart_goes_on,
)
from spark.test_write import (
    test_every_column_arrives,
    test_rows_are_appended_in_chunks,
    test_the_key_is_in_no_plan_and_no_log,
)
