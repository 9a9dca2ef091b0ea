"""What a log says happened to a topic besides appends: the bodies of its control frames."""

from msgspec import Struct

from topics.model.config import TopicConfig
from topics.model.tag_match import TagMatch


class TopicCreated(Struct, frozen=True):
    """`ceiling`: seqs up to here are reserved from the start (class `disk`)."""

    name: str
    config: TopicConfig
    ceiling: int = 0


class CursorSet(Struct, frozen=True):
    """A named cursor; without a seq it is forgotten."""

    name: str
    seq: int | None = None


class ConfigUpdated(Struct, frozen=True, omit_defaults=True):
    """What is kept with a topic changed: its configuration, or a named cursor."""

    config: TopicConfig | None = None
    cursor: CursorSet | None = None


class RecordsDeleted(Struct, frozen=True):
    """Every record below `before_seq`; with a `match`, only those whose tag matches."""

    before_seq: int
    match: TagMatch | None = None


class HeadReserved(Struct, frozen=True):
    """No seq up to `ceiling` may be given out after a crash, whether its record survived or not."""

    ceiling: int


class RecordsExpired(Struct, frozen=True):
    """The clock has taken every record up to this one."""

    ttl_lost_seq: int
