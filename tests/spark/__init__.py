"""Tests with a Spark session. Modules that assert for others say what differs, as tests do."""

import pytest

pytest.register_assert_rewrite("spark.history", "spark.readings")
