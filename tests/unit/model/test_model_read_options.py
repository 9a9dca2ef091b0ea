"""How a reader wants records, when it says nothing special."""

from topics import limits
from topics.model.read_options import ReadOptions


def test_by_default_a_reader_gets_data_and_meta_of_everybody_up_to_the_end() -> None:
    assert ReadOptions(limit=10, bytes_max=1000) == ReadOptions(
        limit=10,
        bytes_max=1000,
        include_tags=False,
        include_meta=True,
        include_data=True,
        own_nodes=frozenset(),
        to_seq=limits.U64_MAX,
    )


def test_readers_who_want_the_same_can_share_what_was_read() -> None:
    """Options are part of a key: equal ones in any order of names are one."""
    one = ReadOptions(10, 1000, own_nodes=frozenset(("a", "b")))
    other = ReadOptions(10, 1000, own_nodes=frozenset(("b", "a")))
    assert {one: "read"}[other] == "read"
