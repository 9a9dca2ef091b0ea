"""Queues over HTTP: claim, ack, nack, extend, the work stream; and, as extensions, leases and redrive."""

from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.json import encode

from topics import limits
from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.cursor import encode_cursor, page_of_seqs_asked_for
from topics.api.http import Response
from topics.api.live import LiveConnections, event_stream, require_event_stream
from topics.api.routing import CURSOR, NUMBER, ON_BODY, TEXT, TOKEN, TOPIC, Answer, Parameter, Route
from topics.api.waiting import once_committed
from topics.clock import Clock
from topics.delivery.claim_desk import ClaimDesk, WorkStream
from topics.delivery.commits import committed, settled
from topics.delivery.hub import CallLater
from topics.engine.admission import byte_length
from topics.engine.journal import Busy
from topics.engine.queues import Claim, Claimer, Queues, Settled, lease_token
from topics.engine.topic import Topic
from topics.errors import BatchTooLarge, InvalidRequest
from topics.model.config import clamp
from topics.model.tag_match import TagMatch, parse_match
from topics.wire.queue_messages import (
    AckRequest,
    AckResponse,
    ClaimRequest,
    ClaimResponse,
    ExtendRequest,
    ExtendResponse,
    LeaseOut,
    LeasePage,
    NackRequest,
    NackResponse,
    RedriveRequest,
    RedriveResponse,
    claim_reply,
)

_CLAIMING = Scope.READ | Scope.WRITE
_NO_QUEUE = (404, 409)


def _job_route(verb: str, scope: Scope, summary: str, body: type, reply: type) -> Route:
    return Route(
        "POST",
        f"{TOPIC}/{verb}",
        scope,
        summary,
        {200: reply},
        (*ON_BODY, *_NO_QUEUE),
        body=body,
        body_required=True,
    )


class QueueHandlers:
    def __init__(
        self,
        queues: Queues,
        desk: ClaimDesk,
        clock: Clock,
        connections: LiveConnections,
        call_later: CallLater,
        *,
        claim_max: int,
        node_bytes_max: int,
    ) -> None:
        self._queues = queues
        self._desk = desk
        self._clock = clock
        self._connections = connections
        self._call_later = call_later
        self._claim_max = claim_max
        self._node_bytes_max = node_bytes_max

    # Claiming

    @_job_route("claim", _CLAIMING, "Lease jobs to a worker", ClaimRequest, ClaimResponse)
    def claim(self, call: Call) -> Answer:
        """Hot: once per claim, which serves all its jobs in one pass."""
        body = call.body(ClaimRequest)
        claimer = self._claimer(body.node, body.max, body.lease_ms)
        topic, queue = self._queues.queue(call.name)
        if topic.config.claim_jitter_ms:
            call.request.waits = True
            return self._claim_together(call, topic, claimer)
        claim = self._queues.serve(topic, queue, (claimer,))[0]
        if claim.commit is None and claim.moved is None:
            return self._claimed(call, topic, claim, 0.0)
        return self._when_settled(call, topic, claim, 0.0)

    async def _claim_together(self, call: Call, topic: Topic, claimer: Claimer) -> Response:
        began_ms = call.elapsed_ms()
        claim = await self._desk.claim(topic, claimer)
        return await self._when_settled(call, topic, claim, call.elapsed_ms() - began_ms)

    async def _when_settled(self, call: Call, topic: Topic, claim: Claim, waited_ms: float) -> Response:
        """Answers once everything is durable, including the dead letters that the claim moved."""
        if claim.commit is not None:
            await committed(claim.commit)
        if claim.moved is not None:
            await settled(claim.moved)
        return self._claimed(call, topic, claim, waited_ms)

    def _claimed(self, call: Call, topic: Topic, claim: Claim, waited_ms: float) -> Response:
        ready = self._queues.ready(topic)
        return Response(200, claim_reply(topic.name, claim.texts, ready, call.elapsed_ms(), waited_ms))

    def _claimer(self, node: str, count_max: int, lease_ms: int | None) -> Claimer:
        byte_length(node, self._node_bytes_max, "node")
        if lease_ms is not None:
            lease_ms = clamp(lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        return Claimer(node, clamp(count_max, 1, self._claim_max), lease_ms)

    # Settling

    @_job_route("ack", Scope.WRITE, "Complete jobs: they are deleted", AckRequest, AckResponse)
    def ack(self, call: Call) -> Answer:
        """Hot: once per ack, for all its jobs together."""
        body = call.body(AckRequest)
        self._check(body.seqs, body.lease_ids)
        acked = self._queues.ack(call.name, body.node, body.seqs, body.lease_ids)

        def reply() -> Response:
            counts = self._queues.counts(acked.topic)
            performance = call.performance_with_sync(acked.commit)
            return Response(
                200,
                encode(
                    AckResponse(
                        acked.topic.name, len(acked.seqs), acked.skipped, counts.ready, counts.in_flight, performance
                    )
                ),
            )

        return once_committed(acked.commit, reply)

    @_job_route("nack", Scope.WRITE, "Give jobs back", NackRequest, NackResponse)
    def nack(self, call: Call) -> Answer:
        body = call.body(NackRequest)
        self._check(body.seqs, body.lease_ids)
        delay_ms = min(body.delay_ms, limits.NACK_DELAY_MS_MAX)
        nacked = self._queues.nack(call.name, body.node, body.seqs, body.lease_ids, delay_ms)

        def reply() -> Response:
            counts = self._queues.counts(nacked.topic)
            reply = NackResponse(
                nacked.topic.name, len(nacked.seqs), nacked.skipped, counts.ready, counts.in_flight, call.performance()
            )
            return Response(200, encode(reply))

        return once_committed(nacked.commit, reply)

    @_job_route("extend", Scope.WRITE, "Extend leases", ExtendRequest, ExtendResponse)
    def extend(self, call: Call) -> Answer:
        body = call.body(ExtendRequest)
        self._check(body.seqs, body.lease_ids)
        lease_ms = clamp(body.lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        extended = self._queues.extend(call.name, body.node, body.seqs, body.lease_ids, lease_ms)
        return once_committed(extended.commit, lambda: _extended(call, extended))

    def _check(self, seqs: Sequence[int], lease_ids: Sequence[str] | None) -> None:
        if len(seqs) > self._claim_max:
            raise BatchTooLarge(
                f"seqs: {len(seqs)} in one call; at most {self._claim_max} are allowed",
                field="seqs",
                max=self._claim_max,
            )
        if max(seqs) > limits.U64_MAX:
            raise InvalidRequest.in_field("seqs", "one is beyond the largest unsigned 64-bit integer")
        if lease_ids is not None and len(lease_ids) != len(seqs):
            raise InvalidRequest.in_field("lease_ids", f"has {len(lease_ids)} entries for {len(seqs)} seqs")

    # The work stream

    @Route(
        "GET",
        f"{TOPIC}/work",
        _CLAIMING,
        "Have jobs claimed and pushed over an event stream",
        {200: "text/event-stream"},
        (400, *_NO_QUEUE, 406),
        parameters=(
            Parameter("node", TEXT, "The worker's identity. Required."),
            Parameter("max", NUMBER, "Jobs in flight at once; default 1."),
            Parameter("lease_ms", NUMBER, "Default is the topic's."),
            TOKEN,
        ),
        token_query=True,
    )
    def work(self, call: Call) -> Response:
        require_event_stream(call)
        query = call.query
        node = query.text("node")
        if not node:
            raise InvalidRequest.in_field("node", "is required")
        lease_ms = query.number("lease_ms", 0, limits.LEASE_MS_MAX) if query.text("lease_ms") else None
        claimer = self._claimer(node, query.number("max", 1, self._claim_max), lease_ms)
        topic, _ = self._queues.queue(call.name)
        release = self._connections.enter(call.key)
        claimer = claimer._replace(connection=self._desk.new_connection())
        stream = WorkStream(self._desk, topic, claimer, self._clock, self._call_later, release)
        return event_stream(stream)

    # Extensions

    @Route(
        "GET",
        f"{TOPIC}/leases",
        Scope.READ,
        "Extension: who holds which job, since when and until when",
        {200: LeasePage},
        (400, *_NO_QUEUE),
        parameters=(Parameter("page_size", NUMBER, "Default 100, at most 1000."), CURSOR),
    )
    def leases(self, call: Call) -> Response:
        after, page_size = page_of_seqs_asked_for(call.query)
        topic, held = self._queues.leases(call.name, after, page_size + 1)
        leases = [
            LeaseOut(
                seq,
                lease.node,
                lease_token(lease.lease_id, seq),
                lease.claimed_ms,
                lease.deadline_ms,
                deliveries,
                bool(lease.connection),
            )
            for seq, lease, deliveries in held[:page_size]
        ]
        cursor = encode_cursor(str(leases[-1].seq)) if len(held) > page_size else UNSET
        return Response(200, encode(LeasePage(topic.name, leases, call.performance(), cursor)))

    @Route(
        "POST",
        f"{TOPIC}/redrive",
        Scope.READ | Scope.WRITE | Scope.DELETE,
        "Extension: send dead letters back to the queue they came from",
        {200: RedriveResponse},
        (*ON_BODY, *_NO_QUEUE, 422),
        body=RedriveRequest,
    )
    def redrive(self, call: Call) -> Coroutine[Any, Any, Response]:
        body = call.body(RedriveRequest)
        match = None if body.match is None else parse_match(body.match)
        topic, _ = self._queues.queue(call.name)
        if topic.config.dead_letter is not None:
            call.key.require_name(topic.config.dead_letter)
        return self._redrive(call, topic, limits.U64_MAX if body.max is None else body.max, match)

    async def _redrive(self, call: Call, topic: Topic, count_max: int, match: TagMatch | None) -> Response:
        """Chunk by chunk, each durable before the next. If something fails, what was moved stays moved."""
        redriven = after_seq = 0
        head_seq = self._queues.dead_letter_head(topic)
        while redriven < count_max and after_seq < head_seq:
            try:
                chunk = self._queues.redrive(topic, after_seq, head_seq, count_max - redriven, match)
            except Busy as busy:
                await committed(busy.commit)
                continue
            if chunk.commit is not None:
                await committed(chunk.commit)
            redriven += chunk.moving
            after_seq = chunk.last_seq
        reply = RedriveResponse(topic.name, topic.config.dead_letter, redriven, call.performance())
        return Response(200, encode(reply))


def _extended(call: Call, extended: Settled) -> Response:
    deadlines = {str(seq): extended.deadline_ms for seq in extended.seqs}
    reply = ExtendResponse(call.name, len(extended.seqs), extended.skipped, deadlines, call.performance())
    return Response(200, encode(reply))
