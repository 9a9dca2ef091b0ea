"""On which cycles routers were, while a log is replayed.

Topics are replayed each at its own pace, so the routers that are there together in the middle of it never were: what a
topic's own log says of its cycle counts. Early logs say nothing; then it is guessed from all the routers they know.
"""

from collections.abc import Callable, Collection, Mapping

from topics.engine.router import Router
from topics.engine.router_graph import source_of
from topics.engine.topic import Topic
from topics.model.image import RouterImage
from topics.model.operation import RingChanged, RouterPut


class ReplayedRings:
    """Knows, for every topic by its id, where its routers lead from: at the start, at the end, and the latest ever."""

    def __init__(self) -> None:
        self._at_start: dict[int, int] = {}
        self._at_end: dict[int, dict[int, int]] = {}  # router id -> source
        self._latest: dict[int, int] = {}
        self._is_told = True
        self._uncounted: dict[tuple[Topic, Topic], int] = {}  # (source, dest): hops up to here are of an earlier cycle

    # While operations are replayed

    def load(self, dest_id: int, routers: list[RouterImage]) -> None:
        self._at_start[dest_id] = self._latest[dest_id] = routers[0].source_id
        self._at_end[dest_id] = {router.router_id: router.source_id for router in routers}

    def put(self, put: RouterPut) -> None:
        self._latest[put.dest_id] = put.source_id
        self._at_end.setdefault(put.dest_id, {})[put.router_id] = put.source_id
        self._is_told = self._is_told and put.ring is not None

    def delete(self, dest_id: int, router_id: int) -> None:
        self._at_end.get(dest_id, {}).pop(router_id, None)

    def depth(self, topic_id: int) -> int:
        """How many topics come before this one, as far as that can be said."""
        return len(_upstream(topic_id, self._latest.get))

    # When operations and copies are made in order

    def of_image(self, router: Router) -> int:
        return len(_ring(router.dest.topic_id, self._at_start.get)) if self._is_told else self._guess(router)

    def of_put(self, router: Router, put: RouterPut) -> int:
        return put.ring if put.ring is not None and self._is_told else self._guess(router)

    def change(self, dest: Topic, ring: RingChanged) -> None:
        source = source_of(dest)
        if source is not None and self._is_told:
            for router in dest.inbound.values():
                router.ring = ring.size
            self._uncounted[source, dest] = ring.source_seq

    def settle(self, dest: Topic, topics: Collection[int]) -> None:
        """Nothing more happens to the dest: it is on the cycle that the routers left at the end make of these topics.
        One whose source is not among them has its last copies to come, made before that."""

        def source(topic_id: int) -> int | None:
            return next((each for each in self._at_end.get(topic_id, {}).values() if each in topics), None)

        size = len(_ring(dest.topic_id, source))
        for router in dest.inbound.values():
            if router.source.topic_id in topics:
                router.ring = size

    def hops(self, dest: Topic) -> Mapping[int, int]:
        """Of the records of its source, those that count for copies into the dest."""
        source = source_of(dest)
        if source is None:
            return {}
        uncounted = self._uncounted.get((source, dest))
        if uncounted is None:
            return source.hops
        return {seq: count for seq, count in source.hops.items() if seq > uncounted}

    def _guess(self, router: Router) -> int:
        members = _ring(router.dest.topic_id, self._latest.get)
        return len(members) if router.source.topic_id in members else 0


def _upstream(topic_id: int, source_of_id: Callable[[int], int | None]) -> list[int]:
    chain = [topic_id]
    while (source_id := source_of_id(chain[-1])) is not None and source_id not in chain:
        chain.append(source_id)
    return chain


def _ring(topic_id: int, source_of_id: Callable[[int], int | None]) -> list[int]:
    """The topics on the cycle this one is on."""
    chain = _upstream(topic_id, source_of_id)
    return chain if source_of_id(chain[-1]) == topic_id else []
