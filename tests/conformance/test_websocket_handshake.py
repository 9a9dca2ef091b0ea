"""/v0/ws: the handshake."""

import pytest

from conformance.client import Api, assert_error
from conformance.websocket import UPGRADE, handshake


def test_the_handshake_is_answered_with_the_key_of_the_protocol(api: Api) -> None:
    reply = handshake(api, *UPGRADE)
    assert reply.status == 101
    assert reply.headers["Upgrade"].lower() == "websocket"
    assert reply.headers["Connection"].lower() == "upgrade"
    assert reply.headers["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert reply.headers["Sec-WebSocket-Extensions"] is None


@pytest.mark.parametrize("lines", [[], ["Upgrade: h2c", "Connection: Upgrade"], ["Connection: keep-alive"]])
def test_a_plain_request_is_told_to_upgrade(api: Api, lines: list[str]) -> None:
    reply = handshake(api, *lines)
    assert_error(reply, 426, "upgrade_required")
    assert reply.headers["Upgrade"] == "websocket"


def test_head_is_told_to_upgrade(api: Api) -> None:
    assert handshake(api, method="HEAD").status == 426
    assert handshake(api, *UPGRADE, method="HEAD").status == 426


def test_only_get_opens_a_websocket(api: Api) -> None:
    assert_error(api.post("/v0/ws"), 405, "method_not_allowed")


@pytest.mark.parametrize(
    "replaced",
    [
        {"Sec-WebSocket-Key": None},
        {"Sec-WebSocket-Key": "too-short"},
        {"Sec-WebSocket-Key": "!GhlIHNhbXBsZSBub25jZQ=="},
        {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZXhY"},
        {"Sec-WebSocket-Version": None},
        {"Sec-WebSocket-Version": "12"},
        {"Sec-WebSocket-Version": "13, 8"},
        {"Connection": None},
        {"Connection": "keep-alive"},
    ],
)
def test_a_bad_handshake_is_refused(api: Api, replaced: dict[str, str | None]) -> None:
    fields = dict(line.split(": ", 1) for line in UPGRADE)
    lines = [f"{name}: {replaced.get(name, value)}" for name, value in fields.items() if replaced.get(name, value)]
    assert_error(handshake(api, *lines), 400, "invalid_request")


def test_a_connection_header_with_more_in_it_is_fine(api: Api) -> None:
    lines = [line.replace("Connection: Upgrade", "Connection: keep-alive, UPGRADE") for line in UPGRADE]
    assert handshake(api, *lines).status == 101
