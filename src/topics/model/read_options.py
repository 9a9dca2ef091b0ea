"""What a reader asks for: how many records, how they are rendered, and which are left out."""

from typing import NamedTuple

from topics import limits
from topics.model.tag_match import TagMatch


class ReadOptions(NamedTuple):
    """`own_nodes`: the reader's identities, whose records it does not get. `to_seq`: the last seq it may see.
    `match`: only records with such a tag. `joined`: neighbours may come as one text, with commas between them.
    `line_bytes`: what each line break in a text costs on the wire beyond itself; `bytes_max` is about bytes as sent."""

    limit: int
    bytes_max: int
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True
    own_nodes: frozenset[str] = frozenset()
    to_seq: int = limits.U64_MAX
    match: TagMatch | None = None
    joined: bool = False
    line_bytes: int = 0

    @property
    def leaves_out(self) -> bool:
        """Whether some live records may not be for this reader."""
        return bool(self.own_nodes) or self.match is not None

    def wants(self, node: str | None, tag: str | None) -> bool:
        """Whether a record with this node and tag is for this reader."""
        if node is not None and node in self.own_nodes:
            return False
        return self.match is None or self.match.matches(tag)
