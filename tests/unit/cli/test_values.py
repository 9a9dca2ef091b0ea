"""Arguments with a unit or a form of their own."""

import argparse

import pytest

from topics.cli.values import at_path, duration_ms, json_path, key_value, positive_number, size_bytes, whole_number


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("30s", 30_000), ("30", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("1.5h", 5_400_000),
     ("7d", 604_800_000), ("2w", 1_209_600_000), ("0", 0), (" 3 min ", 180_000)],
)  # fmt: skip
def test_a_duration_is_read_with_its_unit(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500", 500),
        ("64kB", 64_000),
        ("64KiB", 65_536),
        ("10MB", 10_000_000),
        ("1GiB", 2**30),
        ("1.5k", 1500),
        ("0", 0),
    ],
)
def test_a_size_is_read_with_its_unit(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "-1s", "5 parsecs", "1e9s", "٣s", "9" * 19 + "w"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is not a duration|is too long"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["", "big", "-1", "1XB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a size"):
        size_bytes(text)


def test_numbers_may_be_written_as_they_are_shown() -> None:
    assert whole_number("1,234,567") == 1_234_567
    for wrong in ("-1", "1.5", "x", "", "1" * 21):
        with pytest.raises(argparse.ArgumentTypeError):
            whole_number(wrong)
    with pytest.raises(argparse.ArgumentTypeError):
        positive_number("0")


def test_a_path_leads_into_the_data() -> None:
    data = {"customer": {"id": 7}, "items": [{"sku": "mug"}]}
    assert at_path(data, json_path(".customer.id")) == 7
    assert at_path(data, json_path(".items.0.sku")) == "mug"
    assert at_path(data, json_path(".")) == data
    for nowhere in (".items.1", ".items.x", ".customer.id.more", ".none"):
        assert at_path(data, json_path(nowhere)) is None
    with pytest.raises(argparse.ArgumentTypeError, match="begin it with a dot"):
        json_path("sku")


def test_a_pair_is_cut_at_the_first_sign() -> None:
    assert key_value("a=b=c") == ("a", "b=c")
    for wrong in ("a", "=b"):
        with pytest.raises(argparse.ArgumentTypeError):
            key_value(wrong)
