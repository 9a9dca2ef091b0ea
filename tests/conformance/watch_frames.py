"""The frames of a watch stream in short."""

from collections.abc import Callable
from typing import Any

from conformance.client import Topic
from conformance.sse import EventStream, Frame

NewTopic = Callable[..., Topic]


def summary(frames: list[Frame]) -> list[tuple[str, Any]]:
    """Frames in short: records as seqs, tombstones as reason and range, the rest as its head_seq."""
    return [(frame.event, _gist(frame)) for frame in frames]


def _gist(frame: Frame) -> Any:
    match frame.event:
        case "record":
            return frame.seqs
        case "tombstone":
            return frame.json["reason"], frame.json["gap_from"], frame.json["gap_to"]
        case _:
            return frame.json["head_seq"]


def until_caught_up(stream: EventStream) -> list[tuple[str, Any]]:
    return summary(stream.until("caught-up"))
