"""Which of two content types an `Accept` header asks for."""

import pytest

from topics.api.accept import preferred

LINES = b"application/x-ndjson"
ARROW = b"application/vnd.apache.arrow.stream"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, LINES),
        (b"*/*", LINES),
        (b"application/*", LINES),
        (LINES, LINES),
        (ARROW, ARROW),
        (b"Application/Vnd.Apache.Arrow.Stream", ARROW),
        (ARROW + b", */*", ARROW),
        (b"*/*, " + ARROW, ARROW),
        (ARROW + b";q=0.5, */*", LINES),
        (ARROW + b";q=0.5, */*;q=0.1", ARROW),
        (ARROW + b"; q=0.2 , " + LINES + b"; q=0.3", LINES),
        (ARROW + b", " + LINES, LINES),
        (LINES + b";q=0, */*", ARROW),
        (ARROW + b";q=0, " + LINES + b";q=0", None),
        (ARROW + b";q=often", None),
        (b"text/html", None),
        (b"", None),
    ],
)
def test_the_most_wanted_type_is_chosen(accept: bytes | None, chosen: bytes | None) -> None:
    assert preferred(accept, (LINES, ARROW)) == chosen
