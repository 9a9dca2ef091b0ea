"""A user's own function in a pipeline: run after run, it gets what is new in a topic as a DataFrame.

A file in the checkpoint says how far it got. The range of a frame is noted before the function gets it: after a kill or
a failure, the function gets the same range again, and what it writes must tolerate that.

This reads batches. A streaming query would start a process and call back into Python for every run, and show what the
function raised as text among stack traces.
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
    """How far the function is in a topic of this epoch: `done` is the last seq it has handled, `until` the end of the
    range it is working on, or None."""

    epoch: int
    done: int
    until: int | None = None


def hand_over(
    spark: SparkSession, server: Server, topic: str, function: Callable[[Any], object], checkpoint: str
) -> Outcome:
    """One run: passes everything there is now to the function, range by range. Raises what the function raises, and
    `CheckpointInUse`. The outcome's `rows` are seqs, with deleted and lost ones."""
    with alone(checkpoint):
        path = os.path.join(checkpoint, PLACE_FILE)
        with server.client() as client:
            state = client.topic(topic)
        place = _read(path)
        if place is None or place.epoch != state.epoch:
            place = Place(state.epoch, 0)  # a topic that was created again is read from its start
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
