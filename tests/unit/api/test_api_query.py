"""Query strings, read by type."""

import pytest

from topics.api.query import Query
from topics.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"", "default"),
        (b"other=1", "default"),
        (b"name=", ""),
        (b"name=a%20b+c", "a b c"),
        (b"name=%C3%A4", "ä"),
        (b"name=1&name=2", "1"),
        (b"&&name=x&", "x"),
        (b"name=a%3Db", "a=b"),
    ],
)
def test_a_text_is_decoded_and_the_first_counts(text: bytes, value: str) -> None:
    assert Query(text).text("name", "default") == value


@pytest.mark.parametrize("text", [b"name=%FF", b"name=\xff", b"%ff=1"])
def test_a_query_that_is_not_utf_8_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest):
        Query(text)


@pytest.mark.parametrize(("text", "value"), [(b"f=true", True), (b"f=1", True), (b"f=false", False), (b"f=0", False)])
def test_a_boolean_is_true_or_false(text: bytes, value: bool) -> None:
    assert Query(text).boolean("f", default=not value) is value


@pytest.mark.parametrize("default", [True, False])
def test_an_absent_boolean_is_the_default(default: bool) -> None:
    assert Query(b"g=1").boolean("f", default=default) is default


@pytest.mark.parametrize("value", [b"", b"yes", b"TRUE", b"2", b"null"])
def test_anything_else_is_no_boolean(value: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Query(b"f=" + value).boolean("f", default=True)
    assert refused.value.detail == {"field": "f"}


@pytest.mark.parametrize(
    ("text", "number"),
    [(b"", 100), (b"n=0", 100), (b"n=1", 1), (b"n=1000", 1000), (b"n=1001", 1000), (b"n=18446744073709551615", 1000)],
)
def test_a_number_is_clamped_and_zero_is_the_default(text: bytes, number: int) -> None:
    assert Query(text).number("n", 100, 1000) == number


@pytest.mark.parametrize("value", [b"", b"-1", b"1.0", b"x", b"+1", b"%D9%A1", b"9" * 21, b"9" * 5000])
def test_anything_else_is_no_number(value: bytes) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Query(b"n=" + value).number("n", 100, 1000)
    assert refused.value.detail == {"field": "n"}
    assert len(refused.value.message) < 120
