"""How a reader wants records: how many, how they are rendered, and whose are left out."""

from typing import NamedTuple

from topics import limits


class ReadOptions(NamedTuple):
    """`own_nodes`: the reader's identities, whose records it does not get. `to_seq`: the last seq it may see."""

    limit: int
    bytes_max: int
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True
    own_nodes: frozenset[str] = frozenset()
    to_seq: int = limits.U64_MAX
