"""Paths into JSON: what is one, and where it leads."""

import pytest

from topics.spark.errors import InvalidOption
from topics.spark.jobs.json_paths import column_or_path, json_path, steps_of


@pytest.mark.parametrize(
    ("text", "path"), [("total", "$.total"), ("order.total", "$.order.total"), ("$.items[0].sku", "$.items[0].sku")]
)
def test_paths(text: str, path: str) -> None:
    assert json_path(text, "by") == path


@pytest.mark.parametrize("text", ["", "$", "$.", "a b", "a..b", "$[x]"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="is not a JSON path"):
        json_path(text, "by")


def test_a_path_is_names_and_indexes() -> None:
    assert steps_of("$.items[0].s") == steps_of("items[0].s") == ("items", 0, "s")
    assert steps_of("$['a b.c'][12]") == ("a b.c", 12)
    assert steps_of("unit price") == ()


@pytest.mark.parametrize("text", ["sku", "a.b", "unit price", "price[EUR]", "$tag", "$.a[0]['b c']"])
def test_a_column_may_have_any_name(text: str) -> None:
    column_or_path(text, "tag")


@pytest.mark.parametrize("text", ["", "$.", "$.a[", "$.a[x]", "$.a[-1]", "$..a", "$[0].a"])
def test_what_begins_like_a_path_and_leads_nowhere_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="option tag: "):
        column_or_path(text, "tag")
