"""The routes of the console, and what a key learns about itself."""

import json
from typing import Any

from test_api_handlers import Served

from topics.api.http import Response
from topics.api.readiness import Phase


def get(at: Served, path: str, **headers: str) -> Response:
    answer = at.handle(f"GET {path}", **headers)
    assert isinstance(answer, Response)
    return answer


def headers_of(response: Response) -> dict[bytes, bytes]:
    return dict(response.headers)


def test_the_root_leads_to_the_console() -> None:
    answer = get(Served(), "/")
    assert (answer.status, headers_of(answer)[b"location"]) == (302, b"/console")


def test_the_page_names_the_script_with_its_version() -> None:
    at = Served()
    page, script = get(at, "/console"), get(at, "/console/console.js")
    assert (page.status, script.status) == (200, 200)
    version = headers_of(script)[b"etag"].strip(b'"')
    assert b'src="/console/console.js?v=%b"' % version in page.body


def test_the_page_is_asked_for_each_time_and_the_script_kept_for_good() -> None:
    at = Served()
    assert headers_of(get(at, "/console"))[b"cache-control"] == b"no-cache"
    assert b"immutable" in headers_of(get(at, "/console/console.js"))[b"cache-control"]


def test_what_the_browser_has_is_not_sent_again() -> None:
    at = Served()
    tag = headers_of(get(at, "/console"))[b"etag"].decode()
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        again = get(at, "/console", **{"if-none-match": known})
        assert (again.status, again.body) == (304, b"")
    assert get(at, "/console", **{"if-none-match": '"other"'}).status == 200


def test_the_page_forbids_frames_inline_code_and_other_sites() -> None:
    headers = headers_of(get(Served(), "/console"))
    policy = headers[b"content-security-policy"]
    assert b"frame-ancestors 'none'" in policy
    assert b"unsafe" not in policy
    assert headers[b"x-content-type-options"] == b"nosniff"


def test_the_page_needs_no_key_and_the_data_behind_it_does() -> None:
    at = Served(TOPICS_API_KEYS="s3cret")
    assert get(at, "/console").status == 200
    assert get(at, "/console/console.js").status == 200
    assert get(at, "/v0/key").status == 401


def test_the_page_is_there_while_the_server_recovers() -> None:
    at = Served()
    at.server.readiness.phase = Phase.RECOVERING
    assert get(at, "/console").status == 200


def test_a_page_of_another_site_may_link_here_and_gets_no_data() -> None:
    at = Served()
    assert get(at, "/console", **{"sec-fetch-site": "cross-site"}).status == 200
    assert get(at, "/v0/key", **{"sec-fetch-site": "cross-site"}).status == 403


def key_of(at: Served, key: str) -> dict[str, Any]:
    return dict(at.ok("GET /v0/key", authorization=f"Bearer {key}"))


def test_a_key_learns_what_it_may_do() -> None:
    at = Served(TOPICS_API_KEYS="look:read,do:rw:a:|b.,all")
    look, do, everything = key_of(at, "look"), key_of(at, "do"), key_of(at, "all")
    assert (look["required"], look["scopes"], look["prefixes"]) == (True, ["read"], [])
    assert (do["scopes"], do["prefixes"]) == (["read", "write"], ["a:", "b."])
    assert everything["scopes"] == ["read", "write", "delete", "admin"]


def test_without_keys_anybody_may_do_everything() -> None:
    said = Served().ok("GET /v0/key")
    assert (said["required"], said["scopes"]) == (False, ["read", "write", "delete", "admin"])


def test_the_reference_is_a_page_under_its_own_policy_and_needs_no_key() -> None:
    at = Served(TOPICS_API_KEYS="s3cret")
    page = get(at, "/docs")
    headers = headers_of(page)
    assert (page.status, page.content_type) == (200, b"text/html; charset=utf-8")
    assert b"default-src 'none'; style-src 'sha256-" in headers[b"content-security-policy"]
    assert get(at, "/docs", **{"if-none-match": headers[b"etag"].decode()}).status == 304


def test_the_reference_is_small_and_has_every_operation_of_the_document() -> None:
    at = Served()
    page = get(at, "/docs").body.decode()
    document = json.loads(get(at, "/v0/openapi.json").body)
    missing = [
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
        if f'id="{operation["operationId"]}"' not in page
    ]
    assert missing == []
    assert len(page) < 200 * 1024
