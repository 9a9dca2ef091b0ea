"""A channel whose client reads slowly, or not at all."""

from handing_over import LATER_STREAM, OFFER, STREAM, Peer, in_loop
from test_protocol import turns

from topics import limits


@in_loop
async def test_a_channel_is_not_writable_from_when_the_socket_takes_no_more_until_it_has_taken_all() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.transport.stuck = True
    room = limits.STREAM_TURN_BYTES_MAX - len(b"10000\r\n\r\n")  # its frame counts, too
    peer.channel.write(b"x" * room)
    assert peer.channel.writable
    peer.channel.write(b"x")
    assert not peer.channel.writable  # at once, not at the end of the turn
    peer.transport.client_reads(peer.transport.buffered - 1)
    assert peer.owner.calls == ["opened"]
    peer.transport.client_reads(1)
    assert peer.owner.calls == ["opened", "drained"]
    assert peer.channel.writable


@in_loop
async def test_a_stream_that_begins_behind_unread_answers_is_not_writable_at_first() -> None:
    peer = Peer()
    peer.transport.stuck = True
    peer.transport.buffered = limits.STREAM_TURN_BYTES_MAX + 1
    peer.send(STREAM)
    assert not peer.channel.writable
    peer.transport.client_reads(10**9)
    assert peer.owner.calls == ["opened", "drained"]


@in_loop
async def test_a_stream_that_begins_while_writing_is_paused_is_not_writable_at_first() -> None:
    peer = Peer()
    peer.send(LATER_STREAM)
    peer.transport.stuck = True
    peer.transport.buffered = 10**6
    peer.transport.write(b"x")
    peer.handing_over.release.set()
    await turns()
    assert not peer.channel.writable
    peer.transport.client_reads(10**9)
    assert peer.owner.calls == ["opened", "drained"]


@in_loop
async def test_a_slow_reader_whose_owner_goes_on_writing_is_cut() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.transport.stuck = True
    written = 0
    while not peer.transport.aborted:
        peer.channel.write(b"x" * limits.STREAM_TURN_BYTES_MAX)
        written += limits.STREAM_TURN_BYTES_MAX
        await turns(1)
    assert written <= limits.STREAM_BUFFER_BYTES_MAX + 2 * limits.STREAM_TURN_BYTES_MAX
    peer.lose()
    assert peer.owner.calls == ["opened", "closed"]


@in_loop
async def test_a_write_that_begins_while_there_is_room_may_be_of_any_size() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.transport.stuck = True
    peer.channel.write(b"x" * (3 * limits.STREAM_BUFFER_BYTES_MAX))
    assert not peer.channel.writable
    peer.channel.write(b"and a word behind it")
    await turns(2)
    assert not peer.transport.aborted


@in_loop
async def test_what_has_left_the_process_is_known() -> None:
    peer = Peer()
    peer.send(STREAM)
    await turns(1)
    head_bytes = peer.channel.left_bytes
    assert head_bytes == peer.channel.written_bytes == len(peer.transport.sent)
    peer.transport.stuck = True
    peer.channel.write(b"x" * 1000)
    assert peer.channel.written_bytes == head_bytes + len(b"3e8\r\n") + 1000 + len(b"\r\n")
    await turns(1)
    assert peer.channel.left_bytes == head_bytes
    peer.transport.client_reads(400)
    assert peer.channel.left_bytes == peer.channel.written_bytes - peer.transport.buffered


@in_loop
async def test_what_is_sent_leaves_at_once_with_the_bytes_a_write_would_have() -> None:
    for payload in (b"x", b"x" * limits.STREAM_JOIN_BYTES_MAX, b"x" * (limits.STREAM_JOIN_BYTES_MAX + 1)):
        for request in (STREAM, OFFER):
            written, sent = Peer(), Peer()
            for peer in (written, sent):
                peer.send(request)
                await turns(1)
            written.channel.write(payload)
            await turns(1)
            before = len(sent.transport.sent)
            left = sent.channel.send(payload)
            assert left == (len(payload) <= limits.STREAM_JOIN_BYTES_MAX) == (len(sent.transport.sent) > before)
            await turns(1)
            assert sent.transport.sent == written.transport.sent
            assert sent.channel.left_bytes == sent.channel.written_bytes == written.channel.written_bytes


@in_loop
async def test_what_is_sent_goes_behind_what_was_written_in_this_turn() -> None:
    peer = Peer()
    peer.send(STREAM)
    await turns(1)
    peer.channel.write(b"a")
    assert not peer.channel.send(b"b")
    await turns(1)
    assert peer.body == b"1\r\na\r\n1\r\nb\r\n"


@in_loop
async def test_what_the_socket_did_not_take_has_not_left() -> None:
    peer = Peer()
    peer.send(STREAM)
    await turns(1)
    left_bytes = peer.channel.left_bytes
    peer.transport.stuck = True
    assert not peer.channel.send(b"a")
    assert not peer.channel.writable
    assert peer.channel.left_bytes == left_bytes
    assert not peer.channel.send(b"b")
    await turns(1)
    peer.transport.client_reads(100)
    assert peer.channel.left_bytes == peer.channel.written_bytes
    assert peer.body == b"1\r\na\r\n1\r\nb\r\n"


@in_loop
async def test_nothing_is_sent_on_a_connection_that_is_closing() -> None:
    peer = Peer()
    peer.send(STREAM)
    await turns(1)
    left_bytes = peer.channel.left_bytes
    peer.transport.aborted = True
    assert not peer.channel.send(b"a")
    assert peer.channel.left_bytes == left_bytes
    peer.channel.abort()
    assert not peer.channel.send(b"b")
    assert peer.channel.left_bytes == left_bytes


@in_loop
async def test_a_transport_that_throws_its_buffer_away_has_not_sent_it() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.transport.stuck = True
    await turns(1)
    peer.channel.write(b"x" * 1000)
    await turns(1)
    left_bytes = peer.channel.left_bytes
    assert left_bytes < peer.channel.written_bytes
    peer.transport.buffered = 0
    peer.transport.aborted = True
    assert peer.channel.left_bytes == left_bytes
    peer.lose()
    assert peer.channel.left_bytes == left_bytes


@in_loop
async def test_a_stream_has_no_deadline_until_it_is_closed() -> None:
    for request in (STREAM, OFFER):
        peer = Peer()
        peer.send(request)
        peer.transport.stuck = True
        peer.channel.write(b"x" * 100_000)
        peer.sweep_after(1_000_000)
        assert not peer.transport.aborted
        peer.channel.close()
        peer.sweep_after(limits.STREAM_CLOSE_TIMEOUT_S)
        assert not peer.transport.aborted
        peer.sweep_after(0.001)
        assert peer.transport.aborted


@in_loop
async def test_an_unread_stream_does_not_outlive_the_hang_up_of_its_client() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.transport.stuck = True
    peer.channel.write(b"x" * 100_000)
    assert peer.transport.protocol is not None
    peer.transport.protocol.eof_received()
    assert peer.owner.calls == ["opened", "closed"]
    peer.sweep_after(limits.STREAM_CLOSE_TIMEOUT_S + 1)
    assert peer.transport.aborted
