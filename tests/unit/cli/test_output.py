"""What commands print: numbers and times for people, and nothing a terminal would act upon."""

import io

import pytest

from topics.cli.output import Paint, Style, byte_count, clipped, duration, harmless, print_json


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1234, "1.2 kB"), (9949, "9.9 kB"), (9951, "10 kB"),
     (34_000_000, "34 MB"), (999_600, "1.0 MB"), (2**64, "18 EB"), (10**24, "1000000 EB")],
)  # fmt: skip
def test_bytes_are_told_as_people_say_them(count: int, expected: str) -> None:
    assert byte_count(count) == expected


@pytest.mark.parametrize(
    ("duration_ms", "expected"),
    [(0, "0 ms"), (7, "7 ms"), (1000, "1 s"), (1500, "1500 ms"), (2500, "2.5 s"), (90_000, "90 s"), (120_000, "2 min"),
     (86_400_000, "1 d"), (9_000_000, "2.5 h")],
)  # fmt: skip
def test_durations_are_told_in_the_unit_that_fits(duration_ms: int, expected: str) -> None:
    assert duration(duration_ms) == expected


def test_escape_sequences_of_others_are_shown_and_not_obeyed() -> None:
    assert harmless("a\x1b[31mred\x07\u202e") == "a\\x1b[31mred\\x07\\u202e"
    assert harmless("grüße ✓") == "grüße ✓"


def test_long_text_is_cut_with_a_sign() -> None:
    assert (clipped("abcdef", 6), clipped("abcdefg", 6), clipped("abc", 0)) == ("abcdef", "abcde…", "…")


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Paint(Screen())("x", Style.RED) == "\x1b[31mx\x1b[0m"
    assert Paint(io.StringIO())("x", Style.RED) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Paint(Screen())("x", Style.RED) == "x"
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "dumb")
    assert Paint(Screen())("x", Style.RED) == "x"


def test_an_object_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "line\nbreak"})
    assert capsys.readouterr().out == '{"a":"line\\nbreak"}\n'
