"""The protocol without its sockets: what a request is, and what an answer to it means.

`calls.py` has a function for each request, which makes a `Call`; a `Caller` sends it and hands the answer to `result`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from topics import errors
from topics.client.errors import UnexpectedReply
from topics.wire.responses import ErrorResponse

T = TypeVar("T")

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"

_PATH = re.compile(r"/[!-~]*")  # what a request line can hold: no space, no line break, only ASCII
_METHODS = {"GET", "HEAD", "PUT", "POST", "DELETE"}


def check_api_key(key: str) -> None:
    """Refuses a key that no header can hold, without repeating it: a library's own complaint would show the key."""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise errors.InvalidRequest.in_field("api_key", "is empty, or holds characters that no key has")


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
        if not _PATH.fullmatch(parts.path or "/"):
            raise errors.InvalidRequest.in_field("url", "has characters in its path that need percent-encoding")
        secure = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if secure else 80), secure, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and the type of its reply. `repeatable`: sending it twice does the same as once, so it is sent again
    after a lost answer. `wait_s`: how long the server may take on purpose, as in a long poll.
    """

    method: str
    path: str
    reply: type[T]
    body: bytes | None = None
    accept: str = JSON
    repeatable: bool = True
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def request(
    method: str, path: str, body: object = None, *, accept: str = JSON, repeatable: bool | None = None
) -> Call[Any]:
    """Any request that no other call makes. The path begins with `/v0`. The reply is decoded if it is JSON, otherwise
    it is the text. Sent again after a lost answer only if the method is safe (GET) or `repeatable` says so."""
    if method not in _METHODS:
        raise errors.InvalidRequest.in_field("method", f"must be one of {', '.join(sorted(_METHODS))}")
    if not _PATH.fullmatch(path):
        raise errors.InvalidRequest.in_field("path", "must begin with / and be percent-encoded")
    encoded = None if body is None else msgspec.json.encode(body)
    safe = method in {"GET", "HEAD"}
    reply: Any = Any
    return Call(method, path, reply, encoded, accept, repeatable=safe if repeatable is None else repeatable)


def result(call: Call[T], answer: Answer) -> T:
    """The reply, or the server's refusal raised as the error it is."""
    if answer.status not in {200, 201}:
        raise refusal(answer)
    if call.accept != JSON and not answer.headers.get("content-type", "").startswith(JSON):
        text: Any = answer.body.decode(errors="replace")
        return text  # type: ignore[no-any-return]
    try:
        return msgspec.json.decode(answer.body, type=call.reply)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnexpectedReply(f"{call.method} {call.path} had an unexpected answer: {error}", answer.status) from None


def refusal(answer: Answer) -> errors.TopicsError:
    """The error the server raised: its class is known by its code."""
    try:
        body = msgspec.json.decode(answer.body, type=ErrorResponse).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = answer.body[:200].decode(errors="replace")
        return UnexpectedReply(f"status {answer.status} without an error of a topics server: {text!r}", answer.status)
    return told_error(body.code, body.message, body.detail or {}, retry_after_s(answer), answer.status)


def told_error(
    code: str, message: str, detail: Mapping[str, Any], retry_after_s: int | None = None, status: int = 0
) -> errors.TopicsError:
    """The error for a code, also for codes that come over a WebSocket."""
    kind = errors.BY_CODE.get(code)
    if kind is None:
        return UnexpectedReply(f"status {status}, {code}: {message}", status, code)
    return kind.as_told(message, detail, retry_after_s)


def retry_after_s(answer: Answer) -> int | None:
    text = answer.headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() else None
