"""Order, keep-alive, `100 Continue`, admission, waiting handlers and back-pressure on one connection."""

import asyncio
import gc
import weakref

import pytest
from fake_transport import Answer, Client, RecordingApplication, echo, refusal, reply

from topics import limits
from topics.api.connections import Connections
from topics.api.http import Request, Response, Waiting
from topics.engine.journal import Commit
from topics.errors import InvalidRequest, PayloadTooLarge, Unauthorized
from topics.testing.fake_clock import FakeClock

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def post(body: bytes, headers: bytes = b"") -> bytes:
    return b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body), headers, body)


class WaitingApplication(RecordingApplication):
    """Answers paths that begin with /wait only once the test says so, and those with /poll when it happens to."""

    def __init__(self) -> None:
        super().__init__()
        self.release = asyncio.Event()
        self.cancelled = 0
        self.answer = self._answer

    def _answer(self, request: Request) -> Answer:
        request.waits = request.path.startswith(b"/poll")
        return self._later(request) if request.path.startswith((b"/wait", b"/poll")) else Response(200, echo(request))

    async def _later(self, request: Request) -> Response:
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Response(200, echo(request))


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_request_is_answered_and_the_connection_kept() -> None:
    client = Client()
    assert client.send(post(b"hello")) == reply(b"POST /p? hello")
    request = client.application.requests[0]
    assert request.headers == {b"host": b"h", b"content-length": b"5"}
    assert request.received_ns == client.clock.monotonic_ns()
    assert request.request_id == "1-1"
    assert not client.transport.is_closing()


def test_path_and_query_are_handed_on_raw() -> None:
    client = Client()
    client.send(b"GET /a%2Fb?x=%20&y=? HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (client.application.requests[0].path, client.application.requests[0].query) == (b"/a%2Fb", b"x=%20&y=?")


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"http://h:80/p/q?x=1", b"/p/q", b"x=1"),
        (b"http://h", b"/", b""),
        (b"http://h?x=/", b"/", b"x=/"),
        (b"/?u=http://x/y", b"/", b"u=http://x/y"),
    ],
)
def test_an_absolute_target_loses_scheme_and_authority(target: bytes, path: bytes, query: bytes) -> None:
    client = Client()
    client.send(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % target)
    assert (client.application.requests[0].path, client.application.requests[0].query) == (path, query)


def test_options_star_reaches_the_application() -> None:
    assert Client().send(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n") == reply(b"OPTIONS *? ")


def test_pipelined_requests_are_answered_in_order_in_one_write() -> None:
    client = Client()
    client.send(GET + post(b"x") + GET)
    assert client.transport.writes == [reply(b"GET /a? ") + reply(b"POST /p? x") + reply(b"GET /a? ")]


def test_connection_close_is_honoured_and_what_follows_is_ignored() -> None:
    client = Client()
    client.send(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" + GET, GET)
    assert client.transport.sent == reply(b"GET /a? ", b"connection: close\r\n")
    assert client.transport.closed


def test_http_1_0_is_closed_unless_keep_alive_is_asked_for() -> None:
    client = Client()
    client.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert client.transport.sent == reply(b"GET /a? ", b"connection: keep-alive\r\n")
    client.transport.writes.clear()
    client.send(b"GET /a HTTP/1.0\r\n\r\n")
    assert client.transport.sent == reply(b"GET /a? ", b"connection: close\r\n")
    assert client.transport.closed


def test_head_gets_the_length_but_not_the_body() -> None:
    assert Client().send(b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n") == reply(b"HEAD /a? ")[: -len(b"HEAD /a? ")]


def test_no_content_has_neither_body_nor_length() -> None:
    client = Client()
    client.application.answer = lambda _: Response(204, b"", headers=((b"x-a", b"1"),))
    expected = b"HTTP/1.1 204 No Content\r\ndate: Tue, 14 Nov 2023 22:13:20 GMT\r\nx-a: 1\r\n\r\n"
    assert client.send(GET) == expected


def test_a_failed_request_carries_the_clients_request_id_or_ours() -> None:
    client = Client()
    client.application.answer = lambda request: Response(404, b"{}")
    client.send(b"GET /a HTTP/1.1\r\nHost: h\r\nX-Request-Id: abc.DEF_1-2\r\n\r\n")
    client.send(b"GET /a HTTP/1.1\r\nHost: h\r\nX-Request-Id: not valid!\r\n\r\n")
    assert client.transport.writes == [
        reply(b"{}", b"x-request-id: abc.DEF_1-2\r\n", b"404 Not Found"),
        reply(b"{}", b"x-request-id: 1-2\r\n", b"404 Not Found"),
    ]


def test_a_chunked_body_is_joined_and_its_trailers_dropped() -> None:
    client = Client()
    head = b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"3;ext=1\r\nabc\r\n2\r\nde\r\n1\r\nf\r\n0\r\nX-A: evil\r\n\r\n"
    assert client.send(head + chunks) == reply(b"POST /p? abcdef")
    assert b"x-a" not in client.application.requests[0].headers


def test_a_body_spread_over_many_reads_is_joined() -> None:
    body = bytes(range(256)) * 300
    client = Client()
    message = post(body)
    client.send(*[message[at : at + 1000] for at in range(0, len(message), 1000)])
    assert client.application.requests[0].body == body


def test_a_read_larger_than_a_slice_is_parsed_to_its_end() -> None:
    body = b"x" * 100_000
    client = Client()
    client.send(post(body) + GET + post(body) + GET)
    assert [len(request.body) for request in client.application.requests] == [100_000, 0, 100_000, 0]


def test_100_continue_is_sent_before_the_body_is_read() -> None:
    client = Client()
    head = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    assert client.send(head) == CONTINUE
    assert client.send(b"ab") == CONTINUE + reply(b"POST /p? ab")


def test_100_continue_is_not_sent_when_the_body_is_refused() -> None:
    client = Client()
    client.application.refusal = Response(401, b"{}")
    client.send(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    lines = b"connection: close\r\nx-request-id: 1-1\r\n"
    assert client.transport.sent == reply(b"{}", lines, b"401 Unauthorized")
    assert client.transport.eof_written
    assert client.application.requests == []


def test_100_continue_is_not_sent_without_a_body_or_to_http_1_0() -> None:
    assert Client().send(b"GET /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n") == reply(b"GET /a? ")
    head = b"POST /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
    assert Client().send(head) == b""


def test_any_other_expectation_is_ignored() -> None:
    assert Client().send(post(b"x", b"Expect: tea\r\n")) == reply(b"POST /p? x")


def test_100_continue_waits_for_the_answers_before_it() -> None:
    async def scenario() -> None:
        application = WaitingApplication()
        client = Client(application)
        head = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        assert client.send(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n" + head) == b""
        application.release.set()
        await turns()
        assert client.transport.sent == reply(b"GET /wait? ") + CONTINUE
        assert client.send(b"ab").endswith(reply(b"POST /p? ab"))

    asyncio.run(scenario())


def test_small_bodies_are_not_put_to_admission_and_large_or_chunked_ones_are() -> None:
    client = Client()
    client.send(post(b"x" * limits.EARLY_ADMISSION_BODY_BYTES_MIN))
    assert client.application.admissions == []
    client.send(post(b"x" * (limits.EARLY_ADMISSION_BODY_BYTES_MIN + 1)))
    client.send(b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    assert len(client.application.admissions) == 2
    assert len(client.application.requests) == 3


def test_a_body_announced_too_large_is_refused_unread_and_the_rest_thrown_away() -> None:
    client = Client(body_bytes_max=10)
    expected = refusal(b"413 Content Too Large", PayloadTooLarge)
    sent = client.send(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n", b"x" * 11, GET)
    assert sent.replace(b"Request Entity Too Large", b"Content Too Large") == expected
    assert client.transport.eof_written
    assert client.transport.reading
    assert client.application.requests == []


def test_a_body_of_exactly_the_limit_is_read() -> None:
    assert Client(body_bytes_max=10).send(post(b"x" * 10)) == reply(b"POST /p? xxxxxxxxxx")


def test_a_chunked_body_is_refused_as_soon_as_it_exceeds_the_limit() -> None:
    client = Client(body_bytes_max=10)
    client.send(b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nabcdefgh\r\n")
    assert client.transport.sent == b""
    client.send(b"8\r\nabc")
    assert client.transport.sent.startswith(b"HTTP/1.1 413 ")


def test_a_refusal_comes_after_the_answers_before_it() -> None:
    async def scenario() -> None:
        application = WaitingApplication()
        client = Client(application)
        client.send(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n" + GET + b"nonsense\r\n\r\n")
        assert client.transport.sent == b""
        application.release.set()
        await turns()
        expected = reply(b"GET /wait? ") + reply(b"GET /a? ") + refusal(b"400 Bad Request", InvalidRequest, b"1-3")
        assert client.transport.sent == expected
        assert client.transport.eof_written

    asyncio.run(scenario())


def test_requests_behind_a_waiting_one_are_answered_in_order_and_reading_pauses() -> None:
    async def scenario() -> None:
        application = WaitingApplication()
        client = Client(application)
        client.send(b"GET /wait1 HTTP/1.1\r\nHost: h\r\n\r\n")
        assert client.transport.reading  # so that a hang-up is noticed
        client.send(GET + b"GET /wait2 HTTP/1.1\r\nHost: h\r\n\r\n" + GET)
        assert not client.transport.reading
        assert len(application.requests) == 1
        application.release.set()
        await turns(6)
        bodies = [b"GET /wait1? ", b"GET /a? ", b"GET /wait2? ", b"GET /a? "]
        assert client.transport.sent == b"".join(map(reply, bodies))
        assert client.transport.reading

    asyncio.run(scenario())


def test_a_waiting_handler_is_cancelled_when_the_client_hangs_up() -> None:
    async def scenario() -> None:
        application = WaitingApplication()
        client = Client(application)
        client.send(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
        await turns()
        client.protocol.eof_received()
        client.protocol.connection_lost(None)
        await turns()
        assert application.cancelled == 1
        assert client.transport.sent == b""
        assert len(client.connections) == 0

    asyncio.run(scenario())


def test_a_client_that_has_shut_its_side_gets_every_answer() -> None:
    async def scenario() -> None:
        application = WaitingApplication()
        client = Client(application)
        client.send(b"POST /wait1 HTTP/1.1\r\nHost: h\r\ncontent-length: 0\r\n\r\n" + GET)
        client.send(b"GET /wait2 HTTP/1.1\r\nHost: h\r\n\r\n" + GET[:-5])  # the last one is not whole
        await turns()
        assert client.protocol.eof_received()  # the transport is to stay open
        assert client.protocol.eof_received()
        application.release.set()
        await turns(6)
        bodies = [b"POST /wait1? ", b"GET /a? ", b"GET /wait2? "]
        assert client.transport.sent == b"".join(map(reply, bodies))
        assert client.transport.closed

    asyncio.run(scenario())


def test_an_answer_that_may_never_come_is_not_waited_for_when_the_client_has_shut_its_side() -> None:
    async def scenario() -> None:
        application = WaitingApplication()
        for first in (b"/poll", b"/wait"):
            client = Client(application)
            client.send(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % first)
            await turns()
            if first == b"/wait":
                client.send(b"GET /poll HTTP/1.1\r\nHost: h\r\n\r\n")
                assert client.protocol.eof_received()
                application.release.set()
            else:
                assert not client.protocol.eof_received()
            await turns(6)
            assert client.transport.sent == (reply(b"GET /wait? ") if first == b"/wait" else b"")
            assert client.transport.closed == (first == b"/wait")
            client.protocol.connection_lost(None)

    asyncio.run(scenario())


def test_a_handler_cancelled_before_its_first_step_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        client = Client(WaitingApplication())
        client.send(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
        client.protocol.connection_lost(None)
        await turns()

    asyncio.run(scenario())
    gc.collect()  # an un-awaited coroutine would warn here, and a warning is an error in this suite


def test_an_application_that_raises_loses_its_connection_and_is_heard() -> None:
    client = Client()

    def broken(request: Request) -> Response:
        raise LookupError("a bug")

    client.application.answer = broken
    with pytest.raises(LookupError):
        client.send(GET)
    assert client.transport.aborted


def test_a_slow_reader_stops_the_handling_of_its_requests() -> None:
    client = Client()
    client.application.answer = lambda _: Response(200, b"x" * 100_000)
    client.transport.stuck = True
    client.send(GET * 50)
    assert len(client.application.requests) == 3  # 300 kB, over the high-water mark of 256 KiB
    assert not client.transport.reading
    client.transport.client_reads(10**9)
    assert len(client.application.requests) == 6
    client.transport.stuck = False
    client.transport.client_reads(10**9)
    assert len(client.application.requests) == 50
    assert client.transport.reading


def test_what_a_blocked_connection_parses_ahead_is_bounded_by_a_slice() -> None:
    async def scenario() -> None:
        client = Client(WaitingApplication())
        client.send(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n" + b"GET / HTTP/1.1\r\nHost: h\r\n\r\n" * 10_000)
        assert len(client.protocol._queue) < limits.PARSE_SLICE_BYTES / 18
        client.protocol.connection_lost(None)
        await turns()

    asyncio.run(scenario())


def test_a_websocket_offer_is_an_ordinary_request_and_the_last_one() -> None:
    client = Client()
    client.send(b"GET /w HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello")
    assert client.transport.sent == reply(b"GET /w? ", b"connection: close\r\n")
    assert client.transport.closed


def test_an_h2c_offer_is_declined_and_its_body_read() -> None:
    client = Client()
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    client.send(post(b"hello", offer) + GET)
    assert client.transport.sent == reply(b"POST /p? hello") + reply(b"GET /a? ")
    assert client.application.requests[1].request_id == "1-2"


def test_many_declined_offers_in_one_read_are_all_answered() -> None:
    client = Client()
    client.send(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" * 2000)
    assert client.transport.sent == reply(b"GET /a? ") * 2000


def test_an_upgrade_with_no_upgrade_header_is_ordinary() -> None:
    assert Client().send(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\r\n") == reply(b"GET /a? ")


def test_a_lost_connection_is_freed_without_the_garbage_collector() -> None:
    class Canary(RecordingApplication):
        """Dies with the last thing that refers to it: the protocol and its reader."""

    gc.disable()
    try:
        client = Client(Canary())
        client.send(post(b"hello"))
        client.protocol.connection_lost(None)
        canary = weakref.ref(client.application)
        client.transport.protocol = None
        del client
        assert canary() is None
    finally:
        gc.enable()


def test_an_idle_connection_holds_on_to_nothing_of_its_last_request() -> None:
    client = Client()
    client.send(post(b"x" * 1000))
    reader = client.protocol._reader
    assert (reader._body, reader._headers, reader._request.body) == (b"", {}, b"")


class CommittingApplication(RecordingApplication):
    """Answers once a commit is done; `ended` counts the answers that were taken or dropped."""

    def __init__(self, body: bytes = b"") -> None:
        super().__init__()
        self.commits: list[Commit] = []
        self.ended = 0
        self._body = body
        self.answer = self._waiting

    def _waiting(self, request: Request) -> Waiting:
        self.commits.append(Commit())
        return Waiting(self.commits[-1], lambda: Response(200, self._body or echo(request)), self._end)

    def _end(self) -> None:
        self.ended += 1


def test_an_answer_that_waits_for_a_commit_leaves_when_it_is_done_and_the_next_request_follows() -> None:
    application = CommittingApplication()
    client = Client(application)
    assert client.send(GET + post(b"x")) == b""
    assert len(application.commits) == 1
    application.commits[0].resolve(None, 0)
    assert client.transport.sent == reply(b"GET /a? ")
    application.commits[1].resolve(None, 0)
    assert client.transport.sent == reply(b"GET /a? ") + reply(b"POST /p? x")
    assert application.ended == 2


def test_answers_that_waited_for_the_same_commit_leave_together_at_the_end_of_the_turn() -> None:
    async def story() -> None:
        application = CommittingApplication()
        connections = Connections(FakeClock())
        clients = [Client(application, connections) for _ in range(3)]
        connections.start(asyncio.get_running_loop())
        for client in clients:
            client.send(GET)
        for commit in application.commits:
            commit.resolve(None, 0)
        assert [client.transport.sent for client in clients] == [b""] * 3
        await turns()
        assert [client.transport.sent for client in clients] == [reply(b"GET /a? ")] * 3
        clients[0].send(GET)
        application.commits[-1].resolve(None, 0)
        connections.drain()  # closes those that are idle, and nothing is lost with them
        assert clients[0].transport.sent == reply(b"GET /a? ") * 2
        await connections.drained(timeout_s=0)

    asyncio.run(story())


def test_a_client_that_left_is_not_answered_and_what_was_held_for_it_is_given_back() -> None:
    application = CommittingApplication()
    client = Client(application)
    client.send(GET)
    client.lose()
    assert application.ended == 1
    application.commits[0].resolve(None, 0)
    assert client.transport.sent == b""
    assert application.ended == 1


def test_a_client_that_does_not_read_stays_blocked_while_an_answer_waits() -> None:
    application = CommittingApplication()
    client = Client(application)
    client.send(GET)
    client.protocol.pause_writing()
    client.protocol.resume_writing()
    client.send(post(b"x"))
    assert len(application.commits) == 1
    application.commits[0].resolve(None, 0)
    assert len(application.commits) == 2


def test_a_large_answer_that_waited_is_packed_by_a_thread() -> None:
    async def story() -> None:
        application = CommittingApplication(b"x" * (limits.GZIP_INLINE_BYTES_MAX + 1))
        client = Client(application)
        client.send(b"GET /a HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n")
        application.commits[0].resolve(None, 0)
        while not client.transport.sent:
            await asyncio.sleep(0)
        assert b"content-encoding: gzip\r\n" in client.transport.sent

    asyncio.run(story())


def test_a_poll_of_a_key_that_is_gone_is_refused_and_other_work_is_finished() -> None:
    async def scenario() -> None:
        connections = Connections(FakeClock())
        applications = [WaitingApplication() for _ in range(3)]
        poll, other_poll, write = (Client(application, connections) for application in applications)
        for client, path in ((poll, b"/poll"), (other_poll, b"/poll"), (write, b"/wait")):
            client.send(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % path)
        for application, digest in zip(applications, (b"gone", b"kept", b"gone"), strict=True):
            application.requests[0].key_digest = digest
        await turns()
        assert connections.revoke(frozenset((b"gone",))) == 1
        await turns()
        assert poll.transport.sent == refusal(b"401 Unauthorized", Unauthorized)
        assert (poll.transport.closed, applications[0].cancelled) == (True, 1)
        for application in applications[1:]:
            application.release.set()
        await turns()
        for client in (other_poll, write):
            assert client.transport.sent.startswith(b"HTTP/1.1 200 OK")
            assert not client.transport.is_closing()

    asyncio.run(scenario())
