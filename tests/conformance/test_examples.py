"""The examples of the OpenAPI document, sent in order to a new server: the replies look as they say."""

from typing import Any

from conformance.client import Topic
from conformance.conftest import StartServer
from topics.api.operation_texts import TEXTS


def shape(value: Any) -> Any:
    """Names and types; times, durations and ids differ."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items() if name != "performance"}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value).__name__


def test_every_example_works_and_is_answered_as_it_says(server: StartServer) -> None:
    api = server().api
    Topic(api, "jobs").configure(type="queue", lease_ms=30_000, dead_letter="jobs-failed")
    Topic(api, "jobs").write({"data": {"resize": "cat.jpg"}})
    Topic(api, "jobs-failed").configure(type="queue")
    for (method, path), text in TEXTS.items():
        if not text.target:
            continue
        reply = (
            api.request(method, text.target, text.request)
            if text.request is not None
            else api.request(method, text.target)
        )
        assert reply.status in {200, 201}, (method, path, reply.body)
        if text.reply is not None:
            assert shape(reply.json) == shape(text.reply), (method, path, reply.body)
