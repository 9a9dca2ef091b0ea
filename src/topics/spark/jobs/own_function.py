"""A user's own function in a pipeline: it gets what is new in a topic as a DataFrame, run after run.

How far it was is a file in the checkpoint. The range a frame has is noted before the function gets it: killed, or after
it failed, it gets the same range again. What it writes has to bear that.

A batch read, not a streaming query: those start a process and a call back into Python for every run, and tell what a
function raised as text among stacks.
"""

import os
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession

from topics.limits import PIPELINE_FRAME_SEQS_MAX
from topics.spark.jobs.rollup_checkpoint import alone
from topics.spark.jobs.supervise import Outcome
from topics.spark.options import Server

PLACE_FILE = "place.json"


class Place(Struct, frozen=True):
    """Of one instance of a topic: `done` is the last seq the function has had, `until` the last one of the range it was
    given, or None between two."""

    epoch: int
    done: int
    until: int | None = None


def hand_over(
    spark: SparkSession, server: Server, topic: str, function: Callable[[Any], object], checkpoint: str
) -> Outcome:
    """One run: all that is there now, in ranges. Raises what the function raises, and `CheckpointInUse`. The rows are
    seqs: deleted and lost ones are counted, too."""
    with alone(checkpoint):
        path = os.path.join(checkpoint, PLACE_FILE)
        with server.client() as client:
            state = client.topic(topic)
        place = _read(path)
        if place is None or place.epoch != state.epoch:
            place = Place(state.epoch, 0)  # a topic made anew is read from its start
        began = place.done
        while place.until is not None or place.done < state.head_seq:
            until = place.until or min(state.head_seq, place.done + PIPELINE_FRAME_SEQS_MAX)
            _write(path, Place(place.epoch, place.done, until))
            options = {
                "url": server.url,
                "subscribe": topic,
                "startingOffsets": msgspec.json.encode({topic: place.done + 1}).decode(),
                "endingOffsets": msgspec.json.encode({topic: until + 1}).decode(),
                "onDataLoss": "warn",
            }
            if server.api_key is not None:
                options["apiKey"] = server.api_key.reveal()
            function(spark.read.format("topics").options(**options).load())
            place = Place(place.epoch, until)
            _write(path, place)
        with server.client() as client:
            lag = max(0, client.topic(topic).head_seq - place.done)
    return Outcome(place.done - began, lag)


def _read(path: str) -> Place | None:
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return msgspec.json.decode(file.read(), type=Place)


def _write(path: str, place: Place) -> None:
    with open(f"{path}.partial", "wb") as file:
        file.write(msgspec.json.encode(place))
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.partial", path)
