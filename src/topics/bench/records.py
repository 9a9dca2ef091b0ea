"""The records every workload writes: about 120 bytes of JSON and a tag, the same for every target."""

DATA_BYTES = 120


def tag_of(number: int) -> bytes:
    return b"tenant42:job-%07d" % (number % 10_000_000)


def data_of(number: int) -> bytes:
    """A small JSON object of exactly `DATA_BYTES` bytes."""
    head = b'{"type":"resize","url":"s3://images/%07d.png","width":256,"height":256,"note":"' % (number % 10_000_000)
    return head + b"x" * (DATA_BYTES - len(head) - 2) + b'"}'


def write_body(first: int, count: int) -> bytes:
    """The body of a write of `count` records."""
    records = b",".join(
        b'{"data":%b,"tag":"%b"}' % (data_of(number), tag_of(number)) for number in range(first, first + count)
    )
    return b'{"records":[' + records + b"]}"
