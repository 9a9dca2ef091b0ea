"""Names of topics as names of views."""

import pytest

from topics.spark.errors import InvalidOption
from topics.spark.jobs.query_views import mentioned, names_of_views, view_name


@pytest.mark.parametrize(
    ("topic", "view"), [("orders", "orders"), ("shop.orders", "shop_orders"), ("a:b-c", "a_b_c"), ("7days", "t_7days")]
)
def test_a_view_is_named_after_its_topic(topic: str, view: str) -> None:
    assert view_name(topic) == view


def test_two_topics_of_one_view_are_refused() -> None:
    with pytest.raises(InvalidOption, match="would both be the view a_b"):
        names_of_views(["a.b", "a-b"])


def test_names_differ_by_more_than_case() -> None:
    with pytest.raises(InvalidOption, match="would both be the view orders"):
        names_of_views(["orders", "Orders"])


def test_the_topics_a_query_mentions_are_found() -> None:
    topics = ["orders", "shop.orders", "order", "users"]
    assert mentioned("SELECT * FROM Shop_Orders JOIN `users`", topics) == ["shop.orders", "users"]
