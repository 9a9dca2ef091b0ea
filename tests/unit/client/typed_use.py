"""What users write, as type checkers see it: checked by mypy and basedpyright, and never run."""

from typing import Any, assert_type

import msgspec

from topics import AsyncClient, Client, Event, Gap
from topics.client.working import Job
from topics.wire.responses import TopicState, TopicSummary, WriteResponse


class Order(msgspec.Struct):
    sku: int


def sync(client: Client) -> None:
    assert_type(client.topic("t"), TopicState)
    assert_type(client.append("t", 1, tag="x"), WriteResponse)
    for topic in client.topics("p"):
        assert_type(topic, TopicSummary)
    for item in client.read("t", as_type=Order):
        assert_type(item, Event[Order] | Gap)
    for event in client.read("t", as_type=Order, losses="raise", follow=True):
        assert_type(event, Event[Order])
        assert_type(event.data, Order)
    for plain in client.read("t", losses="hide"):
        assert_type(plain.data, Any)
    client.create("t", cap_records=3, durability="fsync")
    with client.producer("t", batch_records=5) as producer:
        assert_type(producer.append(1).result(), int | None)

    @client.worker("q", as_type=Order, concurrency=3)
    def work(job: Job[Order]) -> None:
        assert_type(job.data, Order)

    work.run()


async def asynchronous(client: AsyncClient) -> None:
    assert_type(await client.topic("t"), TopicState)
    async for topic in client.topics("p"):
        assert_type(topic, TopicSummary)
    async for event in client.read("t", as_type=Order, losses="raise"):
        assert_type(event.data, Order)
    async with client.producer("t") as producer:
        assert_type(await (await producer.append(1)), int | None)
