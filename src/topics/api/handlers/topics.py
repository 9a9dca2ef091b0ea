"""Topics themselves: create and configure, state, list, delete."""

from collections.abc import Sequence
from contextlib import suppress

from msgspec import UNSET, UnsetType
from msgspec.json import encode

from topics import limits
from topics.api.auth import Scope
from topics.api.call import Call
from topics.api.cursor import encode_cursor, page_asked_for
from topics.api.http import Response
from topics.api.routing import BOOLEAN, CURSOR, ON_BODY, PAGE_SIZE, PREFIX, TEXT, TOPIC, Answer, Parameter, Route
from topics.api.waiting import once_committed
from topics.clock import Clock
from topics.engine.engine import Engine
from topics.engine.queues import Queues
from topics.engine.topic import Topic
from topics.errors import InvalidRequest, TopicNotFound
from topics.model.config import TopicConfigPatch
from topics.model.names import check_topic_name
from topics.wire.responses import (
    DeleteTopicResponse,
    PutTopicResponse,
    QueueCounters,
    TopicPage,
    TopicState,
    TopicSummary,
)


class TopicHandlers:
    def __init__(self, engine: Engine, queues: Queues, clock: Clock) -> None:
        self._engine = engine
        self._queues = queues
        self._clock = clock

    @Route(
        "GET",
        "/v0/topics",
        Scope.READ,
        "List topics with their summary state",
        {200: TopicPage},
        (400,),
        parameters=(
            PREFIX,
            PAGE_SIZE,
            CURSOR,
            Parameter("touch", BOOLEAN, "true: listing counts as reading, for automatic priority."),
            Parameter("names", TEXT, "Extension. Only these topics, separated by commas; a missing one is left out."),
        ),
    )
    def list(self, call: Call) -> Response:
        query = call.query
        after, page_size = page_asked_for(query)
        touch = query.boolean("touch", default=False)
        if query.text("names"):
            return self._named(call, query.text("names").split(","))
        page = self._engine.page_of_topics(
            after=after,
            prefixes=call.key.prefixes_within(query.text("prefix")),
            page_size=page_size,
            touch=touch,
        )
        now_ms = self._clock.now_ms()
        reply = TopicPage(
            [self._summary(topic, now_ms) for topic in page.topics],
            call.performance(),
            encode_cursor(page.last_name) if page.more else UNSET,
        )
        return Response(200, encode(reply))

    @Route(
        "PUT",
        TOPIC,
        Scope.ADMIN,
        "Create a topic or change its configuration",
        {200: PutTopicResponse, 201: PutTopicResponse},
        (*ON_BODY, 409),
        body=TopicConfigPatch,
    )
    def put(self, call: Call) -> Answer:
        patch = call.body(TopicConfigPatch)
        call.key.require_names_in(patch)
        put = self._engine.put_topic(call.name, patch)

        def reply() -> Response:
            body = PutTopicResponse(put.topic.name, put.created, put.topic.config, call.performance())
            return Response(201 if put.created else 200, encode(body))

        return once_committed(put.commit, reply)

    @Route(
        "GET",
        TOPIC,
        Scope.READ,
        "Read a topic's state",
        {200: TopicState},
        (400, 404),
        parameters=(Parameter("touch", BOOLEAN, "false: do not count as reading."),),
    )
    def state(self, call: Call) -> Response:
        topic = self._engine.topic(call.name, touch=call.query.boolean("touch", default=True))
        log = topic.log
        reply = TopicState(
            topic=topic.name,
            type=topic.config.type,
            head_seq=log.head_seq,
            earliest_seq=log.earliest_seq,
            next_seq=log.head_seq + 1,
            count=log.count,
            bytes=log.bytes,
            config=topic.config,
            effective_priority=topic.effective_priority(self._clock.now_ms()),
            last_write_ts=topic.last_write_ts,
            last_read_ts=topic.last_read_ts,
            epoch=topic.topic_id,
            performance=call.performance(),
            queue=self._queue_counters(topic),
        )
        return Response(200, encode(reply))

    @Route(
        "DELETE",
        TOPIC,
        Scope.DELETE,
        "Delete a topic with all it holds",
        {200: DeleteTopicResponse},
        (400, 409),
        parameters=(Parameter("if_empty", BOOLEAN, "true: refuse while it holds records."),),
    )
    def delete(self, call: Call) -> Answer:
        removed = self._engine.delete_topic(call.name, if_empty=call.query.boolean("if_empty", default=False))

        def reply() -> Response:
            routers = [name for name in removed.routers_removed if name.startswith(call.key.prefixes)]
            return Response(200, encode(DeleteTopicResponse(call.name, removed.deleted, routers, call.performance())))

        return once_committed(removed.commit, reply)

    def _named(self, call: Call, names: Sequence[str]) -> Response:
        if len(names) > limits.PAGE_SIZE_MAX:
            raise InvalidRequest.in_field("names", f"has more than {limits.PAGE_SIZE_MAX} names; ask in parts")
        for name in names:
            check_topic_name(name, "names")
            call.key.require_name(name)
        touch = call.query.boolean("touch", default=False)
        now_ms = self._clock.now_ms()
        found = []
        for name in sorted(set(names)):
            with suppress(TopicNotFound):
                found.append(self._summary(self._engine.topic(name, touch=touch), now_ms))
        return Response(200, encode(TopicPage(found, call.performance())))

    def _summary(self, topic: Topic, now_ms: int) -> TopicSummary:
        log = topic.log
        return TopicSummary(
            topic.name,
            log.head_seq,
            log.earliest_seq,
            log.count,
            log.bytes,
            topic.config.durable,
            topic.effective_priority(now_ms),
            self._queue_counters(topic),
            topic.topic_id,
            topic.config.schema,
        )

    def _queue_counters(self, topic: Topic) -> QueueCounters | UnsetType:
        if topic.queue is None:
            return UNSET
        return QueueCounters(*self._queues.counts(topic))
