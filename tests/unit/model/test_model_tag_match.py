"""The match language of a delete."""

import pytest

from topics.errors import InvalidRequest
from topics.model.tag_match import TagMatch, parse_match


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("x", TagMatch("x", is_prefix=False)),
        ("", TagMatch("", is_prefix=False)),
        ("x*", TagMatch("x", is_prefix=True)),
        ("*", TagMatch("", is_prefix=True)),
        (["tag", "Eq", "x"], TagMatch("x", is_prefix=False)),
        (["tag", "Eq", "x*"], TagMatch("x*", is_prefix=False)),
        (["tag", "Glob", "x:*"], TagMatch("x:", is_prefix=True)),
        (["tag", "Glob", "*"], TagMatch("", is_prefix=True)),
    ],
)
def test_these_are_matches(value: object, match: TagMatch) -> None:
    assert parse_match(value) == match


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        {},
        [],
        ["tag", "Eq"],
        ["tag", "Eq", "x", "y"],
        ["tag", "Eq", 7],
        ["node", "Eq", "x"],
        ["tag", "Like", "x"],
        ["tag", "eq", "x"],
        ["tag", "Glob", "x"],
        ["tag", "Glob", ""],
        ["tag", "Glob", "x*y"],
        ["tag", "Glob", "x**"],
        "a*b*",
    ],
)
def test_these_are_not(value: object) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_match(value)
    assert refused.value.detail == {"field": "match"}
