"""Server-sent events as bytes. Payloads are the clients' own JSON, which may hold line breaks between its tokens."""

from msgspec.json import encode

from topics.delivery.shared_batches import SharedBatch
from topics.delivery.subscriber import Feed, record_body
from topics.model.gap import Gap

RETRY = b"retry: 2000\n\n"
LINE_BYTES = len(b"data: ")  # what a line break in the data costs beyond itself


def event(name: bytes, data: bytes, identifier: bytes | None = None) -> bytes:
    """One event. A line break in the data becomes a new data line: the reader gets a line feed, which is white space
    as well."""
    if b"\n" in data or b"\r" in data:
        # In C: splitting a million lines in Python held the loop for a second.
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    if identifier is None:
        return b"event: %b\ndata: %b\n\n" % (name, data)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (identifier, name, data)


def heartbeat(now_ms: int) -> bytes:
    return b": hb %d\n\n" % now_ms


def record_event(feed: Feed, shared: SharedBatch, from_seq: int, head_seq: int) -> bytes:
    """A record event without its id, made once for all who get it."""
    key = ("sse", from_seq)
    text = shared.texts.get(key)
    if text is None:
        text = shared.texts[key] = event(b"record", b"{" + record_body(feed, shared, from_seq, head_seq))
    return text


def tombstone_data(topic: str, gap: Gap, reason: str, earliest_seq: int, head_seq: int) -> bytes:
    return encode(
        {
            "topic": topic,
            "reason": reason,
            "gap_from": gap.gap_from,
            "gap_to": gap.gap_to,
            "earliest_seq": earliest_seq,
            "head_seq": head_seq,
        }
    )


def topic_deleted(topic: str, head_seq: int, identifier: bytes) -> bytes:
    data = b'{"topic":"%b","head_seq":%d,"reason":"deleted"}' % (topic.encode(), head_seq)
    return event(b"topic-deleted", data, identifier)


def error_event(code: int, message: str, **detail: object) -> bytes:
    return event(b"error", encode({"code": code, "error": message, **detail}))
