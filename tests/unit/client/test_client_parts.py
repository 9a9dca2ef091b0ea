"""The parts of the client: answers out of bytes, events out of streams, its settings, and its spans."""

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from topics import AsyncClient, Client, Event
from topics.client import calls, tracing
from topics.client.events import event_type
from topics.client.http1 import Malformed, ResponseReader
from topics.client.watching import EventLines, ServerEvent
from topics.errors import InvalidRequest

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nRetry-After: 3\r\n\r\nhello"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_may_come_in_any_pieces(size: int) -> None:
    reader = ResponseReader()
    for start in range(0, len(ANSWER), size):
        assert not reader.complete
        reader.feed(ANSWER[start : start + size])
    answer = reader.answer()
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (200, b"hello", "3")
    assert reader.complete
    assert reader.keep_alive


def test_a_second_answer_is_not_mixed_up_with_the_first() -> None:
    reader = ResponseReader()
    reader.feed(ANSWER)
    reader.expect()
    reader.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 no\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    assert (reader.answer().status, reader.answer().body, reader.keep_alive) == (503, b"", False)


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-OpenSSH\r\n", ANSWER + ANSWER, b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000]
)
def test_what_is_no_answer_is_found_out(data: bytes) -> None:
    reader = ResponseReader()

    def feed() -> None:
        for start in range(0, len(data), len(ANSWER)):
            reader.feed(data[start : start + len(ANSWER)])

    with pytest.raises(Malformed):
        feed()


def test_events_are_cut_out_of_a_stream() -> None:
    lines = EventLines()
    stream = b'retry: 2000\n\n: hb 1\n\nid: x\nevent: record\ndata: {"a":\ndata: 1}\n\nevent: error\ndata: 2\n\n'
    found = [event for start in range(0, len(stream), 5) for event in lines.feed(stream[start : start + 5])]
    assert found == [ServerEvent(b"record", b'{"a":\n1}'), ServerEvent(b"error", b"2")]


def test_data_is_decoded_as_the_type_asked_for() -> None:
    kind = event_type(list[int])
    event: Event[list[int]] = msgspec.json.decode(b'{"$seq":1,"$ts":2,"data":[1,2]}', type=kind)
    assert event.data == [1, 2]
    wrong = msgspec.json.decode(b'{"$seq":1,"$ts":2,"data":{}}', type=kind)
    with pytest.raises(msgspec.ValidationError):
        assert wrong.data


def test_the_environment_names_the_server_and_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_URL", "http://elsewhere:1234")
    monkeypatch.setenv("TOPICS_API_KEY", "s3cret")
    with Client() as client:
        assert repr(client) == "Client('http://elsewhere:1234')"
        assert client._settings.api_key == "s3cret"
        assert "s3cret" not in repr(client._settings)
    assert repr(AsyncClient()) == "AsyncClient('http://elsewhere:1234')"


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"deadline_s": -1}, {"connections_max": 0}, {"api_key": "a b"}])
def test_arguments_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest):
        Client("http://here", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["v0/topics", "/v0/a b", "/v0/\r\nx: y", "/v0/ä"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with Client("http://here") as client, pytest.raises(InvalidRequest):
        client.request("GET", path)


def test_a_call_is_a_span_and_sends_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    with tracing.span(calls.topic("orders")) as headers:
        assert headers is not None
        assert headers["traceparent"].startswith("00-")
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind) == ("GET /v0/topics/orders", trace.SpanKind.CLIENT)


def test_without_a_tracer_there_is_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_tracer", None)
    with tracing.span(calls.topic("orders")) as headers:
        assert headers is None
