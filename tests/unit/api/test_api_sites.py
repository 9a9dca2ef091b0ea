"""Whose web pages may use this server: by the Origin and the Host of a request, and by the settings."""

from collections.abc import Callable

import pytest

from topics import limits
from topics.api.http import Response, Streaming
from topics.api.sites import Sites, parse_hosts, parse_origins
from topics.errors import ConfigurationError, Forbidden

EVIL = b"https://evil.example"
APP = b"https://app.example"


def headers(**given: str | bytes) -> dict[bytes, bytes]:
    return {
        name.replace("_", "-").encode(): value if isinstance(value, bytes) else value.encode()
        for name, value in given.items()
    }


def open_server(origins: str = "", hosts: str = "", host: str = "127.0.0.1") -> Sites:
    return Sites(parse_origins(origins), (host, *parse_hosts(hosts)), has_keys=False)


def accepts(sites: Sites, *, link: bool = False, **given: str | bytes) -> bool:
    """Asked twice: what is remembered of the first must not change the second."""
    verdicts = set()
    for _ in range(2):
        try:
            sites.check(headers(**given), link=link)
            verdicts.add(True)
        except Forbidden:
            verdicts.add(False)
    (verdict,) = verdicts
    return verdict


# Host


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:4000",
        "127.8.9.10:80",
        "localhost",
        "LOCALHOST:4000",
        "localhost.",
        "topics.localhost:4000",
        "[::1]",
        "[::1]:4000",
        "[::ffff:127.0.0.1]:4000",
        "",
    ],
)
def test_loopback_names_are_this_servers_whatever_the_port(host: str) -> None:
    assert accepts(open_server(), host=host)
    assert accepts(open_server(), host=host, accept_language="de", user_agent="Mozilla/5.0")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:4000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "192.168.1.7:4000",
        "[fd00::7]:4000",
        "0.0.0.0:4000",
        "[::1",
        "::1]:80x",
        "xn--80ak6aa92e.com",
        "\xff.example",
        "a." + "x" * 30_000,
    ],
)
def test_any_other_name_or_address_is_refused(host: str) -> None:
    with pytest.raises(Forbidden) as refused:
        open_server().check({b"host": host.encode("latin-1")}, link=False)
    assert "TOPICS_ALLOWED_HOSTS" in refused.value.message
    assert len(refused.value.message) < 500
    assert not accepts(open_server(), host=host.encode("latin-1"))


def test_a_request_without_a_host_is_nobodys_page() -> None:
    assert accepts(open_server())


@pytest.mark.parametrize("host", ["topics", "topics:4000", "h", "conformance"])
def test_a_name_without_a_dot_is_for_everybody_but_browsers(host: str) -> None:
    assert accepts(open_server(), host=host, user_agent="curl/8.5.0", accept="*/*")
    assert not accepts(open_server(), host=host, accept_language="en")
    assert not accepts(open_server(), host=host, sec_fetch_site="same-origin")
    assert not accepts(open_server(), host=host, origin=f"http://{host}")


def test_a_browser_is_refused_by_a_name_that_others_have_used_before() -> None:
    sites = open_server()
    assert accepts(sites, host="topics:4000")
    assert not accepts(sites, host="topics:4000", accept_language="en")


@pytest.mark.parametrize(
    "host", ["topics.internal", "TOPICS.internal:4000", "topics.internal.", "10.1.2.3:80", "[fd00::7]"]
)
def test_a_setting_adds_names_and_addresses(host: str) -> None:
    sites = open_server(hosts=" Topics.Internal, 10.1.2.3 ,[fd00::7]")
    assert accepts(sites, host=host, accept_language="en")
    assert not accepts(sites, host="a.topics.internal")


def test_a_setting_allows_every_name() -> None:
    assert accepts(open_server(hosts="*"), host="whatever.example")


def test_the_name_it_listens_on_is_its_own() -> None:
    sites = open_server(host="Box.lan")
    assert accepts(sites, host="box.lan:4000")
    assert not accepts(sites, host="other.lan:4000")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_server_on_all_addresses_goes_by_each_of_them_but_not_by_any_name(host: str) -> None:
    sites = open_server(host=host)
    assert accepts(sites, host="192.168.1.7:4000", accept_language="en")
    assert accepts(sites, host="[fd00::7]:4000")
    assert not accepts(sites, host="evil.example")


def test_what_is_remembered_of_hosts_is_bounded() -> None:
    sites = open_server()
    for port in range(3 * limits.HOSTS_REMEMBERED_MAX):
        assert accepts(sites, host=f"localhost:{port}")
    assert len(sites._hosts_known) <= limits.HOSTS_REMEMBERED_MAX


# Origin


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:4000", "localhost:4000"),
        ("http://LOCALHOST:4000", "localhost:4000"),
        ("http://localhost", "localhost"),
        ("http://localhost:80", "localhost"),
        ("http://localhost", "localhost:80"),
        ("https://topics.localhost", "topics.localhost"),
        ("https://topics.localhost", "topics.localhost:443"),
        ("http://[::1]:4000", "[::1]:4000"),
    ],
)
def test_a_page_of_the_server_itself_is_no_other_site(origin: str, host: str) -> None:
    assert accepts(open_server(), origin=origin, host=host)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost:3000",
        "http://127.0.0.1:4000",
        "https://localhost",
        "null",
        "",
        "localhost:4000",
        "http://localhost:4000.evil.example",
        "http://localhost:4000@evil.example",
        "http://localhost:4000/",
        "file://",
    ],
)
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    assert not accepts(open_server(), origin=origin, host="localhost:4000")
    assert not accepts(open_server(origins="https://app.example"), origin=origin, host="localhost:4000")
    assert not accepts(open_server(), origin=origin)


def test_a_page_of_an_origin_in_the_setting_is_accepted() -> None:
    sites = open_server(origins="https://app.example, http://localhost:3000")
    assert accepts(sites, origin="https://app.example", host="localhost:4000")
    assert accepts(sites, origin="https://APP.example", host="localhost:4000")
    assert accepts(sites, origin="http://localhost:3000", host="localhost:4000")
    assert not accepts(sites, origin="http://app.example", host="localhost:4000")
    assert not accepts(sites, origin="https://app.example", host="evil.example")


def test_every_origin_is_accepted_when_the_setting_says_so() -> None:
    assert accepts(open_server(origins="*"), origin=EVIL, host="localhost:4000")
    assert accepts(open_server(origins="*"), sec_fetch_site="cross-site", host="localhost:4000")
    assert not accepts(open_server(origins="*"), origin=EVIL, host="evil.example")


def test_a_request_without_an_origin_that_comes_from_another_site_is_refused_but_for_what_may_be_linked_to() -> None:
    sites = open_server(origins="https://app.example")
    assert not accepts(sites, sec_fetch_site="cross-site", host="localhost:4000")
    assert accepts(sites, link=True, sec_fetch_site="cross-site", host="localhost:4000")
    for site in ("none", "same-origin", "same-site"):
        assert accepts(sites, sec_fetch_site=site, host="localhost:4000")


# CORS


def shared(sites: Sites, origin: bytes) -> dict[bytes, bytes]:
    return dict(sites.share({b"origin": origin}, Response(200, b"", headers=((b"retry-after", b"1"),))).headers)


def with_keys(origins: str) -> Sites:
    return Sites(parse_origins(origins), (), has_keys=True)


@pytest.mark.parametrize("make", [open_server, with_keys])
def test_a_listed_origin_may_read_the_answer_with_credentials(make: Callable[[str], Sites]) -> None:
    assert shared(make("https://app.example"), APP) == {
        b"retry-after": b"1",
        b"access-control-allow-origin": APP,
        b"access-control-allow-credentials": b"true",
        b"access-control-expose-headers": b"retry-after, x-request-id",
        b"vary": b"origin",
    }


@pytest.mark.parametrize("make", [open_server, with_keys])
def test_every_origin_may_read_the_answer_but_never_with_credentials(make: Callable[[str], Sites]) -> None:
    found = shared(make("*"), EVIL)
    assert found[b"access-control-allow-origin"] == b"*"
    assert b"access-control-allow-credentials" not in found


@pytest.mark.parametrize("make", [open_server, with_keys])
def test_an_origin_that_is_not_listed_may_read_nothing(make: Callable[[str], Sites]) -> None:
    assert shared(make("https://app.example"), EVIL) == {b"retry-after": b"1", b"vary": b"origin"}
    assert shared(make(""), EVIL) == {b"retry-after": b"1"}
    assert make("*").share({}, Response(200, b"")).headers == ()


def test_a_stream_is_shared_like_any_other_answer() -> None:
    stream = Streaming(200, b"", b"text/event-stream", owner=None)  # type: ignore[arg-type]
    found = open_server("https://app.example").share({b"origin": APP}, stream)
    assert isinstance(found, Streaming)
    assert (b"access-control-allow-origin", APP) in found.headers


# Preflights


def ask(sites: Sites, origin: bytes = APP, **more: str) -> Response | None:
    asked = headers(origin=origin, access_control_request_method="PUT", **more)
    answer = sites.preflight(asked, ("GET", "PUT", "HEAD"))
    if answer is not None:
        answer = sites.share(asked, answer)
        names = [name for name, _ in answer.headers]
        assert len(names) == len(set(names)), "a browser takes a header that is there twice for none"
    return answer


def test_a_preflight_is_answered_with_what_may_be_sent() -> None:
    answer = ask(with_keys("https://app.example"), access_control_request_headers="authorization, Content-Type")
    assert answer is not None
    assert (answer.status, answer.body) == (204, b"")
    assert dict(answer.headers) == {
        b"access-control-allow-origin": APP,
        b"access-control-allow-credentials": b"true",
        b"vary": b"origin",
        b"access-control-allow-methods": b"GET, PUT, HEAD",
        b"access-control-allow-headers": b"authorization, Content-Type",
        b"access-control-max-age": b"600",
        b"access-control-expose-headers": b"retry-after, x-request-id",
    }


def test_a_preflight_of_every_origin_promises_no_credentials() -> None:
    answer = ask(open_server("*"), EVIL)
    assert answer is not None
    assert dict(answer.headers)[b"access-control-allow-origin"] == b"*"
    assert b"access-control-allow-credentials" not in dict(answer.headers)


def test_a_preflight_for_a_private_network_is_answered_as_asked() -> None:
    answer = ask(open_server("*"), access_control_request_private_network="true")
    assert answer is not None
    assert dict(answer.headers)[b"access-control-allow-private-network"] == b"true"


@pytest.mark.parametrize("names", ["a b", "a\x01", ",", "x" * 10 + "é", "a: b"])
def test_header_names_that_are_none_are_not_repeated(names: str) -> None:
    answer = ask(open_server("*"), access_control_request_headers=names)
    assert answer is not None
    assert b"access-control-allow-headers" not in dict(answer.headers)


@pytest.mark.parametrize("sites", [open_server(), open_server("https://app.example"), with_keys("https://app.example")])
def test_a_preflight_of_an_origin_that_is_not_listed_is_refused(sites: Sites) -> None:
    with pytest.raises(Forbidden) as refused:
        ask(sites, EVIL)
    assert "TOPICS_CORS_ORIGINS" in refused.value.message


def test_what_is_no_preflight_is_not_answered_as_one() -> None:
    assert ask(with_keys("")) is None
    assert open_server("*").preflight({b"origin": APP}, ("GET",)) is None
    assert open_server("*").preflight({b"access-control-request-method": b"GET"}, ("GET",)) is None


# Settings


def test_origins_are_read_as_browsers_write_them() -> None:
    assert parse_origins("") == ()
    assert parse_origins(" , ") == ()
    assert parse_origins(" * ") == ("*",)
    assert parse_origins("HTTPS://App.Example:443, http://localhost:3000,http://[::1]:80") == (
        "https://app.example",
        "http://localhost:3000",
        "http://[::1]",
    )


@pytest.mark.parametrize(
    "text",
    [
        "app.example",
        "https://app.example/",
        "https://app.example/path",
        "https://*.example",
        "*,https://app.example",
        "null",
        "https://",
        "https://a b",
        "https://app.example:http",
        "https://user@app.example",
        "https://müller.example",
        "https://app.example?x",
        "https://app.example\r\nx: y",
    ],
)
def test_what_is_no_origin_refuses_to_start(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_origins(text)
    assert refused.value.message.startswith("TOPICS_CORS_ORIGINS: ")


@pytest.mark.parametrize("text", ["http://topics", "topics:4000", "a b", "*.example", "*,a", "[::1]:80", "/", "tópics"])
def test_what_is_no_host_refuses_to_start(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_hosts(text)
    assert refused.value.message.startswith("TOPICS_ALLOWED_HOSTS: ")
