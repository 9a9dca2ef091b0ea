"""A router: a rule that copies the records of one topic, its source, into another, its dest."""

from topics.engine.topic import Topic
from topics.model.image import RouterImage
from topics.model.router import RouterSettings


class Router:
    """`cursor`: the last seq of the source that is dealt with. It moves together with the dest's log, never alone, so
    copies and cursor always agree. `ring`: how many topics are on the cycle this router is part of; 0 when on none."""

    __slots__ = (
        "created_ts",
        "cursor",
        "dest",
        "forwarded_total",
        "name",
        "ring",
        "router_id",
        "settings",
        "source",
    )

    def __init__(
        self,
        router_id: int,
        name: str,
        source: Topic,
        dest: Topic,
        settings: RouterSettings,
        created_ts: int,
        cursor: int,
        forwarded_total: int = 0,
    ) -> None:
        self.router_id = router_id
        self.name = name
        self.source = source
        self.dest = dest
        self.settings = settings
        self.created_ts = created_ts
        self.cursor = cursor
        self.forwarded_total = forwarded_total
        self.ring = 0

    @property
    def lag(self) -> int:
        """How many seqs of the source are still to be dealt with."""
        return max(self.source.log.head_seq - self.cursor, 0)

    def image(self) -> RouterImage:
        """As it was when the last of its copies was made that everybody sees: those that are staged are not in the log
        yet."""
        cursor, forwarded_total = self.cursor, self.forwarded_total
        for staged in self.dest.staged:
            if staged.routers_before is not None:
                cursor, forwarded_total = staged.routers_before.get(self.router_id, (cursor, forwarded_total))
                break
        return RouterImage(
            self.router_id,
            self.name,
            self.source.topic_id,
            self.settings,
            self.created_ts,
            cursor,
            forwarded_total,
        )
