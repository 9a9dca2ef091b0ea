"""What a snapshot holds: every topic but for its records, and from which frames on the WAL goes beyond it."""

import msgspec
from msgspec import Raw, Struct

from topics.model.image import TopicImage
from topics.storage.errors import UnknownVersion

STATE_FORMAT = 3


class State(Struct, frozen=True):
    """`shards`: directory name of each WAL shard to the first lsn that is not in here. `clean`: nothing follows.
    `start`: the number of the process that wrote it."""

    next_id: int
    clean: bool
    shards: dict[str, int]
    topics: list[Raw]
    start: int
    format: int = STATE_FORMAT


_encode = msgspec.msgpack.encode
_decode_state = msgspec.msgpack.Decoder(State).decode
_decode_topic = msgspec.msgpack.Decoder(TopicImage).decode


class _Format(Struct):
    format: int


def encode_topic(image: TopicImage) -> bytes:
    return _encode(image)


def encode_state(next_id: int, shards: dict[str, int], topics: list[bytes], *, start: int, clean: bool) -> bytes:
    return _encode(State(next_id, clean, shards, [Raw(topic) for topic in topics], start))


def decode_state(body: bytes, path: str) -> tuple[State, list[TopicImage]]:
    found = msgspec.msgpack.decode(body, type=_Format).format
    if found != STATE_FORMAT:
        raise UnknownVersion(path, f"state format {found}", earlier=found < STATE_FORMAT)
    state = _decode_state(body)
    return state, [_decode_topic(topic) for topic in state.topics]
