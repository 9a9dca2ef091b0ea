"""The records every workload writes: about 120 bytes of JSON and a tag, the same for every target."""

from topics.bench.control import HttpControl, RedisControl
from topics.bench.resp import LINES_PER_BULK_STRING, encode_command

DATA_BYTES = 120
FIELDS_PER_ENTRY = 2  # tag and data
BATCH_RECORDS = 1000
WINDOW_MS = 119_999  # anything but the default


def tag_of(number: int) -> bytes:
    return b"tenant42:job-%07d" % (number % 10_000_000)


def data_of(number: int, size: int = DATA_BYTES) -> bytes:
    """A JSON object of exactly `size` bytes, which must be at least `DATA_BYTES`."""
    head = b'{"type":"resize","url":"s3://images/%07d.png","width":256,"height":256,"note":"' % (number % 10_000_000)
    return head + b"x" * (size - len(head) - 2) + b'"}'


def write_body(first: int, count: int, size: int = DATA_BYTES) -> bytes:
    """The body of a write of `count` records."""
    records = b",".join(
        b'{"data":%b,"tag":"%b"}' % (data_of(number, size), tag_of(number)) for number in range(first, first + count)
    )
    return b'{"records":[' + records + b"]}"


def stream_command(stream: bytes, entry_id: bytes, number: int) -> bytes:
    """The same record as an entry of a Redis stream."""
    return encode_command(b"XADD", stream, entry_id, b"tag", tag_of(number), b"data", data_of(number))


def fill(control: HttpControl, topics: list[str], first: int, records: int, size: int = DATA_BYTES) -> None:
    """Writes records from number `first` on, batch by batch, to one topic after the other."""
    for turn, (at, count) in enumerate(_batches(first, records)):
        path = f"/v0/topics/{topics[turn % len(topics)]}?return_seqs=false"
        # It rather waits than be refused: the next batch comes as soon as this one is answered.
        body = write_body(at, count, size)
        control.call("POST", path, b'{"disable_backpressure":true,' + body[1:])


def wait_until_durable(control: HttpControl, topics: list[str]) -> None:
    """Returns once a kill can lose nothing of these topics.

    A write of class `disk` is answered up to 20 ms before it is in a file. But a change of a topic's configuration is
    answered once it is durable, and with it everything before it in the topic's log. It is only logged if it changes
    something.
    """
    for topic in topics:
        control.call("PUT", f"/v0/topics/{topic}", b'{"idempotency_window_ms":%d}' % WINDOW_MS)


def fill_stream(control: RedisControl, stream: bytes, records: int) -> None:
    """Adds the first records to a stream, under ids that look like seqs: 1-0, 2-0 and so on."""
    for at, count in _batches(0, records):
        commands = [stream_command(stream, b"%d-0" % (number + 1), number) for number in range(at, at + count)]
        control.send(b"".join(commands), LINES_PER_BULK_STRING * count)


def _batches(first: int, records: int) -> list[tuple[int, int]]:
    end = first + records
    return [(at, min(BATCH_RECORDS, end - at)) for at in range(first, end, BATCH_RECORDS)]
