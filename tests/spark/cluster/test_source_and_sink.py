"""Tests of source and sink once more, with executors in separate processes: all they need is sent to them.

./test takes those whose tasks read from files or write, and every fourth of the others; TOPICS_TEST_EXHAUSTIVE=1 takes
all of them.
"""

# ruff: noqa: F403 - importing a test is running it with the fixtures of this directory
from spark.test_batch_read import *
from spark.test_stream_read import *
from spark.test_write import *
