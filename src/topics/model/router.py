"""What a router does with the records it forwards."""

from enum import StrEnum

from msgspec import Struct

from topics.model.tag_match import TagMatch


class Guarantee(StrEnum):
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class RouterSettings(Struct, frozen=True):
    """All of a router that may be changed while it exists."""

    preserve_node: bool = True
    preserve_tag: bool = True
    filter: TagMatch | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
