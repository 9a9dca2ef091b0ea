"""All routers by name, and how they join topics.

A topic has one source at most, so going against the arrows from any topic is a walk, not a search. Cycles are rings:
every topic on one has its source on it, too.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from topics.engine.registry import names_after
from topics.engine.topic import Router, Routers, Topic


def source_of(topic: Topic) -> Topic | None:
    """The source of the routers into the topic, if it has any."""
    for router in topic.inbound.values():
        return router.source
    return None


def upstream(topic: Topic) -> list[Topic]:
    """The topic, its source, the source of that, and so on; each once."""
    chain = {topic: None}
    source = source_of(topic)
    while source is not None and source not in chain:
        chain[source] = None
        source = source_of(source)
    return list(chain)


def ring_with(source: Topic, dest: Topic) -> list[Topic]:
    """The topics on the cycle that a router between these is or would be part of, against the arrows; the dest is the
    last. None if there is no cycle."""
    chain = upstream(source)
    return chain[: chain.index(dest) + 1] if dest in chain else []


def around(source: Topic, dest: Topic) -> tuple[Topic, ...]:
    """The topics a router between these changes: both, and all on the cycle it closes or opens, where copies count
    their hops from then on, or no more."""
    return tuple(dict.fromkeys((source, dest, *ring_with(source, dest))))


def ring_of(topic: Topic) -> int:
    """How many topics are on the cycle of this one; 0 if it is on none."""
    for router in topic.inbound.values():
        return router.ring
    return 0


def _with(routers: Routers, router: Router) -> Routers:
    own = routers if isinstance(routers, dict) else {}
    own[router.router_id] = router
    return own


def link(router: Router) -> None:
    """The router begins to work."""
    router.dest.inbound = _with(router.dest.inbound, router)
    router.source.outbound = _with(router.source.outbound, router)
    members = ring_with(router.source, router.dest)
    for topic in members:
        for each in topic.inbound.values():
            each.ring = len(members)


def unlink(router: Router) -> None:
    for routers in (router.dest.inbound, router.source.outbound):
        if isinstance(routers, dict):  # else there never was one
            routers.pop(router.router_id, None)
    if router.ring and source_of(router.dest) is None:
        # It was the only one that closed the ring.
        for topic in [router.dest, *upstream(router.source)]:
            if topic.hops:
                topic.hops.clear()
            for each in topic.inbound.values():
                each.ring = 0


class RouterRegistry:
    __slots__ = ("_by_id", "_by_name", "_names")

    def __init__(self) -> None:
        self._by_name: dict[str, Router] = {}
        self._by_id: dict[int, Router] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Router]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Router | None:
        return self._by_name.get(name)

    def by_id(self, router_id: int) -> Router | None:
        return self._by_id.get(router_id)

    def add(self, router: Router) -> None:
        self._by_name[router.name] = self._by_id[router.router_id] = router
        insort(self._names, router.name)

    def remove(self, router: Router) -> None:
        del self._by_name[router.name], self._by_id[router.router_id]
        del self._names[bisect_left(self._names, router.name)]

    def after(self, name: str, prefixes: tuple[str, ...]) -> Iterator[Router]:
        """Routers named after `name` that begin with one of `prefixes`, in the order of their names."""
        return (self._by_name[each] for each in names_after(self._names, name, prefixes))
