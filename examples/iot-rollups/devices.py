"""Writes readings as devices would: devices.py [READINGS]."""

import os
import random
import sys
from datetime import UTC, datetime, timedelta

from topics import Client

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
TOPIC = "readings"
DAY_MS = 24 * 3600 * 1000


def write(client: Client, device: str, readings: list[tuple[datetime, float]]) -> None:
    with client.producer(TOPIC, f"device:{device}") as producer:
        for at, celsius in readings:
            producer.append({"device": device, "at": at.isoformat(), "celsius": celsius}, tag=device)


def main(count: int) -> None:
    begin = datetime.now(UTC) - timedelta(seconds=10 * count)
    with Client(URL) as client:
        client.create(TOPIC, ttl_ms=DAY_MS)
        for device in ("attic", "cellar", "garden", "hall", "kitchen"):
            base = random.uniform(5, 25)
            times = (begin + timedelta(seconds=10 * number) for number in range(count))
            write(client, device, [(at, round(base + random.uniform(-1, 1), 2)) for at in times])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
