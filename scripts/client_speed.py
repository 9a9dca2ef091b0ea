"""How fast the client is, as a ratio to plain HTTP with the same batches: a producer, and an iterator.

    python scripts/client_speed.py [--records 100000] [--batch 1000] [--rounds 9]

Plain HTTP is `http.client` with one kept connection, bodies encoded and replies decoded by msgspec. Both take turns
within one run. A ratio is that of one round, whose parts were disturbed alike; the median of all rounds counts. Exits
with 1 when one is below 0.7. The rates are those of the best round.
"""

import argparse
import asyncio
import http.client
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from topics import testing

RATIO_MIN = 0.7
DATA = {"sku": 17, "name": "a thing that one may order", "price": 19.99, "tags": ["a", "b", "c"]}
JSON = {"Content-Type": "application/json"}


class Rows:
    """What is measured, each for itself: records per second."""

    def __init__(self, server: testing.RunningServer, records: int, batch: int) -> None:
        self._server = server
        self._records = records
        self._batch = batch
        self._topic = 0

    def new_topic(self) -> str:
        self._topic += 1
        return f"speed.{self._topic}"

    def plain_write(self) -> float:
        topic, connection = self.new_topic(), self._connection()
        with_clock = Stopwatch(self._records)
        for _ in range(self._records // self._batch):
            body = msgspec.json.encode({"records": [{"data": DATA} for _ in range(self._batch)]})
            connection.request("POST", f"/v0/topics/{topic}?return_seqs=false", body, JSON)
            msgspec.json.decode(connection.getresponse().read())
        return with_clock.per_second()

    def producer(self) -> float:
        with self._server.client() as client:
            with_clock = Stopwatch(self._records)
            with client.producer(self.new_topic(), batch_records=self._batch, linger_s=1.0) as producer:
                for _ in range(self._records):
                    producer.append(DATA)
            return with_clock.per_second()

    def async_producer(self) -> float:
        async def produce() -> float:
            async with self._server.async_client() as client:
                with_clock = Stopwatch(self._records)
                async with client.producer(self.new_topic(), batch_records=self._batch, linger_s=1.0) as producer:
                    for _ in range(self._records):
                        await producer.append(DATA)
                return with_clock.per_second()

        return asyncio.run(produce())

    def plain_read(self) -> float:
        connection, from_seq, count = self._connection(), 0, 0
        with_clock = Stopwatch(self._records)
        while True:
            body = msgspec.json.encode({"from_seq": from_seq, "limit": self._batch, "include_tags": True})
            connection.request("POST", "/v0/topics/speed.1/diff", body, JSON)
            reply: Any = msgspec.json.decode(connection.getresponse().read())
            for _ in reply["records"]:
                count += 1
            from_seq = reply["next_from_seq"]
            if reply["caught_up"]:
                assert count == self._records
                return with_clock.per_second()

    def iterator(self) -> float:
        with self._server.client() as client:
            with_clock = Stopwatch(self._records)
            assert sum(1 for _ in client.read("speed.1", page_records=self._batch)) == self._records
            return with_clock.per_second()

    def async_iterator(self) -> float:
        async def read() -> float:
            async with self._server.async_client() as client:
                with_clock, count = Stopwatch(self._records), 0
                async for _ in client.read("speed.1", page_records=self._batch):
                    count += 1
                assert count == self._records
                return with_clock.per_second()

        return asyncio.run(read())

    def _connection(self) -> http.client.HTTPConnection:
        host, _, port = self._server.url.removeprefix("http://").rpartition(":")
        return http.client.HTTPConnection(host, int(port))


class Stopwatch:
    def __init__(self, records: int) -> None:
        self._records = records
        self._began = time.perf_counter()

    def per_second(self) -> float:
        return self._records / (time.perf_counter() - self._began)


def ratios(
    plain: Callable[[], float], ours: dict[str, Callable[[], float]], rounds: int
) -> Iterator[tuple[str, float]]:
    rates: dict[str, list[float]] = {"plain HTTP": [], **{name: [] for name in ours}}
    for _ in range(rounds):
        rates["plain HTTP"].append(plain())
        for name, measure in ours.items():
            rates[name].append(measure())
    for name, found in rates.items():
        ratio = statistics.median(ours / plain for ours, plain in zip(found, rates["plain HTTP"], strict=True))
        print(f"{name:16} {max(found):10,.0f} records/s   {ratio:.2f}")
        yield name, ratio


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    with testing.server() as server:
        rows = Rows(server, arguments.records, arguments.batch)
        writing = {"producer": rows.producer, "async producer": rows.async_producer}
        reading = {"iterator": rows.iterator, "async iterator": rows.async_iterator}
        found = [
            *ratios(rows.plain_write, writing, arguments.rounds),
            *ratios(rows.plain_read, reading, arguments.rounds),
        ]
    return 1 if min(ratio for _, ratio in found) < RATIO_MIN else 0


if __name__ == "__main__":
    sys.exit(main())
