"""Lines of stdin, numbered as people count them, however the bytes come."""

import os

import pytest

from topics import limits
from topics.cli.input_lines import InputUnusable, Line, lines_of, numbered


def lines_from(*pieces: bytes) -> list[Line]:
    reading, writing = os.pipe()
    try:
        for piece in pieces:
            os.write(writing, piece)
        os.close(writing)
        return [line for chunk in lines_of(reading) for line in chunk]
    finally:
        os.close(reading)


def test_lines_are_numbered_from_one_blank_ones_too() -> None:
    assert lines_from(b"a\n\nb\n") == [Line(1, b"a"), Line(2, b""), Line(3, b"b")]


def test_the_last_line_needs_no_end() -> None:
    assert lines_from(b"a\nb") == [Line(1, b"a"), Line(2, b"b")]


def test_no_input_is_no_line() -> None:
    assert lines_from() == []


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert lines_from(b"\xef\xbb\xbf1\n2") == [Line(1, b"1"), Line(2, b"2")]
    assert lines_from(b"\xef\xbb\xbf1") == [Line(1, b"1")]


def test_a_line_without_an_end_is_refused_before_it_fills_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLI_LINE_BYTES_MAX", 10)
    with pytest.raises(InputUnusable, match="line 2 has more than 10 bytes"):
        lines_from(b"1\n" + b"x" * 11)


def test_arguments_are_numbered_the_same_way() -> None:
    assert numbered(["1", "2"]) == [Line(1, b"1"), Line(2, b"2")]
