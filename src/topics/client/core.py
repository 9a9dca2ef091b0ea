"""The protocol without its sockets: which request asks what, what a reply means, and when to try again.

A shell sends a `Call`, hands the answer to `result`, and asks `Retries` what to do when there was none or a refusal.
Every call is safe to repeat: appends always carry an idempotency key.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import UNSET, Struct, UnsetType

from topics import errors, limits
from topics.client.errors import ServerUnreachable, UnexpectedReply
from topics.model.producer import Producer
from topics.wire.queue_messages import AckResponse, ClaimReply, ExtendResponse, JobReply, NackResponse
from topics.wire.responses import (
    CursorResponse,
    DeleteCursorResponse,
    DiffReply,
    ErrorResponse,
    ExportEnd,
    ExportTrailer,
    LossList,
    ReadyReply,
    RecordReply,
    StateReply,
    TopicPage,
    WriteResponse,
)

T = TypeVar("T", bound=Struct)

JSON = "application/json"
NDJSON = "application/x-ndjson"


def check_api_key(key: str) -> None:
    """Refuses what no header can hold, without repeating it: a library's own complaint would show the key."""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise errors.InvalidRequest.in_field("api_key", "holds characters that no key has, or is empty")


class NewRecord(Struct, omit_defaults=True):
    """A record to append. `data` is JSON text."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: dict[str, str] | None = None
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is. `prefix` is a path in front of `/v0`, for servers behind a gateway."""

    host: str
    port: int
    secure: bool
    prefix: str

    @classmethod
    def of(cls, url: str) -> "Address":
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            raise errors.InvalidRequest.in_field("url", "has no valid port") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise errors.InvalidRequest.in_field("url", "must look like http://host:port")
        if parts.username is not None or parts.password is not None:
            raise errors.InvalidRequest.in_field("url", "must not hold a user or password; use an API key")
        secure = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if secure else 80), secure, parts.path.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and what its reply is made into."""

    method: str
    path: str
    reply: type[T]
    body: bytes | None = None
    accept: str = JSON

    def headers(self, api_key: str | None) -> dict[str, str]:
        headers = {"Accept": self.accept}
        if self.body is not None:
            headers["Content-Type"] = JSON
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        return headers


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def result(call: Call[T], answer: Answer) -> T:
    """The reply, or the server's refusal raised as the error it is."""
    if answer.status not in {200, 201}:
        raise refusal(answer)
    try:
        return msgspec.json.decode(answer.body, type=call.reply)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnexpectedReply(
            f"{call.method} {call.path} was answered with something else than expected: {error}", answer.status
        ) from None


# Requests


def get_state(topic: str) -> Call[StateReply]:
    # Planning a read is not reading: it must not raise the topic's priority.
    return Call("GET", f"{_topic(topic)}?touch=false", StateReply)


def list_topics(prefix: str, cursor: str | UnsetType) -> Call[TopicPage]:
    query = {"page_size": str(limits.PAGE_SIZE_MAX)}
    if prefix:
        query["prefix"] = prefix
    if cursor is not UNSET:
        query["cursor"] = cursor
    return Call("GET", f"/v0/topics?{urlencode(query)}", TopicPage)


def diff(
    topic: str,
    from_seq: int,
    *,
    to_seq: int | None = None,
    from_ts: int | None = None,
    limit: int = limits.DIFF_LIMIT_MAX,
    match: Sequence[str] | None = None,
    node: Sequence[str] = (),
    include_tags: bool = True,
    include_meta: bool = True,
) -> Call[DiffReply]:
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
        body["match"] = list(match)
    if node:
        body["node"] = list(node)
    return Call("POST", f"{_topic(topic)}/diff", DiffReply, msgspec.json.encode(body))


def append(
    topic: str,
    records: Sequence[NewRecord] | msgspec.Raw,
    known_as: str | Producer,
    *,
    create: bool = True,
    config: Mapping[str, object] | None = None,
) -> Call[WriteResponse]:
    """`known_as`: an idempotency key, or the producer and the number of its write."""
    name = "producer" if isinstance(known_as, Producer) else "idempotency_key"
    body: dict[str, object] = {"records": records, name: known_as}
    if not create:
        body["create"] = False
    if config is not None:
        body["config"] = config
    path = f"{_topic(topic)}?return_seqs=false"
    return Call("POST", path, WriteResponse, msgspec.json.encode(body))


def claim(queue: str, node: str, max_jobs: int, lease_ms: int | None) -> Call[ClaimReply]:
    """Sent again after a lost answer, it gets other jobs: those of the lost one come back when their lease ends."""
    body: dict[str, object] = {"node": node, "max": max_jobs}
    if lease_ms is not None:
        body["lease_ms"] = lease_ms
    return Call("POST", f"{_topic(queue)}/claim", ClaimReply, msgspec.json.encode(body))


def ack(queue: str, node: str, jobs: Sequence[JobReply]) -> Call[AckResponse]:
    return _settle(queue, "ack", AckResponse, node, jobs)


def nack(queue: str, node: str, jobs: Sequence[JobReply], delay_ms: int) -> Call[NackResponse]:
    return _settle(queue, "nack", NackResponse, node, jobs, delay_ms=delay_ms)


def extend(queue: str, node: str, jobs: Sequence[JobReply], lease_ms: int) -> Call[ExtendResponse]:
    return _settle(queue, "extend", ExtendResponse, node, jobs, lease_ms=lease_ms)


def _settle(queue: str, verb: str, reply: type[T], node: str, jobs: Sequence[JobReply], **more: int) -> Call[T]:
    body = {"node": node, "seqs": [job.seq for job in jobs], "lease_ids": [job.lease_id for job in jobs], **more}
    return Call("POST", f"{_topic(queue)}/{verb}", reply, msgspec.json.encode(body))


def put_cursor(topic: str, name: str, seq: int) -> Call[CursorResponse]:
    return Call("PUT", _cursor(topic, name), CursorResponse, msgspec.json.encode({"seq": seq}))


def get_cursor(topic: str, name: str) -> Call[CursorResponse]:
    return Call("GET", _cursor(topic, name), CursorResponse)


def delete_cursor(topic: str, name: str) -> Call[DeleteCursorResponse]:
    return Call("DELETE", _cursor(topic, name), DeleteCursorResponse)


def ready() -> Call[ReadyReply]:
    return Call("GET", "/v0/ready", ReadyReply)


def losses(topic: str) -> Call[LossList]:
    return Call("GET", f"{_topic(topic)}/losses", LossList)


def export(topic: str, from_seq: int, to_seq: int | None) -> Call[ExportTrailer]:
    query = {"from_seq": str(from_seq)}
    if to_seq is not None:
        query["to_seq"] = str(to_seq)
    return Call("GET", f"{_topic(topic)}/export?{urlencode(query)}", ExportTrailer, accept=NDJSON)


def export_line(line: bytes) -> RecordReply | ExportEnd:
    """One line of an export. Only the trailer begins this way: a record begins with its `$seq`."""
    if line.startswith(b'{"$end"'):
        return msgspec.json.decode(line, type=ExportTrailer).end
    return msgspec.json.decode(line, type=RecordReply)


def _topic(topic: str) -> str:
    return f"/v0/topics/{quote(topic, safe='')}"


def _cursor(topic: str, name: str) -> str:
    return f"{_topic(topic)}/cursors/{quote(name, safe='')}"


# Refusals


def refusal(answer: Answer) -> errors.TopicsError:
    """The error the server raised: its class is known by its code."""
    try:
        body = msgspec.json.decode(answer.body, type=ErrorResponse).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = answer.body[:200].decode(errors="replace")
        return UnexpectedReply(f"status {answer.status} without an error of a topics server: {text!r}", answer.status)
    kind = errors.BY_CODE.get(body.code)
    if kind is None:
        return UnexpectedReply(f"status {answer.status}, {body.code}: {body.message}", answer.status, body.code)
    return kind.as_told(body.message, body.detail or {}, retry_after_s(answer))


def retry_after_s(answer: Answer) -> int | None:
    text = answer.headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() else None


# Trying again


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds on trying again: how many times, how long in all, and how the pauses grow."""

    attempts_max: int = limits.CLIENT_ATTEMPTS_MAX
    total_ms_max: int = limits.CLIENT_RETRY_TOTAL_MS_MAX
    pause_ms_min: int = limits.CLIENT_PAUSE_MS_MIN
    pause_ms_max: int = limits.CLIENT_PAUSE_MS_MAX


@dataclass(slots=True)
class Retries:
    """The attempts of one call. Each method gives the pause before the next attempt, or raises."""

    policy: RetryPolicy
    now_ms: Callable[[], int]
    attempts: int = field(default=0, init=False)
    _began_ms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._began_ms = self.now_ms()

    def after_answer(self, answer: Answer) -> int | None:
        """None when the answer is final. A 429 or 503 is worth another attempt only if the server says when."""
        wanted_s = retry_after_s(answer)
        if answer.status not in {429, 503} or wanted_s is None:
            return None
        pause_ms = max(self._pause_ms(), wanted_s * 1000)
        return pause_ms if self._may_go_on(pause_ms) else None

    def after_failure(self, error: OSError | Exception, where: str) -> int:
        pause_ms = self._pause_ms()
        if not self._may_go_on(pause_ms):
            reason = str(error) or type(error).__name__
            raise ServerUnreachable(f"{where} does not answer: {reason}; tried {self.attempts} times") from error
        return pause_ms

    def _may_go_on(self, pause_ms: int) -> bool:
        if self.attempts >= self.policy.attempts_max:
            return False
        return self.now_ms() - self._began_ms + pause_ms <= self.policy.total_ms_max

    def _pause_ms(self) -> int:
        self.attempts += 1
        doubled = self.policy.pause_ms_min << min(self.attempts - 1, 16)
        return min(doubled, self.policy.pause_ms_max)
