"""How jobs are divided among those who claim together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.engine.sharing import deal, shares


def test_everybody_gets_what_they_wish_where_there_is_enough() -> None:
    assert shares(10, [3, 4]) == [3, 4]


def test_ten_workers_with_the_same_wish_get_the_same() -> None:
    assert shares(50, [10] * 10) == [5] * 10


def test_a_share_is_in_proportion_to_the_wish() -> None:
    assert shares(8, [4, 12]) == [2, 6]


@pytest.mark.parametrize(("first", "given_out"), [(0, [2, 1, 1]), (1, [1, 2, 1]), (5, [1, 1, 2])])
def test_who_gets_the_odd_one_takes_turns(first: int, given_out: list[int]) -> None:
    assert shares(4, [3, 3, 3], first) == given_out


@given(st.integers(0, 200), st.lists(st.integers(1, 50), min_size=1, max_size=12), st.integers(0, 100))
def test_all_is_given_out_and_nobody_gets_more_than_wished(available: int, wishes: list[int], first: int) -> None:
    given_out = shares(available, wishes, first)
    assert sum(given_out) == min(available, sum(wishes))
    assert all(0 <= share <= wish for share, wish in zip(given_out, wishes, strict=True))
    for share, wish in zip(given_out, wishes, strict=True):
        assert share >= min(available * wish // sum(wishes), wish)


def test_jobs_are_dealt_in_turn_and_come_in_the_order_of_their_seqs() -> None:
    assert deal([9, 1, 2, 3, 4], [2, 3]) == [[2, 9], [1, 3, 4]]


def test_who_is_alone_gets_all() -> None:
    assert deal([9, 1, 2], [3]) == [[1, 2, 9]]
