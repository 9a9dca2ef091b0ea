"""Which names topics may have."""

import pytest

from topics.errors import InvalidRequest
from topics.model.names import check_topic_name, is_topic_name


@pytest.mark.parametrize("name", ["a", "0", "Z", "jobs", "render-queue:tenantA", "a.b_c:d-e", "a" * 255, "a-", "a."])
def test_these_are_topic_names(name: str) -> None:
    assert is_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", "-a", ".a", "_a", ":a", "a b", "a/b", "a\n", "\na", "ä", "a\x00", "a" * 256, "a*", "a\u0660"]
)
def test_these_are_not(name: str) -> None:
    assert not is_topic_name(name)


def test_a_refusal_names_the_field_and_shows_the_name() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_topic_name("no spaces", "dead_letter")
    assert refused.value.detail == {"field": "dead_letter"}
    assert "'no spaces'" in refused.value.message


def test_a_very_long_name_is_shown_cut() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_topic_name("x" * 10_000)
    assert len(refused.value.message) < 300
