"""Reads of 1000 records a call from a preloaded topic, compared with `XRANGE … COUNT 1000`."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from topics.bench.errors import BenchError
from topics.bench.http1 import render_request
from topics.bench.plan import LoadSettings
from topics.bench.records import FIELDS_PER_ENTRY, fill, fill_stream
from topics.bench.resp import LINES_PER_ARRAY_HEADER, encode_command, lines_per_stream_entry
from topics.bench.samples import Sample
from topics.bench.targets import Target, TargetKind
from topics.bench.workload import ClosedLoop, Expectation

PRELOADED_RECORDS = 100_000
READ_RECORDS = 1000


class _DiffReply(msgspec.Struct):
    records: list[msgspec.Raw]
    next_from_seq: int


class DiffWorkload(ClosedLoop):
    """`tail` reads the last 1000 again and again; `deep` walks a cursor from 0 to the head, over and over."""

    group = "diff"
    kinds = frozenset({TargetKind.TOPICS, TargetKind.REDIS})
    records_per_request = READ_RECORDS
    lines_per_reply = LINES_PER_ARRAY_HEADER + READ_RECORDS * lines_per_stream_entry(FIELDS_PER_ENTRY)

    def __init__(self, durability: str, where: Literal["tail", "deep"]) -> None:
        self.name = f"diff-{where}"
        self.summary = f"{READ_RECORDS} records a call, {_place(where)} of {PRELOADED_RECORDS}, {durability} class"
        self.script_length = 1 if where == "tail" else PRELOADED_RECORDS // READ_RECORDS
        self.expectations = (Expectation(TargetKind.REDIS, 2.0),)
        if where == "tail":
            self.expectations += (Expectation(TargetKind.TOPICS, 6.0),)
        super().__init__(durability)

    def prepare(self, target: Target) -> None:
        """Preloads, and checks that a call returns as many records as it counts for."""
        if target.kind is TargetKind.REDIS:
            self._preload_redis(target)
        else:
            self._preload_topics(target)

    def run_round(self, targets: Sequence[Target], settings: LoadSettings) -> list[Sample]:
        """Runs a round; all rounds read the same preloaded records."""
        return self.measure(targets, settings)

    def request(self, target: Target, connection: int, number: int) -> bytes:
        from_seq = self._from_seq(number)
        if target.kind is TargetKind.REDIS:
            after = b"(%d-0" % from_seq
            return encode_command(b"XRANGE", self.topic.encode("ascii"), after, b"+", b"COUNT", b"%d" % READ_RECORDS)
        body = diff_body(from_seq)
        return render_request("POST", f"/v0/topics/{self.topic}/diff", body, host=target.host, api_key=target.api_key)

    def _from_seq(self, number: int) -> int:
        return PRELOADED_RECORDS - (self.script_length - number) * READ_RECORDS

    def _preload_topics(self, target: Target) -> None:
        with target.http() as control:
            control.call("PUT", f"/v0/topics/{self.topic}", self.config)
            fill(control, [self.topic], 0, PRELOADED_RECORDS)
            for number in (0, self.script_length - 1):
                from_seq = self._from_seq(number)
                content = control.call("POST", f"/v0/topics/{self.topic}/diff", diff_body(from_seq))
                reply = msgspec.json.decode(content, type=_DiffReply)
                count = len(reply.records)
                if count != READ_RECORDS or reply.next_from_seq != from_seq + READ_RECORDS:
                    raise BenchError(f"{target.name}: a diff from {from_seq} gave {count} records")

    def _preload_redis(self, target: Target) -> None:
        stream = self.topic.encode("ascii")
        with target.redis() as control:
            fill_stream(control, stream, PRELOADED_RECORDS)
            if control.call(b"XLEN", stream) != b":%d\r\n" % PRELOADED_RECORDS:
                raise BenchError(f"{target.name}: the preloaded stream is not {PRELOADED_RECORDS} long")


def diff_body(from_seq: int) -> bytes:
    """A read after `from_seq`, with tags: an XRANGE entry has all its fields, too."""
    return b'{"from_seq":%d,"limit":%d,"include_tags":true}' % (from_seq, READ_RECORDS)


def _place(where: Literal["tail", "deep"]) -> str:
    return "the last" if where == "tail" else "walking all"
