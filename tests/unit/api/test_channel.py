"""Streams: the hand-over of a connection, and what its owner and its channel tell each other."""

from fake_transport import reply
from handing_over import CHUNKED_HEAD, GET, LATER_STREAM, OFFER, STREAM, UNFRAMED_HEAD, Peer, in_loop
from test_protocol import turns

from topics import limits


@in_loop
async def test_a_stream_begins_with_exactly_the_headers_given_and_the_date() -> None:
    peer = Peer()
    assert peer.send(STREAM) == CHUNKED_HEAD
    assert peer.owner.calls == ["opened"]
    assert peer.channel.writable
    assert not peer.transport.is_closing()


@in_loop
async def test_what_is_written_when_opened_leaves_together_with_the_head() -> None:
    peer = Peer()
    peer.owner.reactions["opened"] = lambda: peer.channel.write(b"retry: 2000\n\n")
    peer.send(STREAM)
    assert peer.transport.writes == [CHUNKED_HEAD + b"d\r\nretry: 2000\n\n\r\n"]


@in_loop
async def test_each_write_is_a_chunk_and_those_of_one_turn_leave_together() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.channel.write(b"a" * 26)
    peer.channel.write(b"b")
    assert peer.body == b""
    await turns(1)
    peer.channel.write(b"c")
    await turns(1)
    assert peer.transport.writes[1:] == [b"1a\r\n" + b"a" * 26 + b"\r\n1\r\nb\r\n", b"1\r\nc\r\n"]


@in_loop
async def test_an_empty_write_does_not_end_the_body() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.channel.write(b"")
    await turns()
    assert peer.body == b""


@in_loop
async def test_large_writes_are_framed_alike() -> None:
    peer = Peer()
    peer.send(STREAM)
    data = b"x" * (limits.STREAM_JOIN_BYTES_MAX + 1)
    peer.channel.write(data)
    await turns()
    assert peer.body == b"4001\r\n" + data + b"\r\n"


@in_loop
async def test_closing_a_stream_sends_what_is_left_and_the_last_chunk_and_closes() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.channel.write(b"bye")
    peer.channel.close()
    assert peer.body == b"3\r\nbye\r\n0\r\n\r\n"
    assert peer.transport.closed
    assert peer.owner.calls == ["opened"]
    peer.lose()
    assert peer.owner.calls == ["opened", "closed"]


@in_loop
async def test_the_last_words_of_a_stream_are_not_overtaken_by_a_reset_when_requests_came_behind_it() -> None:
    for requests in ([STREAM + GET], [STREAM, GET]):
        peer = Peer()
        for request in requests:
            peer.send(request)
        peer.channel.write(b"bye")
        peer.channel.close()
        assert peer.body == b"3\r\nbye\r\n0\r\n\r\n"
        assert (peer.transport.eof_written, peer.transport.closed) == (True, False)


@in_loop
async def test_a_stream_that_ends_is_sent_whole_to_a_client_that_has_shut_its_side() -> None:
    for before_it_begins in (False, True):
        peer = Peer()
        peer.handing_over.stream_ends = True
        peer.send(LATER_STREAM)
        await turns()
        if before_it_begins:
            assert peer.shut_its_side()
        peer.handing_over.release.set()
        await turns(6)
        if not before_it_begins:
            assert peer.shut_its_side()
        peer.channel.write(b"bye")
        peer.channel.close()
        assert peer.body == b"3\r\nbye\r\n0\r\n\r\n"
        assert (peer.transport.eof_written, peer.transport.closed) == (False, True)
        peer.lose()
        assert peer.owner.calls == ["opened", "closed"]


@in_loop
async def test_a_stream_without_an_end_is_over_when_its_client_shuts_its_side() -> None:
    for before_it_begins in (False, True):
        peer = Peer()
        peer.send(LATER_STREAM)
        await turns()
        if before_it_begins:
            assert peer.shut_its_side()
        peer.handing_over.release.set()
        await turns(6)
        if not before_it_begins:
            assert not peer.shut_its_side()
        assert peer.owner.calls == (["closed"] if before_it_begins else ["opened", "closed"])


@in_loop
async def test_a_stream_that_says_nothing_of_its_connection_says_that_it_is_the_last_answer() -> None:
    peer, head_only = Peer(), Peer()
    peer.handing_over.stream_headers = head_only.handing_over.stream_headers = ((b"vary", b"accept"),)
    assert b"\r\nconnection: close\r\n" in peer.send(STREAM)
    answers = head_only.send(b"HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n" + GET)
    assert b"connection: close" not in answers
    assert answers.endswith(reply(b"GET /a? "))


@in_loop
async def test_http_1_0_gets_a_stream_without_chunks() -> None:
    peer = Peer()
    assert peer.send(b"GET /stream HTTP/1.0\r\n\r\n") == UNFRAMED_HEAD
    peer.channel.write(b"data: 1\n\n")
    peer.channel.close()
    assert peer.body == b"data: 1\n\n"
    assert peer.transport.closed


@in_loop
async def test_a_stream_is_not_packed() -> None:
    peer = Peer()
    peer.send(STREAM.replace(b"\r\n\r\n", b"\r\nAccept-Encoding: gzip\r\n\r\n"))
    peer.channel.write(b"x" * 5000)
    await turns()
    assert peer.transport.sent == CHUNKED_HEAD + b"1388\r\n" + b"x" * 5000 + b"\r\n"


@in_loop
async def test_head_gets_the_head_of_a_stream_and_the_connection_is_kept() -> None:
    peer = Peer()
    sent = peer.send(b"HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n" + GET)
    assert sent == CHUNKED_HEAD + reply(b"GET /a? ")
    assert peer.owner.calls == ["closed"]


@in_loop
async def test_head_with_connection_close_is_closed() -> None:
    peer = Peer()
    assert peer.send(b"HEAD /stream HTTP/1.0\r\n\r\n") == UNFRAMED_HEAD
    assert peer.transport.closed
    assert peer.owner.calls == ["closed"]


@in_loop
async def test_a_request_before_a_stream_is_answered_first_and_one_behind_it_never() -> None:
    peer = Peer()
    peer.send(GET + STREAM + GET)
    peer.send(GET)
    assert peer.transport.sent == reply(b"GET /a? ") + CHUNKED_HEAD
    assert len(peer.application.requests) == 2


@in_loop
async def test_a_stream_waits_for_the_answers_before_it() -> None:
    peer = Peer()
    peer.send(b"GET /later HTTP/1.1\r\nHost: h\r\n\r\n" + STREAM + GET)
    assert peer.owner.calls == []
    assert not peer.transport.reading
    peer.handing_over.release.set()
    await turns()
    assert peer.transport.sent == reply(b"GET /later? ") + CHUNKED_HEAD
    assert peer.owner.calls == ["opened"]
    assert peer.transport.reading  # so that a hang-up is noticed


@in_loop
async def test_a_coroutine_may_answer_with_a_stream() -> None:
    peer = Peer()
    assert peer.send(LATER_STREAM) == b""
    peer.handing_over.release.set()
    await turns()
    assert peer.transport.sent == CHUNKED_HEAD
    peer.channel.write(b"a")
    await turns()
    assert peer.body == b"1\r\na\r\n"


@in_loop
async def test_the_owner_of_a_stream_whose_client_left_before_it_began_is_told_so() -> None:
    peer = Peer()
    peer.send(LATER_STREAM)
    await turns()
    peer.handing_over.release.set()
    peer.protocol.abort()
    await turns()
    assert peer.owner.calls == ["closed"]
    assert peer.transport.sent == b""
    peer.lose()
    assert peer.owner.calls == ["closed"]


@in_loop
async def test_what_the_client_of_a_stream_sends_is_thrown_away_within_a_bound() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.send(b"x" * limits.STREAM_INPUT_BYTES_MAX)
    assert not peer.transport.aborted
    peer.send(b"x")
    assert peer.transport.aborted
    assert peer.owner.calls == ["opened"]
    peer.lose()
    assert peer.owner.calls == ["opened", "closed"]


@in_loop
async def test_a_hang_up_is_told_once_and_the_connection_forgotten() -> None:
    for end in (Peer.hang_up, Peer.lose):
        peer = Peer()
        peer.send(STREAM)
        assert len(peer.connections) == 1
        end(peer)
        assert peer.owner.calls == ["opened", "closed"]
        assert len(peer.connections) == 0


@in_loop
async def test_after_the_end_nothing_that_the_owner_does_has_an_effect() -> None:
    for end in (Peer.hang_up, Peer.lose, lambda peer: peer.channel.close(), lambda peer: peer.channel.abort()):
        for request in (STREAM, OFFER):
            peer = Peer()
            peer.send(request)
            end(peer)
            sent = peer.transport.sent
            peer.channel.write(b"late")
            peer.channel.write(b"x" * 100_000)
            peer.channel.pause_reading()
            peer.channel.resume_reading()
            peer.channel.close()
            await turns()
            assert peer.transport.sent == sent
            assert peer.transport.reading


@in_loop
async def test_what_was_written_before_an_abort_is_dropped() -> None:
    peer = Peer()
    peer.send(STREAM)
    peer.channel.write(b"a")
    peer.channel.abort()
    await turns()
    assert peer.transport.aborted
    assert peer.body == b""
