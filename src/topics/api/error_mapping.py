"""Errors to status and code: the one table, and the one place that renders the envelope."""

from msgspec import UNSET
from msgspec.json import encode

from topics import errors
from topics.api.http import Response
from topics.wire.responses import ErrorBody, ErrorResponse, Performance

STATUS_AND_CODE: dict[type[errors.TopicsError], tuple[int, str]] = {
    errors.InvalidRequest: (400, "invalid_request"),
    errors.BatchTooLarge: (400, "batch_too_large"),
    errors.RecordTooLarge: (400, "record_too_large"),
    errors.Unauthorized: (401, "unauthorized"),
    errors.Forbidden: (403, "forbidden"),
    errors.NotFound: (404, "not_found"),
    errors.TopicNotFound: (404, "topic_not_found"),
    errors.CursorNotFound: (404, "cursor_not_found"),
    errors.RouterNotFound: (404, "router_not_found"),
    errors.MethodNotAllowed: (405, "method_not_allowed"),
    errors.NotAcceptable: (406, "not_acceptable"),
    errors.UpgradeRequired: (426, "upgrade_required"),
    errors.TopicExistsIncompatible: (409, "topic_exists_incompatible"),
    errors.TopicNotEmpty: (409, "topic_not_empty"),
    errors.NotAQueue: (409, "not_a_queue"),
    errors.ProducerDiffers: (409, "producer_differs"),
    errors.RouterCycle: (409, "router_cycle"),
    errors.PayloadTooLarge: (413, "payload_too_large"),
    errors.UriTooLong: (414, "uri_too_long"),
    errors.UnsupportedMediaType: (415, "unsupported_media_type"),
    errors.TopicFull: (422, "topic_full"),
    errors.Throttled: (429, "throttled"),
    errors.HeadersTooLarge: (431, "headers_too_large"),
    errors.StorageFailed: (503, "storage_failed"),
    errors.NotReady: (503, "not_ready"),
    errors.ShuttingDown: (503, "shutting_down"),
}

# What no caller can do anything about, such as a damaged file met while reading.
_INTERNAL = (500, "internal")

_RETRY_AFTER_503_S = b"1"


def code_of(error: errors.TopicsError) -> str:
    return _status_and_code(error)[1]


def is_internal(error: errors.TopicsError) -> bool:
    """Not the caller's business: it belongs into the log."""
    return _status_and_code(error) is _INTERNAL


def _status_and_code(error: errors.TopicsError) -> tuple[int, str]:
    return next((STATUS_AND_CODE[kind] for kind in type(error).__mro__ if kind in STATUS_AND_CODE), _INTERNAL)


def render_error(error: errors.TopicsError, server_total_ms: float | None = None) -> Response:
    status, code = _status_and_code(error)
    return Response(status, _envelope(code, error.message, error.detail, server_total_ms), headers=_headers(error))


def render_internal_error(request_id: str) -> Response:
    message = f"internal error; the server's log has it under request id {request_id}"
    status, code = _INTERNAL
    return Response(status, _envelope(code, message, {"request_id": request_id}, None))


def _envelope(code: str, message: str, detail: dict[str, object], server_total_ms: float | None) -> bytes:
    return encode(
        ErrorResponse(
            ErrorBody(code, message, detail or UNSET),
            UNSET if server_total_ms is None else Performance(server_total_ms),
        )
    )


def _headers(error: errors.TopicsError) -> tuple[tuple[bytes, bytes], ...]:
    match error:
        case errors.Throttled(retry_after_s=seconds):
            return ((b"retry-after", b"%d" % seconds),)
        case errors.NotReady() | errors.ShuttingDown() | errors.StorageFailed():
            return ((b"retry-after", _RETRY_AFTER_503_S),)
        case errors.UpgradeRequired():
            return ((b"upgrade", b"websocket"), (b"sec-websocket-version", b"13"))
        case errors.Unauthorized():
            return ((b"www-authenticate", b"Bearer"),)
        case errors.MethodNotAllowed(allowed=methods):
            return ((b"allow", ", ".join(methods).encode()),)
        case _:
            return ()
