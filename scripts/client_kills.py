"""Kills a server and its clients again and again, and then counts: every record of a producer once, every loss told.

    python scripts/client_kills.py [--kills 50] [--durability fsync] [--seed 1]

A client process writes numbered records through a named producer, begins anew where the topic has it when it was
killed, and prints each number it was told to be written. With `fsync` the topic must hold
0, 1, 2 … once each and nothing else. With `disk` a crash may take the last records: those that were acknowledged are
there, or inside a `Gap`.
"""

import argparse
import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator

from topics import Client, Event, Gap, testing

TOPIC = "killed"

WRITER = """
import sys
from topics import Client, AsyncClient
url, durability, shell = sys.argv[1:]
options = dict(batch_records=50, linger_s=0.001, buffer_bytes=20_000, config={"durability": durability})

def told(number):
    def callback(seq, error):
        if error is None:
            print(number, seq, flush=True)
    return callback

if shell == "blocking":
    with Client(url) as client, client.producer("killed", name="writer", **options) as producer:
        while True:
            number = producer.next_sequence
            producer.append(number, sequence=number, callback=told(number))
else:
    import asyncio
    async def main():
        async with AsyncClient(url) as client, client.producer("killed", name="writer", **options) as producer:
            while True:
                number = producer.next_sequence
                await producer.append(number, sequence=number, callback=told(number))
                await asyncio.sleep(0)
    asyncio.run(main())
"""


@contextlib.contextmanager
def writer(url: str, durability: str, shell: str, told: dict[int, int]) -> "Iterator[subprocess.Popen[str]]":
    arguments = [sys.executable, "-c", WRITER, url, durability, shell]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()  # a busy machine takes its time to begin: what is killed has written something
    try:
        yield process
    finally:
        process.kill()
        out, errors = process.communicate()
        if errors:
            print(errors[-2000:], file=sys.stderr)
        for line in (first + out).splitlines():
            parts = line.split()
            if len(parts) == 2 and parts[1] != "None":
                told[int(parts[0])] = int(parts[1])


def run(kills: int, durability: str, seed: int) -> str:
    random_kills = random.Random(seed)
    told: dict[int, int] = {}
    client_kills = server_kills = 0
    with testing.server() as server:
        while client_kills < kills or server_kills < kills:
            shell = ("blocking", "asyncio")[client_kills % 2]
            with writer(server.url, durability, shell, told):
                time.sleep(random_kills.uniform(0.0, 0.5))
                while server_kills < kills and random_kills.random() < 0.6:
                    server.kill()
                    server_kills += 1
                    server.start()
                    time.sleep(random_kills.uniform(0.0, 0.3))
            client_kills += 1
        with server.client() as client:
            return verdict(client, told, client_kills, server_kills)


def verdict(client: Client, told: dict[int, int], client_kills: int, server_kills: int) -> str:
    present: dict[int, int] = {}
    gaps: list[Gap] = []
    next_seq = 1
    for item in client.read(TOPIC):
        if isinstance(item, Event):
            assert item.seq == next_seq, f"seq {item.seq} where {next_seq} should be"
            assert item.data not in present, f"record {item.data} is there twice"
            present[item.data] = item.seq
            next_seq = item.seq + 1
        else:
            assert item.first == next_seq, item
            gaps.append(item)
            next_seq = item.last + 1
    lost = {seq for gap in gaps for seq in range(gap.first, gap.last + 1)}
    for number, seq in told.items():
        assert present.get(number) == seq or seq in lost, f"record {number} was acknowledged as {seq} and is hidden"
    holes = [number for number in range(max(present) + 1) if number not in present]
    if client.topic(TOPIC).config.durability == "fsync":
        assert not gaps, gaps
        assert not holes, f"never written: {holes[:20]}"
    return (
        f"{client_kills} kills of clients and {server_kills} of the server: {len(present)} records, {len(told)} told "
        f"to be written, {len(lost)} seqs lost and told in {len(gaps)} gaps, none twice, none hidden"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="of the server and of clients each")
    parser.add_argument("--durability", default="fsync", choices=["fsync", "disk"])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(run(arguments.kills, arguments.durability, arguments.seed))


if __name__ == "__main__":
    main()
