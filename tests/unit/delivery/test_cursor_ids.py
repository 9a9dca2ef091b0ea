"""SSE ids: plain maps up to 64 topics, packed beyond, and anything else is nobody's."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics import limits
from topics.delivery.cursor_ids import decode_id, encode_id

cursor_maps = st.dictionaries(st.text(st.characters(codec="ascii"), max_size=20), st.integers(0, 2**64 - 1))


def test_an_id_is_base64url_of_the_map_without_padding() -> None:
    assert encode_id({"jobs": 5210, "events": 88130, "audit": 990}) == (
        b"eyJqb2JzIjo1MjEwLCJldmVudHMiOjg4MTMwLCJhdWRpdCI6OTkwfQ"
    )


def test_the_id_of_the_documentation_is_understood() -> None:
    assert decode_id("eyJqb2JzIjo1MjEwLCJldmVudHMiOjg4MTMwfQ") == {"jobs": 5210, "events": 88130}


def test_padding_is_accepted() -> None:
    assert decode_id(base64.urlsafe_b64encode(b'{"a":1}').decode()) == {"a": 1}


@pytest.mark.parametrize("count", [1, limits.PLAIN_ID_TOPICS_MAX, limits.PLAIN_ID_TOPICS_MAX + 1, 256])
def test_an_id_of_any_number_of_topics_comes_back(count: int) -> None:
    cursors = {f"topic-{number}": number for number in range(count)}
    text = encode_id(cursors).decode()
    assert decode_id(text) == cursors
    assert text.startswith("z.") == (count > limits.PLAIN_ID_TOPICS_MAX)


@given(cursor_maps)
def test_every_map_comes_back(cursors: dict[str, int]) -> None:
    assert decode_id(encode_id(cursors).decode()) == cursors


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    cursors = decode_id(text)
    assert cursors is None or decode_id(encode_id(cursors).decode()) == cursors


def pack(value: bytes) -> str:
    return "z." + base64.urlsafe_b64encode(zlib.compress(value)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!",
        "e",
        "\xff",
        "eyJ+",
        base64.urlsafe_b64encode(b"[]").decode(),
        base64.urlsafe_b64encode(b'{"a":1.5}').decode(),
        base64.urlsafe_b64encode(b'{"a":"1"}').decode(),
        base64.urlsafe_b64encode(b'{"a":null}').decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        "z.",
        "z.AAAA",
        pack(b"[]"),
        "z." + base64.urlsafe_b64encode(zlib.compress(b'{"a":1}')[:-6]).decode(),
    ],
)
def test_what_is_no_id_is_none(text: str) -> None:
    assert decode_id(text) is None


def test_a_bomb_is_not_unpacked() -> None:
    bomb = pack(b'{"a":' + b" " * limits.ID_BYTES_MAX + b"1}")
    assert len(bomb) < limits.HEADER_BYTES_MAX
    assert decode_id(bomb) is None


def test_an_id_fits_into_a_request_head_however_many_topics_it_has() -> None:
    cursors = {f"{number:03}-{'x' * 40}": 2**53 for number in range(limits.WATCH_TOPICS_MAX)}
    assert len(encode_id(cursors)) < limits.HEADER_BYTES_MAX


def test_epochs_do_not_count_as_topics() -> None:
    cursors = {f"{sign}topic-{number}": number for number in range(limits.PLAIN_ID_TOPICS_MAX) for sign in ("", "$")}
    text = encode_id(cursors).decode()
    assert not text.startswith("z.")
    assert decode_id(text) == cursors
    assert encode_id({**cursors, "one more": 1}).startswith(b"z.")


def test_an_id_fits_into_a_request_head_however_long_the_names_are() -> None:
    names = [f"{number:03}-".ljust(limits.TOPIC_NAME_CHARS_MAX, "x") for number in range(limits.PLAIN_ID_TOPICS_MAX)]
    cursors = {f"{sign}{name}": 2**53 for name in names for sign in ("", "$")}
    text = encode_id(cursors)
    assert len(text) < limits.HEADER_BYTES_MAX
    assert decode_id(text.decode()) == cursors
