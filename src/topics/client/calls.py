"""A function for each request of the API: what is sent, and which reply comes back. Both clients offer them as methods.

Every call is safe to send twice, because appends always carry an idempotency key. Those that are not say so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode
from uuid import uuid4

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from topics import errors, limits
from topics.client.core import EVENT_STREAM, NDJSON, Call
from topics.model.producer import Producer
from topics.wire.overview import OverviewPage, TopicMap
from topics.wire.queue_messages import (
    AckResponse,
    ClaimReply,
    ExtendResponse,
    LeaseOut,
    LeasePage,
    NackResponse,
    RedriveResponse,
)
from topics.wire.responses import (
    CursorList,
    CursorResponse,
    DeleteCursorResponse,
    DeletePreviewReply,
    DeleteRecordsResponse,
    DeleteRouterResponse,
    DeleteTopicResponse,
    DiffReply,
    ExportEnd,
    ExportTrailer,
    Health,
    KeyState,
    LossList,
    ProducerResponse,
    PutRouterResponse,
    PutTopicResponse,
    ReadyReply,
    RecordReply,
    RouterPage,
    RouterResponse,
    RouterSummary,
    TopicPage,
    TopicState,
    TopicSummary,
    WatchResponse,
    WriteResponse,
)

T = TypeVar("T")

Match = str | Sequence[str]  # "vip", "vip:*", or ["tag", "Glob", "vip:*"]


class NewRecord(Struct, omit_defaults=True):
    """A record to append. `data` is anything msgspec encodes as JSON; `msgspec.Raw` is JSON text already."""

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Mapping[str, Any] | Raw | None = None
    delay_ms: int = 0


class Config(TypedDict, total=False):
    """A topic's configuration; what is left out stays as it is, or takes its default."""

    type: str
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: str
    durability: str
    durable: bool
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool
    schema: str | None


class Page(Protocol):
    @property
    def next_cursor(self) -> str | UnsetType: ...


@dataclass(frozen=True, slots=True)
class Pages(Generic[T]):
    """A list that comes in pages: the call for the page after a cursor, and what a page holds."""

    call: Callable[[str | UnsetType], Call[Any]]
    items: Callable[[Any], list[T]]


# Topics


def topics(prefix: str = "") -> Pages[TopicSummary]:
    """All topics whose names begin with `prefix`, in the order of names."""
    return _pages("/v0/topics", TopicPage, lambda page: page.topics, prefix=prefix)


def topics_named(names: Sequence[str]) -> Call[TopicPage]:
    """These topics, all at once; those that do not exist are left out. At most 1000."""
    return Call("GET", f"/v0/topics?{urlencode({'names': ','.join(names)})}", TopicPage)


def topic(name: str) -> Call[TopicState]:
    """A topic's state. Looking is not reading: it does not raise the topic's priority."""
    return Call("GET", f"{topic_path(name)}?touch=false", TopicState)


def create(name: str, **config: Unpack[Config]) -> Call[PutTopicResponse]:
    """Creates the topic, or changes the given fields of its configuration if it exists; `created` tells which."""
    return Call("PUT", topic_path(name), PutTopicResponse, msgspec.json.encode(config))


def delete_topic(name: str, *, if_empty: bool = False) -> Call[DeleteTopicResponse]:
    """Deletes the topic with all it holds. Not sent twice: somebody may have made a new topic of that name
    meanwhile."""
    query = "?if_empty=true" if if_empty else ""
    return Call("DELETE", f"{topic_path(name)}{query}", DeleteTopicResponse, repeatable=False)


# Records


def append(
    topic: str,
    data: object,
    *,
    tag: str | None = None,
    node: str | None = None,
    meta: Mapping[str, Any] | None = None,
    delay_ms: int = 0,
    key: str | None = None,
    create: bool = True,
    config: Config | None = None,
) -> Call[WriteResponse]:
    """Appends one record. Without a `key` the client makes one, so that its own retries add nothing twice."""
    record = NewRecord(data, tag, node, meta, delay_ms)
    return append_many(topic, (record,), key=key, create=create, config=config)


def append_many(
    topic: str,
    records: Iterable[object] | Raw,
    *,
    node: str | None = None,
    key: str | None = None,
    producer: Producer | None = None,
    create: bool = True,
    config: Mapping[str, object] | Config | None = None,
) -> Call[WriteResponse]:
    """Appends records in one write: all of them or none. Each is a `NewRecord`, or the data of one. `records` may also
    be the JSON text of the list."""
    body: dict[str, object] = {"records": records if isinstance(records, Raw) else [_record(each) for each in records]}
    if producer is not None:
        body["producer"] = producer
    else:
        body["idempotency_key"] = key or uuid4().hex
    if node is not None:
        body["node"] = node
    if not create:
        body["create"] = False
    if config is not None:
        body["config"] = config
    return Call("POST", f"{topic_path(topic)}?return_seqs=false", WriteResponse, _encoded("records", body))


def diff(
    topic: str,
    from_seq: int = 0,
    *,
    to_seq: int | None = None,
    from_ts: int | None = None,
    limit: int = limits.DIFF_LIMIT_MAX,
    match: Match | None = None,
    node: str | Sequence[str] = (),
    wait_ms: int = 0,
    epoch: int | None = None,
    include_tags: bool = True,
    include_meta: bool = True,
) -> Call[DiffReply]:
    """The records after `from_seq`, one reply's worth. `epoch` says which topic `from_seq` belongs to: if the name
    belongs to another one by now, the reply has a tombstone that says so."""
    return diff_as(
        DiffReply,
        topic,
        from_seq,
        to_seq=to_seq,
        from_ts=from_ts,
        limit=limit,
        match=match,
        node=node,
        wait_ms=wait_ms,
        epoch=epoch,
        include_tags=include_tags,
        include_meta=include_meta,
    )


def diff_as(
    reply: type[T],
    topic: str,
    from_seq: int,
    *,
    to_seq: int | None,
    from_ts: int | None,
    limit: int,
    match: Match | None,
    node: str | Sequence[str],
    wait_ms: int,
    epoch: int | None,
    include_tags: bool,
    include_meta: bool,
) -> Call[T]:
    body: dict[str, object] = {
        "from_seq": from_seq,
        "limit": limit,
        "include_tags": include_tags,
        "include_meta": include_meta,
    }
    if to_seq is not None:
        body["to_seq"] = to_seq
    if from_ts is not None:
        body["from_ts"] = from_ts
    if match is not None:
        body["match"] = match if isinstance(match, str) else list(match)
    if node:
        body["node"] = node if isinstance(node, str) else list(node)
    if epoch is not None:
        body["epoch"] = epoch
    if wait_ms:
        body["wait_ms"] = wait_ms
    return Call("POST", f"{topic_path(topic)}/diff", reply, msgspec.json.encode(body), wait_s=wait_ms / 1000)


def delete(topic: str, *, before_seq: int | None = None, match: Match | None = None) -> Call[DeleteRecordsResponse]:
    """Deletes records for good: those before a seq, those whose tag matches, or those where both are true. With `match`
    it is not sent twice: that would delete what was written in between."""
    body = _deletion(before_seq, match)
    path = f"{topic_path(topic)}/delete"
    return Call("POST", path, DeleteRecordsResponse, body, repeatable=match is None)


def preview_delete(
    topic: str, *, before_seq: int | None = None, match: Match | None = None
) -> Call[DeletePreviewReply]:
    """What `delete` would do now; nothing is deleted."""
    body = _deletion(before_seq, match)
    return Call("POST", f"{topic_path(topic)}/delete/preview", DeletePreviewReply, body)


def losses(topic: str) -> Call[LossList]:
    """What was lost without anybody asking for it, and why."""
    return Call("GET", f"{topic_path(topic)}/losses", LossList)


def export(topic: str, from_seq: int, to_seq: int | None) -> Call[ExportTrailer]:
    query = {"from_seq": str(from_seq)}
    if to_seq is not None:
        query["to_seq"] = str(to_seq)
    return Call("GET", f"{topic_path(topic)}/export?{urlencode(query)}", ExportTrailer, accept=NDJSON)


def export_line(line: bytes) -> RecordReply | ExportEnd:
    """One line of an export. Only the trailer begins this way: a record begins with its `$seq`."""
    if line.startswith(b'{"$end"'):
        return msgspec.json.decode(line, type=ExportTrailer).end
    return msgspec.json.decode(line, type=RecordReply)


def producer_state(topic: str, name: str) -> Call[ProducerResponse]:
    """The first number that a producer has not written yet."""
    return Call("GET", f"{topic_path(topic)}/producers/{quote(name, safe='')}", ProducerResponse)


# Named cursors


def cursors(topic: str) -> Call[CursorList]:
    """All named cursors of a topic, with how far each is behind."""
    return Call("GET", f"{topic_path(topic)}/cursors", CursorList)


def cursor(topic: str, name: str) -> Call[CursorResponse]:
    return Call("GET", _cursor(topic, name), CursorResponse)


def set_cursor(topic: str, name: str, seq: int) -> Call[CursorResponse]:
    """Remembers durably that everything up to `seq` is done."""
    return Call("PUT", _cursor(topic, name), CursorResponse, msgspec.json.encode({"seq": seq}))


def delete_cursor(topic: str, name: str) -> Call[DeleteCursorResponse]:
    return Call("DELETE", _cursor(topic, name), DeleteCursorResponse)


# Routers


def routers(prefix: str = "", *, source: str = "", dest: str = "") -> Pages[RouterSummary]:
    """All routers, in the order of names."""
    return _pages("/v0/routers", RouterPage, lambda page: page.routers, prefix=prefix, source=source, dest=dest)


def router(name: str) -> Call[RouterResponse]:
    return Call("GET", _router(name), RouterResponse)


def put_router(
    name: str,
    source: str,
    dest: str,
    *,
    preserve_node: bool = True,
    preserve_tag: bool = True,
    create_dest: bool = True,
    filter: Match | None = None,
    allow_cycle: bool = False,
    guarantee: str = "at_least_once",
) -> Call[PutRouterResponse]:
    """Copies every record written to `source` from now on into `dest`."""
    body: dict[str, object] = {
        "source": source,
        "dest": dest,
        "preserve_node": preserve_node,
        "preserve_tag": preserve_tag,
        "create_dest": create_dest,
        "filter": filter,
        "allow_cycle": allow_cycle,
        "guarantee": guarantee,
    }
    return Call("PUT", _router(name), PutRouterResponse, msgspec.json.encode(body))


def delete_router(name: str) -> Call[DeleteRouterResponse]:
    """Ends forwarding; the copies stay."""
    return Call("DELETE", _router(name), DeleteRouterResponse)


# Queues


def claim(queue: str, *, node: str, max: int = 1, lease_ms: int | None = None) -> Call[ClaimReply]:
    """Leases jobs to the worker `node`. If you get fewer than you asked for, there are no more right now. After a lost
    answer it is sent again and gets other jobs; those of the lost answer come back when their lease ends."""
    body: dict[str, object] = {"node": node, "max": max}
    if lease_ms is not None:
        body["lease_ms"] = lease_ms
    return Call("POST", f"{topic_path(queue)}/claim", ClaimReply, msgspec.json.encode(body))


class Leased(Protocol):
    """A job as it was claimed."""

    @property
    def seq(self) -> int: ...

    @property
    def lease_id(self) -> str: ...


Jobs = Sequence[Leased] | Sequence[int]


def ack(queue: str, jobs: Jobs, *, node: str, lease_ids: Sequence[str] | None = None) -> Call[AckResponse]:
    """Completes jobs; those that somebody else has by now are `skipped`. Claimed jobs carry their lease ids, which
    fence; plain seqs do so only with `lease_ids`."""
    return _settle(queue, "ack", AckResponse, node, jobs, lease_ids)


def nack(
    queue: str, jobs: Jobs, *, node: str, delay_ms: int = 0, lease_ids: Sequence[str] | None = None
) -> Call[NackResponse]:
    """Gives jobs back, to be claimed again at once or after a while."""
    return _settle(queue, "nack", NackResponse, node, jobs, lease_ids, delay_ms=delay_ms)


def extend(
    queue: str, jobs: Jobs, *, node: str, lease_ms: int, lease_ids: Sequence[str] | None = None
) -> Call[ExtendResponse]:
    """Keeps jobs for `lease_ms` from now."""
    return _settle(queue, "extend", ExtendResponse, node, jobs, lease_ids, lease_ms=lease_ms)


def leases(queue: str) -> Pages[LeaseOut]:
    """Who holds which job, until when."""
    return _pages(f"{topic_path(queue)}/leases", LeasePage, lambda page: page.leases)


def redrive(queue: str, *, max: int | None = None, match: Match | None = None) -> Call[RedriveResponse]:
    """Moves dead letters back to the queue they came from. With `max` it is not sent twice, because that would move
    more."""
    body: dict[str, object] = {}
    if max is not None:
        body["max"] = max
    if match is not None:
        body["match"] = match
    path = f"{topic_path(queue)}/redrive"
    return Call("POST", path, RedriveResponse, msgspec.json.encode(body), repeatable=max is None)


# The server


def health() -> Call[Health]:
    return Call("GET", "/v0/health", Health)


def ready() -> Call[ReadyReply]:
    """Waits, up to the client's deadline, for a server that is still starting."""
    return Call("GET", "/v0/ready", ReadyReply)


def key() -> Call[KeyState]:
    """What this client's key may do: its scopes, and the names it may touch."""
    return Call("GET", "/v0/key", KeyState)


def metrics() -> Call[dict[str, Any]]:
    return Call("GET", "/v0/metrics", dict[str, Any])


def overview(prefix: str = "", *, page_size: int = 0, cursor: str | UnsetType = UNSET) -> Call[OverviewPage]:
    """The process, and every topic in one line; a page of it."""
    query = {name: text for name, text in (("prefix", prefix), ("page_size", str(page_size or ""))) if text}
    if cursor is not UNSET:
        query["cursor"] = cursor
    return Call("GET", f"/v0/overview?{urlencode(query)}", OverviewPage)


def topic_map(topic: str) -> Call[TopicMap]:
    """A topic from its first seq to its head: what is live, lost and deleted, and who stands where."""
    return Call("GET", f"{topic_path(topic)}/map", TopicMap)


# Watching


def new_watch(body: Mapping[str, object], *, lenient: bool) -> Call[WatchResponse]:
    path = "/v0/watch?lenient=true" if lenient else "/v0/watch"
    return Call("POST", path, WatchResponse, msgspec.json.encode(body))


def watch_stream(wid: str) -> Call[None]:
    return Call("GET", f"/v0/watch/{quote(wid, safe='')}", type(None), accept=EVENT_STREAM)


# The parts


def topic_path(topic: str) -> str:
    return f"/v0/topics/{quote(topic, safe='')}"


def _cursor(topic: str, name: str) -> str:
    return f"{topic_path(topic)}/cursors/{quote(name, safe='')}"


def _router(name: str) -> str:
    return f"/v0/routers/{quote(name, safe='')}"


def _record(given: object) -> NewRecord:
    return given if isinstance(given, NewRecord) else NewRecord(given)


def _deletion(before_seq: int | None, match: Match | None) -> bytes:
    body: dict[str, object] = {}
    if before_seq is not None:
        body["before_seq"] = before_seq
    if match is not None:
        body["match"] = match
    return msgspec.json.encode(body)


def _settle(
    queue: str, verb: str, reply: type[T], node: str, jobs: Jobs, lease_ids: Sequence[str] | None, **more: int
) -> Call[T]:
    seqs = [job if isinstance(job, int) else job.seq for job in jobs]
    if lease_ids is None and jobs and not any(isinstance(job, int) for job in jobs):
        lease_ids = [job.lease_id for job in jobs if not isinstance(job, int)]
    body: dict[str, object] = {"node": node, "seqs": seqs, **more}
    if lease_ids is not None:
        body["lease_ids"] = lease_ids
    return Call("POST", f"{topic_path(queue)}/{verb}", reply, msgspec.json.encode(body))


def _pages(path: str, reply: type[Any], items: Callable[[Any], list[T]], **filters: str) -> Pages[T]:
    def page(cursor: str | UnsetType) -> Call[Any]:
        query = {"page_size": str(limits.PAGE_SIZE_MAX)} | {name: text for name, text in filters.items() if text}
        if cursor is not UNSET:
            query["cursor"] = cursor
        return Call("GET", f"{path}?{urlencode(query)}", reply)

    return Pages(page, items)


def _encoded(field: str, body: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, msgspec.MsgspecError, RecursionError) as error:
        raise errors.InvalidRequest.in_field(field, f"cannot be written as JSON: {error}") from None
