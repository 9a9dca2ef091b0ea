"""All tests of source and sink once more, with executors in processes of their own: all they need is sent to them."""

# ruff: noqa: F403 - importing a test is running it with the fixtures of this directory
from spark.test_batch_read import *
from spark.test_stream_read import *
from spark.test_write import *
