"""/v0/ws: messages that are no commands, frames in pieces, and how a connection ends."""

import struct

import pytest

from conformance.client import TIMEOUT_S, Api
from conformance.websocket import UPGRADE, Client, client_frame, raw_connection, server_frame


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "nonsense",
        "[]",
        "null",
        "7",
        "{}",
        '{"op":"dance"}',
        '{"op":7}',
        '{"op":"ping","request_id":7}',
        '{"topic":"a"}',
        "[" * 100_000,
    ],
)
def test_what_is_no_command_is_refused_and_the_connection_stays(client: Client, message: str) -> None:
    client.connection.send(message)
    frame = client.frame()
    assert (frame["op"], frame["code"]) == ("error", "invalid_request")
    assert client.ask("ping", request_id="p") == {"op": "pong", "request_id": "p"}


def test_an_unknown_command_is_refused_with_its_request_id(client: Client) -> None:
    assert client.error("dance", request_id="d") == ("invalid_request", "d")


def test_unknown_fields_are_ignored_and_told(client: Client) -> None:
    pong = {"op": "pong", "request_id": "p"}
    assert client.ask("ping", request_id="p", more=[1]) == pong | {"warnings": ["unknown field more was ignored"]}
    assert client.ask("ping", request_id="p") == pong


def test_a_binary_message_gets_an_error_and_the_connection_stays_open(client: Client) -> None:
    client.connection.send(b'{"op":"ping"}')
    error = client.frame()
    assert (error["op"], error["code"]) == ("error", "invalid_request")
    assert client.ask("ping", request_id="p") == {"op": "pong", "request_id": "p"}


def test_text_that_is_not_utf_8_ends_the_connection(client: Client) -> None:
    client.connection.send(b'{"op":"ping","request_id":"\xff"}', text=True)
    assert client.close_code() == 1007


def test_a_message_in_fragments_is_one_command(client: Client) -> None:
    client.connection.send(iter(['{"op":"pi', "", 'ng","request', '_id":"é"}']))
    assert client.frame() == {"op": "pong", "request_id": "é"}


def test_a_ping_of_the_protocol_is_answered(client: Client) -> None:
    assert client.connection.ping(b"hello").wait(TIMEOUT_S)


def test_a_ping_between_fragments_is_answered(api: Api) -> None:
    with raw_connection(api) as connection:
        connection.send(client_frame(0x01, b'{"op":') + client_frame(0x89, b"now"))
        assert server_frame(connection.stream) == (0x8A, b"now")
        connection.send(client_frame(0x80, b'"ping"}'))
        assert server_frame(connection.stream) == (0x81, b'{"op":"pong"}')


def test_the_connection_is_closed_as_the_client_asks(client: Client) -> None:
    client.connection.close(4001, "enough")
    assert client.connection.close_code == 4001


def test_a_client_that_does_not_mask_is_let_go(api: Api) -> None:
    with raw_connection(api) as connection:
        connection.send(b"\x81\x02{}")
        opcode, payload = server_frame(connection.stream)
        assert (opcode, struct.unpack("!H", payload[:2])[0]) == (0x88, 1002)
        assert connection.is_closed_by_server()


def test_a_command_right_behind_the_handshake_is_heard(api: Api) -> None:
    with api.connection() as connection:
        connection.send(connection.head("GET /v0/ws", *UPGRADE) + client_frame(0x81, b'{"op":"ping"}'))
        assert connection.reply().status == 101
        assert server_frame(connection.stream) == (0x81, b'{"op":"pong"}')
