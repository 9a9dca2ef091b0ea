"""Whether tests take all cases of what they go through, or a sample. ./test takes samples."""

import os

EXHAUSTIVE = os.environ.get("TOPICS_TEST_EXHAUSTIVE") == "1"
