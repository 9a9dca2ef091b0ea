"""Every error has a status and a code, and one shape."""

import json
from typing import Any

import pytest

from topics import errors
from topics.api.error_mapping import STATUSES, is_internal, render_error, render_internal_error
from topics.api.http import Response

NEVER_SENT = {errors.TopicsError, errors.ConfigurationError}


def subclasses(of: type[errors.TopicsError]) -> set[type[errors.TopicsError]]:
    return {of} | {deeper for direct in of.__subclasses__() for deeper in subclasses(direct)}


def body(response: Response) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(response.body)
    return decoded


def test_every_error_of_this_package_is_in_the_table() -> None:
    own = {error for error in subclasses(errors.TopicsError) if error.__module__ == "topics.errors"}
    assert set(STATUSES) == own - NEVER_SENT


def test_an_error_of_another_room_is_internal() -> None:
    """Such as a damaged file met while reading: nothing the caller could do about it."""

    class DamagedFile(errors.TopicsError):
        pass

    assert is_internal(DamagedFile("m"))
    assert (render_error(DamagedFile("m")).status, DamagedFile("m").code) == (500, "internal")
    assert not is_internal(errors.StorageFailed("m"))


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in STATUSES]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InvalidRequest("m"), 400, "invalid_request"),
        (errors.BatchTooLarge("m"), 400, "batch_too_large"),
        (errors.RecordTooLarge("m"), 400, "record_too_large"),
        (errors.Unauthorized("m"), 401, "unauthorized"),
        (errors.Forbidden("m"), 403, "forbidden"),
        (errors.NotFound("m"), 404, "not_found"),
        (errors.TopicNotFound("t"), 404, "topic_not_found"),
        (errors.MethodNotAllowed("PATCH", ("GET",)), 405, "method_not_allowed"),
        (errors.TopicExistsIncompatible("m"), 409, "topic_exists_incompatible"),
        (errors.TopicNotEmpty("m"), 409, "topic_not_empty"),
        (errors.PayloadTooLarge("m"), 413, "payload_too_large"),
        (errors.UnsupportedMediaType("m"), 415, "unsupported_media_type"),
        (errors.TopicFull("m"), 422, "topic_full"),
        (errors.Throttled("m", retry_after_s=1), 429, "throttled"),
        (errors.NotAcceptable("m"), 406, "not_acceptable"),
        (errors.UriTooLong("m"), 414, "uri_too_long"),
        (errors.UpgradeRequired("m"), 426, "upgrade_required"),
        (errors.HeadersTooLarge("m"), 431, "headers_too_large"),
        (errors.StorageFailed("m"), 503, "storage_failed"),
        (errors.NotReady("m"), 503, "not_ready"),
        (errors.ShuttingDown("m"), 503, "shutting_down"),
    ],
)
def test_the_documented_statuses_and_codes(error: errors.TopicsError, status: int, code: str) -> None:
    response = render_error(error)
    assert (response.status, body(response)["error"]["code"]) == (status, code)
    assert body(response)["error"]["message"] == error.message
    assert response.content_type == b"application/json"


def test_the_envelope_holds_the_detail_and_the_time() -> None:
    assert body(render_error(errors.TopicNotFound("jobs"), 0.25)) == {
        "error": {"code": "topic_not_found", "message": 'topic "jobs" does not exist', "detail": {"topic": "jobs"}},
        "performance": {"server_total_ms": 0.25},
    }


def test_what_is_not_known_is_left_out() -> None:
    assert body(render_error(errors.Forbidden("no"))) == {"error": {"code": "forbidden", "message": "no"}}


@pytest.mark.parametrize(
    ("error", "header"),
    [
        (errors.Throttled("m", retry_after_s=7), (b"retry-after", b"7")),
        (errors.NotReady("m"), (b"retry-after", b"1")),
        (errors.ShuttingDown("m"), (b"retry-after", b"1")),
        (errors.Unauthorized("m"), (b"www-authenticate", b"Bearer")),
        (errors.MethodNotAllowed("PATCH", ("GET", "PUT")), (b"allow", b"GET, PUT")),
    ],
)
def test_some_errors_bring_a_header(error: errors.TopicsError, header: tuple[bytes, bytes]) -> None:
    assert render_error(error).headers == (header,)


def test_the_others_bring_none() -> None:
    assert render_error(errors.TopicFull("m")).headers == ()


def test_an_internal_error_tells_the_request_id_and_nothing_else() -> None:
    response = render_internal_error("abc")
    assert response.status == 500
    assert body(response)["error"]["code"] == "internal"
    assert body(response)["error"]["detail"] == {"request_id": "abc"}
