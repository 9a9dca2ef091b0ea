"""Routers: making, changing, listing and deleting them. What they do with records is in `forwarding.py`."""

from typing import NamedTuple

from topics import limits
from topics.engine.flow import EngineLimits, Flow
from topics.engine.forwarding import ALL_ROUTERS, Forwarding
from topics.engine.journal import Busy, Commit
from topics.engine.router_graph import around, ring_with, source_of
from topics.engine.topic import Router, Topic
from topics.engine.topics import Topics
from topics.errors import (
    InvalidRequest,
    RouterCycle,
    RouterNotFound,
    Throttled,
    TopicExistsIncompatible,
    TopicNotFound,
)
from topics.model.config import Durability
from topics.model.names import check_router_name, check_topic_name
from topics.model.operation import RouterDeleted, RouterPut, SeqsReserved
from topics.model.router import RouterSettings


class PutRouter(NamedTuple):
    """`router` as it is once the commit is done."""

    router: Router
    created: bool
    commit: Commit | None


class RouterPage(NamedTuple):
    routers: list[Router]
    last_name: str
    more: bool


class Routers:
    def __init__(self, flow: Flow, bounds: EngineLimits, topics: Topics, forwarding: Forwarding) -> None:
        self._flow = flow
        self._state = flow.state
        self._limits = bounds
        self._topics = topics
        self._forwarding = forwarding

    def put(
        self, name: str, source_name: str, dest_name: str, settings: RouterSettings, *, create_dest: bool
    ) -> PutRouter:
        """Makes the router, or changes its settings. It forwards what is written from now on."""
        check_router_name(name)
        check_topic_name(source_name, "source")
        check_topic_name(dest_name, "dest")
        if source_name == dest_name:
            raise InvalidRequest.in_field("dest", "must be another topic than source")
        self._flow.await_open(ALL_ROUTERS, source_name, dest_name)
        router = self._state.routers.get(name)
        if router is not None and (router.source.name, router.dest.name) != (source_name, dest_name):
            # Where it goes from and to may be nothing the caller is allowed to see.
            raise TopicExistsIncompatible(
                f'router "{name}" has another source or dest, and these cannot be changed. Delete it first, or use '
                "another name",
                reason="router_endpoints_fixed",
                router=name,
            )
        source, dest = self._state.topics.get(source_name), self._state.topics.get(dest_name)
        if source is not None and dest is not None:
            if not settings.allow_cycle and (router is None or router.settings.allow_cycle):
                _check_cycle(source, dest)
            _check_fan_in(source, dest)
        elif dest is not None and source_of(dest) is not None:
            raise _fan_in(dest)
        if router is not None:
            return self._change(router, settings)
        self._check_count()
        if source is None or dest is None:
            self._create_endpoints(source_name, dest_name, create_dest=create_dest)
            source, dest = self._state.topics.get(source_name), self._state.topics.get(dest_name)
            assert source is not None
            assert dest is not None
        return self._create(name, source, dest, settings)

    def get(self, name: str) -> Router:
        found = self._state.routers.get(name)
        if found is None:
            check_router_name(name)
            raise RouterNotFound(name)
        return found

    def page(
        self,
        after: str,
        prefixes: tuple[str, ...],
        page_size: int,
        *,
        source: str = "",
        dest: str = "",
        endpoint_prefixes: tuple[str, ...] = ("",),
    ) -> RouterPage:
        """Routers named after `after` that begin with one of `prefixes`, in the order of their names; with a
        `source` or a `dest`, only those from or to it. Source and dest begin with one of `endpoint_prefixes`."""
        page: list[Router] = []
        for router in self._state.routers.after(after, prefixes):
            from_name, to_name = router.source.name, router.dest.name
            if (source and from_name != source) or (dest and to_name != dest):
                continue
            if not (from_name.startswith(endpoint_prefixes) and to_name.startswith(endpoint_prefixes)):
                continue
            if len(page) == page_size:
                return RouterPage(page, page[-1].name, more=True)
            page.append(router)
        return RouterPage(page, after, more=False)

    def delete(self, name: str) -> tuple[bool, Commit | None]:
        """Ends the router. What it has forwarded stays."""
        check_router_name(name)
        self._forwarding.await_routers()
        router = self._state.routers.get(name)
        if router is None:
            return False, None
        self._flow.await_open(*(topic.name for topic in around(router.source, router.dest)))
        self._flow.admit(router.dest)
        self._forwarding.catch_up(router.dest)
        deleted = RouterDeleted(topic_id=router.dest.topic_id, ts=self._flow.clock.now_ms(), router_id=router.router_id)
        topics = around(router.source, router.dest)
        closes = (ALL_ROUTERS, *(topic.name for topic in topics))
        commit = self._flow.submit([deleted], topics, gated=True, closes=closes)
        return True, commit

    def _change(self, router: Router, settings: RouterSettings) -> PutRouter:
        if settings == router.settings:
            return PutRouter(router, created=False, commit=None)
        self._flow.admit(router.dest)
        self._forwarding.catch_up(router.dest)
        put = self._put(router, settings)
        commit = self._flow.submit([put], (router.dest,), gated=True, closes=(ALL_ROUTERS, router.dest.name))
        return PutRouter(router, created=False, commit=commit)

    def _create(self, name: str, source: Topic, dest: Topic, settings: RouterSettings) -> PutRouter:
        self._flow.await_open(*(topic.name for topic in around(source, dest)))
        joined = self._flow.joined(source, dest)
        self._flow.admit(source, dest)
        now_ms = self._flow.clock.now_ms()
        router = Router(self._state.next_id, name, source, dest, settings, now_ms, source.assigned_seq)
        self._state.next_id += 1
        # So that the first copies need not wait for the disk.
        ceiling = dest.next_ceiling(dest.assigned_seq, now_ms)
        if ceiling is not None and dest.config.durability in (Durability.DISK, Durability.FSYNC):
            dest.requested_ceiling = ceiling
            joined.append(SeqsReserved(topic_id=dest.topic_id, ts=now_ms, ceiling=ceiling))
        topics = around(source, dest)
        closes = (ALL_ROUTERS, *(topic.name for topic in topics))
        commit = self._flow.submit([*joined, self._put(router, settings)], topics, gated=True, closes=closes)
        return PutRouter(router, created=True, commit=commit)

    def _put(self, router: Router, settings: RouterSettings) -> RouterPut:
        return RouterPut(
            topic_id=router.dest.topic_id,
            ts=self._flow.clock.now_ms(),
            router_id=router.router_id,
            name=router.name,
            source_id=router.source.topic_id,
            settings=settings,
            cursor=router.cursor,
        )

    def _create_endpoints(self, source_name: str, dest_name: str, *, create_dest: bool) -> None:
        """Makes those of the two topics that are missing, both or none. Raises `Busy` until they are durable."""
        if self._state.topics.get(dest_name) is None and not create_dest:
            raise TopicNotFound(dest_name)
        missing = [name for name in (source_name, dest_name) if self._state.topics.get(name) is None]
        self._topics.check_count(len(missing))
        commits = [self._topics.create(self._topics.new(name), exchange=True) for name in missing]
        last = commits[-1]
        if last is not None:
            raise Busy(last)

    def _check_count(self) -> None:
        routers_max = self._limits.routers_max
        if routers_max and len(self._state.routers) >= routers_max:
            raise Throttled(
                f"this server holds {routers_max} routers, which is its limit",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_routers",
                max=routers_max,
            )


def _check_cycle(source: Topic, dest: Topic) -> None:
    ring = ring_with(source, dest)
    if ring:
        raise RouterCycle([source.name, *(topic.name for topic in reversed(ring))])


def _check_fan_in(source: Topic, dest: Topic) -> None:
    other = source_of(dest)
    if other is not None and other is not source:
        raise _fan_in(dest)


def _fan_in(dest: Topic) -> TopicExistsIncompatible:
    return TopicExistsIncompatible(
        f'topic "{dest.name}" already receives copies from another topic, and can have only one source: '
        "use a separate dest",
        reason="router_dest_fan_in",
        dest=dest.name,
    )
