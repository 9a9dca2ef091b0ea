"""Making, changing and deleting routers."""

from collections.abc import Sequence
from typing import NamedTuple

from topics import limits
from topics.engine.control import ALL_ROUTERS
from topics.engine.forwarding import Forwarding
from topics.engine.journal import Busy, Commit, all_of
from topics.engine.router import Router
from topics.engine.router_graph import ring_of, ring_with, source_of
from topics.engine.topic import Topic
from topics.errors import (
    InvalidRequest,
    RouterCycle,
    RouterNotFound,
    Throttled,
    TopicExistsIncompatible,
    TopicNotFound,
)
from topics.model.config import TopicConfigPatch
from topics.model.names import check_router_name, check_topic_name
from topics.model.operation import RingChanged, RouterChanged, RouterPut
from topics.model.router import RouterSettings


class PutRouter(NamedTuple):
    router: Router
    created: bool
    commit: Commit | None


class RouterPage(NamedTuple):
    routers: list[Router]
    last_name: str
    more: bool


class RouterOperations(Forwarding):
    def put_router(
        self, name: str, source_name: str, dest_name: str, settings: RouterSettings, *, create_dest: bool
    ) -> PutRouter:
        """Makes the router, or changes its settings. It forwards what is written from now on."""
        check_router_name(name)
        check_topic_name(source_name, "source")
        check_topic_name(dest_name, "dest")
        if source_name == dest_name:
            raise InvalidRequest.in_field("dest", "must be another topic than source")
        for closed in (ALL_ROUTERS, source_name, dest_name):
            self._await_control(closed)
        router = self.routers.get(name)
        if router is not None and (router.source.name, router.dest.name) != (source_name, dest_name):
            # Where it goes from and to may be nothing the caller is allowed to see.
            raise TopicExistsIncompatible(
                f'router "{name}" has another source or dest, and these cannot be changed. Delete it first, or use '
                "another name",
                reason="router_endpoints_fixed",
                router=name,
            )
        source, dest = self.topics.get(source_name), self.topics.get(dest_name)
        if source is not None and dest is not None:
            if not settings.allow_cycle and (router is None or router.settings.allow_cycle):
                _check_cycle(source, dest)
            _check_fan_in(source, dest)
        elif dest is not None and source_of(dest) is not None:
            raise _fan_in(dest)
        if router is not None:
            return self._change_router(router, settings)
        self._check_router_count()
        if source is None or dest is None:
            self._create_endpoints(source_name, dest_name, create_dest=create_dest)
            source, dest = self.topics.get(source_name), self.topics.get(dest_name)
            assert source is not None
            assert dest is not None
        return self._create_router(name, source, dest, settings)

    def router(self, name: str) -> Router:
        found = self.routers.get(name)
        if found is None:
            check_router_name(name)
            raise RouterNotFound(name)
        return found

    def page_of_routers(
        self, after: str, prefixes: tuple[str, ...], page_size: int, *, source: str = "", dest: str = ""
    ) -> RouterPage:
        """Routers named after `after` that begin with one of `prefixes`, in the order of their names; with a
        `source` or a `dest`, only those from or to it."""
        page: list[Router] = []
        for router in self.routers.after(after, prefixes):
            if (source and router.source.name != source) or (dest and router.dest.name != dest):
                continue
            if len(page) == page_size:
                return RouterPage(page, page[-1].name, more=True)
            page.append(router)
        return RouterPage(page, after, more=False)

    def delete_router(self, name: str) -> tuple[bool, Commit | None]:
        """Ends the router. What it has forwarded stays."""
        check_router_name(name)
        self._await_routers()
        router = self.routers.get(name)
        if router is None:
            return False, None
        dest = router.dest
        opened = ring_with(router.source, dest)[:-1] if len(dest.inbound) == 1 else []
        self._admit_change(dest, *opened)
        now_ms = self._clock.now_ms()
        commit = all_of(
            [self._journal.delete_router(dest.topic_id, now_ms, router.router_id), *self._change_ring(opened, 0)]
        )
        closed = (ALL_ROUTERS, dest.name, *(topic.name for topic in opened))
        self._when_durable(closed, commit, lambda: self.apply_remove_router(router))
        return True, commit

    def _admit_change(self, *topics: Topic) -> None:
        """Raises when what is about all these topics cannot be journalled now."""
        for topic in topics:
            self._await_control(topic.name)
        for topic in topics:
            self._journal.admit(topic.topic_id)

    def _change_ring(self, topics: Sequence[Topic], size: int) -> list[Commit | None]:
        """Journals that these are now on a cycle of so many. What follows depends on it, so nothing is copied to them
        until that is durable."""
        now_ms = self._clock.now_ms()
        commits = []
        for topic in topics:
            cursors = {router.router_id: router.cursor for router in topic.inbound.values()}
            source = source_of(topic)
            assert source is not None, "on a cycle all have one"
            change = RouterChanged(ring=RingChanged(size, cursors, source.assigned_seq))
            commits.append(self._journal.change_router(topic.topic_id, now_ms, change, gated=True))
        return commits

    def _change_router(self, router: Router, settings: RouterSettings) -> PutRouter:
        if settings == router.settings:
            return PutRouter(router, created=False, commit=None)
        # Only the dest is told: the source knows already that it is forwarded.
        dest = router.dest
        self._journal.admit(dest.topic_id)
        change = _put(router, settings, router.ring)
        commit = self._journal.change_router(dest.topic_id, self._clock.now_ms(), change, gated=True)
        self._when_durable((ALL_ROUTERS, dest.name), commit, lambda: self.apply_router_settings(router, settings))
        return PutRouter(router, created=False, commit=commit)

    def _create_router(self, name: str, source: Topic, dest: Topic, settings: RouterSettings) -> PutRouter:
        now_ms = self._clock.now_ms()
        router = Router(self.next_topic_id, name, source, dest, settings, now_ms, source.assigned_seq)
        ring = ring_with(source, dest)
        others = [topic for topic in ring[:-1] if ring_of(topic) != len(ring)]
        self._admit_change(source, dest, *others)
        self.next_topic_id += 1
        change = _put(router, settings, len(ring))
        commits = [self._journal.change_router(topic.topic_id, now_ms, change, gated=True) for topic in (source, dest)]
        commit = all_of([*commits, *self._change_ring(others, len(ring))])
        closed = (ALL_ROUTERS, source.name, dest.name, *(topic.name for topic in others if topic is not source))
        self._when_durable(closed, commit, lambda: self.apply_add_router(router))
        return PutRouter(router, created=True, commit=commit)

    def _create_endpoints(self, source_name: str, dest_name: str, *, create_dest: bool) -> None:
        """Makes those of the two topics that are missing, both or none. Raises `Busy` until they are durable."""
        if self.topics.get(dest_name) is None and not create_dest:
            raise TopicNotFound(dest_name)
        missing = [name for name in (source_name, dest_name) if self.topics.get(name) is None]
        self._check_topic_count(len(missing))
        for number in range(len(missing)):
            self._journal.admit(self.next_topic_id + number)
        now_ms = self._clock.now_ms()
        commits = [self._create_durably(self._new_topic(name, TopicConfigPatch()), now_ms) for name in missing]
        commit = all_of(commits)
        if commit is not None:
            raise Busy(commit)

    def _check_router_count(self) -> None:
        routers_max = self._limits.routers_max
        if routers_max and len(self.routers) >= routers_max:
            raise Throttled(
                f"this server holds {routers_max} routers, as many as it may",
                retry_after_s=limits.RESOURCE_RETRY_AFTER_S,
                limit="max_routers",
                max=routers_max,
            )


def _put(router: Router, settings: RouterSettings, ring: int) -> RouterChanged:
    return RouterChanged(
        put=RouterPut(
            router.router_id,
            router.name,
            router.source.topic_id,
            router.dest.topic_id,
            settings,
            router.created_ts,
            router.cursor,
            ring,
        )
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
        f'topic "{dest.name}" has its copies from another topic already, and one source at most is possible: '
        "use a dest of its own",
        reason="router_dest_fan_in",
        dest=dest.name,
    )
