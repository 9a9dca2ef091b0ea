"""Errors to statuses: the one table, and the one place that renders the envelope."""

from msgspec import UNSET
from msgspec.json import encode

from topics import errors
from topics.api.http import Response
from topics.wire.responses import ErrorBody, ErrorResponse, Performance

STATUSES: dict[type[errors.TopicsError], int] = {
    errors.InvalidRequest: 400,
    errors.BatchTooLarge: 400,
    errors.RecordTooLarge: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.TopicNotFound: 404,
    errors.CursorNotFound: 404,
    errors.RouterNotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.NotAcceptable: 406,
    errors.UpgradeRequired: 426,
    errors.TopicExistsIncompatible: 409,
    errors.TopicNotEmpty: 409,
    errors.NotAQueue: 409,
    errors.ProducerDiffers: 409,
    errors.RouterCycle: 409,
    errors.PayloadTooLarge: 413,
    errors.UriTooLong: 414,
    errors.UnsupportedMediaType: 415,
    errors.TopicFull: 422,
    errors.Throttled: 429,
    errors.HeadersTooLarge: 431,
    errors.StorageFailed: 503,
    errors.StorageFull: 503,
    errors.TooManyOpenFiles: 503,
    errors.NotReady: 503,
    errors.ShuttingDown: 503,
}

_INTERNAL = 500


def is_internal(error: errors.TopicsError) -> bool:
    """Whether this is a bug of the server: it goes to the log, not to the caller."""
    return _status(error) == _INTERNAL


def _status(error: errors.TopicsError) -> int:
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), _INTERNAL)


def render_error(error: errors.TopicsError, server_total_ms: float | None = None) -> Response:
    envelope = _envelope(error.code, error.message, error.detail, server_total_ms)
    return Response(_status(error), envelope, headers=_headers(error))


def render_internal_error(request_id: str) -> Response:
    message = f"internal error; the server's log has it under request id {request_id}"
    return Response(_INTERNAL, _envelope(errors.TopicsError.code, message, {"request_id": request_id}, None))


def _envelope(code: str, message: str, detail: dict[str, object], server_total_ms: float | None) -> bytes:
    return encode(
        ErrorResponse(
            ErrorBody(code, message, detail or UNSET),
            UNSET if server_total_ms is None else Performance(server_total_ms),
        )
    )


def _headers(error: errors.TopicsError) -> tuple[tuple[bytes, bytes], ...]:
    if error.retry_after_s is not None:
        return ((b"retry-after", b"%d" % error.retry_after_s),)
    match error:
        case errors.UpgradeRequired():
            return ((b"upgrade", b"websocket"), (b"sec-websocket-version", b"13"))
        case errors.Unauthorized():
            return ((b"www-authenticate", b"Bearer"),)
        case errors.MethodNotAllowed(allowed=methods):
            return ((b"allow", ", ".join(methods).encode()),)
        case _:
            return ()
