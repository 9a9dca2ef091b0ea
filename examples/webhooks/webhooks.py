"""Deliveries to other people's servers: webhooks.py send URL JSON | work, see README.md."""

import json
import logging
import os
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from topics import Client, Retry

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
QUEUE = "webhooks"
TIMEOUT_S = 10.0
GONE = 410

log = logging.getLogger("webhooks")


def prepare(client: Client, tries: int = 8) -> None:
    client.create(QUEUE, type="queue", durability="fsync", max_deliveries=tries, dead_letter=f"{QUEUE}.dead")


def send(client: Client, url: str, event: object) -> None:
    client.append(QUEUE, {"url": url, "event": event}, tag=url)


def deliverer(client: Client, **options: object):
    """A worker; `run` it."""

    @client.worker(QUEUE, **{"concurrency": 16, "backoff_s": 1.0, "backoff_max_s": 3600.0, **options})
    def deliver(job):
        body = json.dumps(job.data["event"]).encode()
        headers = {"Content-Type": "application/json", "Webhook-Id": f"{QUEUE}-{job.seq}"}
        try:
            urlopen(Request(job.data["url"], body, headers), timeout=TIMEOUT_S).close()
        except HTTPError as error:
            with error:
                if error.code == GONE:
                    log.warning("%s is gone: dropped", job.data["url"])
                    return
                after = error.headers.get("Retry-After", "")
            if after.isdigit():
                raise Retry(after=float(after)) from None
            raise

    return deliver


def main(command: str, *arguments: str) -> None:
    logging.basicConfig(level=logging.INFO)
    with Client(URL) as client:
        prepare(client)
        if command == "send":
            url, event = arguments
            send(client, url, json.loads(event))
        elif command == "work":
            print(deliverer(client).run())
        else:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["help"]))
