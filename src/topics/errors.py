"""What can go wrong, one class per condition. The docstring tells the caller what to do next.

A class has the `code` it goes by in the API. Statuses are not known here: `api/error_mapping.py` has them. The client
finds the class of a refusal by its code.
"""

from collections.abc import Mapping
from typing import Self

from topics import limits

HIDDEN_NAME = "(hidden)"  # in the place of a name the caller may not know; no topic can have it


class TopicsError(Exception):
    """Root of every error this package raises on purpose.

    `detail` is the structured context a client gets beside the message. A caller of the API can do nothing about an
    error without a code of its own, such as a damaged file met while reading.
    """

    code = "internal"
    retry_after_s: int | None = None  # when the same call may succeed; None: not by waiting

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    @classmethod
    def as_told(cls, message: str, detail: Mapping[str, object], retry_after_s: int | None) -> Self:
        """The error that a server raised, built from its reply instead of the constructor's arguments."""
        error = cls.__new__(cls)
        TopicsError.__init__(error, message)
        error.detail = dict(detail)
        if retry_after_s is not None:
            error.retry_after_s = retry_after_s
        return error


class InvalidRequest(TopicsError):
    """A field is missing, of the wrong type or out of range. Correct `detail.field`, or what the message names."""

    code = "invalid_request"

    @classmethod
    def in_field(cls, field: str, problem: str) -> "InvalidRequest":
        return cls(f"{field}: {problem}", field=field)


class BatchTooLarge(TopicsError):
    """More entries than one request may carry. Split it into several requests; `detail.max` fit into one."""

    code = "batch_too_large"


class RecordTooLarge(TopicsError):
    """A record (or the whole write) can never fit. Retrying does not help: make it smaller or raise the limit."""

    code = "record_too_large"


class Unauthorized(TopicsError):
    """No key, or one this server does not know. Send `Authorization: Bearer <key>`."""

    code = "unauthorized"

    @classmethod
    def revoked(cls) -> Self:
        """For what was open, or waiting, when its key was removed."""
        return cls("the API key was removed, or its rights were changed, while this was under way")


class Forbidden(TopicsError):
    """The key lacks `detail.scope`, or `detail.name` is outside its prefixes: use another key. On a server without
    keys, a web page of another site made the request (`detail.origin`), or `detail.host` is not one of this server's
    names: the message says which setting allows it."""

    code = "forbidden"


class NotFound(TopicsError):
    """There is no such path. The API document lists them all."""

    code = "not_found"


class TopicNotFound(NotFound):
    """The topic does not exist. Create it with PUT, or write to it without `create: false`."""

    code = "topic_not_found"

    def __init__(self, topic: str) -> None:
        super().__init__(f'topic "{topic}" does not exist', topic=topic)


class CursorNotFound(NotFound):
    """The topic has no named cursor of this name. Create it with PUT."""

    code = "cursor_not_found"

    def __init__(self, topic: str, cursor: str) -> None:
        super().__init__(f'topic "{topic}" has no cursor "{cursor}"', topic=topic, cursor=cursor)


class RouterNotFound(NotFound):
    """The router does not exist. Create it with PUT."""

    code = "router_not_found"

    def __init__(self, router: str) -> None:
        super().__init__(f'router "{router}" does not exist', router=router)


class MethodNotAllowed(TopicsError):
    """The path exists but not for this method. The `Allow` header lists those it takes."""

    code = "method_not_allowed"

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"{method} is not allowed here; use {' or '.join(allowed)}", allow=list(allowed))

    @property
    def allowed(self) -> tuple[str, ...]:
        methods = self.detail.get("allow")
        return tuple(methods) if isinstance(methods, list) else ()


class NotAcceptable(TopicsError):
    """The client takes none of the kinds of reply there are here. Send the `Accept` that the message names."""

    code = "not_acceptable"


class UpgradeRequired(TopicsError):
    """This path speaks WebSocket only. Open it with a WebSocket client."""

    code = "upgrade_required"


class TopicExistsIncompatible(TopicsError):
    """The type of a topic and the ends of a router never change, and a topic takes copies from one source only
    (`detail.reason`). Delete it first, or use another name."""

    code = "topic_exists_incompatible"


class RouterCycle(TopicsError):
    """The router would lead records back to where they came from; `detail.cycle` is the way. Leave it out, or set
    `allow_cycle`."""

    code = "router_cycle"

    def __init__(self, cycle: list[str]) -> None:
        super().__init__(f"this router would close the cycle {' -> '.join(cycle)}; allow_cycle permits it", cycle=cycle)

    @property
    def cycle(self) -> list[str]:
        names = self.detail.get("cycle")
        return names if isinstance(names, list) else []

    def as_seen_within(self, prefixes: tuple[str, ...]) -> "RouterCycle":
        """As somebody sees it who may know only names with these prefixes: the others are shown as HIDDEN_NAME."""
        return RouterCycle([name if name.startswith(prefixes) else HIDDEN_NAME for name in self.cycle])


class TopicNotEmpty(TopicsError):
    """The topic still holds records and `if_empty` was set. Drain it, or delete it without `if_empty`."""

    code = "topic_not_empty"


class ProducerDiffers(TopicsError):
    """A retry has different data: the topic already has another record under this producer's number. Repeat the same
    records in the same order, or write as another producer."""

    code = "producer_differs"

    def __init__(self, topic: str, producer: str, number: int) -> None:
        super().__init__(
            f'record {number} of producer "{producer}" is not the one that topic "{topic}" has under this number; '
            "repeat the same records in the same order, or write as another producer",
            topic=topic,
            producer=producer,
            sequence=number,
        )


class NotAQueue(TopicsError):
    """The topic is a plain log, so it has no jobs to claim. Create it with `type: "queue"`, or use another name."""

    code = "not_a_queue"

    def __init__(self, topic: str) -> None:
        super().__init__(f'topic "{topic}" is not a queue', topic=topic)


class PayloadTooLarge(TopicsError):
    """The body is larger than `detail.limit_bytes`. Send smaller batches, or raise `TOPICS_MAX_BODY_BYTES`."""

    code = "payload_too_large"


class UnsupportedMediaType(TopicsError):
    """Bodies are JSON. Send `Content-Type: application/json`, plain or with `Content-Encoding: gzip`."""

    code = "unsupported_media_type"


class UriTooLong(TopicsError):
    """The request line is longer than this server reads. Shorten the query."""

    code = "uri_too_long"


class HeadersTooLarge(TopicsError):
    """The headers are larger than this server reads. Send fewer or shorter ones."""

    code = "headers_too_large"


class TopicFull(TopicsError):
    """The topic is at its cap and `discard` is `reject`. Retry after consumers have deleted or acked records."""

    code = "topic_full"


class Throttled(TopicsError):
    """A limit is reached (`detail.limit`, `detail.max`), or, without these, the disk does not keep up. Wait for
    `Retry-After`, then retry. For the disk, `disable_backpressure` waits in the request instead."""

    code = "throttled"
    retry_after_s: int = 0

    def __init__(self, message: str, *, retry_after_s: int, **detail: object) -> None:
        super().__init__(message, **detail)
        self.retry_after_s = retry_after_s


class StorageFailed(TopicsError):
    """The disk refused a write or a sync: nothing more is written, and reads go on. `detail` has the file and the
    reason. Repair or replace the disk, then restart the server."""

    code = "storage_failed"
    retry_after_s = 1


class TooManyOpenFiles(StorageFailed):
    """The server has no file descriptor left to read with. Nothing is lost and writes go on: wait for `Retry-After`,
    then retry. If it stays, raise the limit of open files (`ulimit -n`)."""

    code = "too_many_open_files"


class StorageFull(TopicsError):
    """Extension. The disk has too little room left. Nothing is broken, but nothing new is taken; reads, deletes and
    acks go on. Free space, or delete what is not needed: then writing goes on by itself. Clients wait for
    `Retry-After`."""

    code = "storage_full"
    retry_after_s = limits.ROOM_RETRY_AFTER_S


class NotReady(TopicsError):
    """The server is still recovering. Wait for `Retry-After`, then retry."""

    code = "not_ready"
    retry_after_s = 1


class ShuttingDown(TopicsError):
    """The server is stopping. Retry against it once it is back."""

    code = "shutting_down"
    retry_after_s = 1


class ConfigurationError(TopicsError):
    """A setting has a value the server cannot start with. Correct the named environment variable."""


# Every class above with its own code, by that code: the client finds the class of a refusal here.
BY_CODE: dict[str, type[TopicsError]] = {
    kind.code: kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, TopicsError) and kind.code != TopicsError.code
}
