"""Upgrades: the hand-over of a connection for raw bytes both ways."""

from fake_transport import reply
from handing_over import CHUNKED_HEAD, GET, LATER_OFFER, OFFER, STREAM, SWITCHING, Peer, in_loop
from test_protocol import turns

from topics import limits


@in_loop
async def test_an_upgrade_sends_its_head_and_then_raw_bytes_both_ways() -> None:
    peer = Peer()
    assert peer.send(OFFER) == SWITCHING
    assert peer.application.requests[0].offers_upgrade
    peer.send(b"\x81\x01a", GET)
    assert peer.owner.input == b"\x81\x01a" + GET
    peer.channel.write(b"\x81\x01")
    peer.channel.write(b"b")
    await turns()
    assert peer.transport.writes == [SWITCHING, b"\x81\x01b"]
    assert peer.owner.calls == ["opened", "received", "received"]


@in_loop
async def test_an_upgrade_hands_over_the_bytes_that_came_with_the_request() -> None:
    peer = Peer()
    peer.send(GET + OFFER + b"\x81\x01a")
    assert peer.transport.sent == reply(b"GET /a? ") + SWITCHING
    assert peer.owner.calls == ["opened", "received"]
    assert peer.owner.input == b"\x81\x01a"


@in_loop
async def test_an_upgrade_hands_over_the_bytes_that_came_while_its_answer_was_made() -> None:
    frames = bytes(range(256)) * 200
    stream = b"GET /later HTTP/1.1\r\nHost: h\r\n\r\n" + LATER_OFFER + frames
    for first in (len(stream), len(stream) - len(frames), len(stream) - 7, 40, 1):
        peer = Peer()
        peer.send(stream[:first], stream[first:] + b"!")
        assert peer.owner.calls == []
        assert not peer.transport.reading
        peer.handing_over.release.set()
        await turns(6)
        assert peer.transport.sent == reply(b"GET /later? ") + SWITCHING
        assert peer.owner.input == frames + b"!"
        assert peer.transport.reading


@in_loop
async def test_an_offer_that_is_refused_is_the_last_request_whatever_follows() -> None:
    peer = Peer()
    peer.send(OFFER.replace(b"/upgrade", b"/later") + b"\x81\x01a" * 50_000)
    peer.handing_over.release.set()
    await turns()
    assert peer.transport.sent == reply(b"GET /later? ", b"connection: close\r\n")
    assert peer.transport.closed


@in_loop
async def test_a_websocket_offer_with_a_body_or_in_http_1_0_is_declined() -> None:
    peer = Peer()
    offer = b"POST /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nab"
    assert peer.send(offer + GET) == reply(b"POST /a? ab") + reply(b"GET /a? ")
    peer = Peer()
    peer.send(b"GET /a HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert not peer.application.requests[0].offers_upgrade


@in_loop
async def test_an_upgrade_that_was_not_offered_costs_the_connection() -> None:
    peer = Peer()
    peer.send(GET.replace(b"/a", b"/upgrade") + GET)
    assert peer.transport.aborted
    assert peer.transport.sent == b""
    assert peer.owner.calls == ["closed"]


@in_loop
async def test_a_stream_may_answer_an_offer() -> None:
    peer = Peer()
    peer.send(OFFER.replace(b"/upgrade", b"/stream") + b"\x81\x01a")
    assert peer.transport.sent == CHUNKED_HEAD
    assert peer.owner.calls == ["opened"]


@in_loop
async def test_closing_an_upgraded_connection_shuts_our_side_and_ignores_what_still_comes() -> None:
    peer = Peer()
    peer.send(OFFER)
    peer.channel.write(b"\x88\x00")
    peer.channel.close()
    assert peer.body == b"\x88\x00"
    assert peer.transport.eof_written
    peer.send(b"x" * (limits.STREAM_INPUT_BYTES_MAX + 1))
    assert peer.owner.input == b""
    assert not peer.transport.is_closing()
    peer.hang_up()
    assert peer.owner.calls == ["opened", "closed"]


@in_loop
async def test_reading_pauses_and_resumes_as_the_owner_says_and_resumes_for_the_close() -> None:
    peer = Peer()
    peer.send(OFFER)
    peer.channel.pause_reading()
    peer.channel.pause_reading()
    assert not peer.transport.reading
    peer.channel.resume_reading()
    peer.channel.resume_reading()
    assert peer.transport.reading
    peer.channel.pause_reading()
    peer.channel.close()
    assert peer.transport.reading


@in_loop
async def test_a_stream_can_not_stop_reading_because_it_would_miss_the_hang_up() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.channel.pause_reading()
    assert peer.transport.reading
