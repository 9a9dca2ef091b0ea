"""A worker process: claims jobs, works on them for a moment, acks them, and notes every step in a file of its own.

Run as `python queue_worker.py ADDRESS_FILE LOG_FILE NODE`. It goes on over server crashes, until it is killed.
"""

import http.client
import json
import sys
import time
from pathlib import Path

RETRY_S = 0.02
WORK_S = 0.01


def main(address_file: Path, log_file: Path, node: str) -> None:
    with log_file.open("a", buffering=1) as log:
        while True:
            try:
                host, _, port = address_file.read_text().strip().rpartition(":")
                work(http.client.HTTPConnection(host, int(port), timeout=5), log.write, node)
            except (OSError, ValueError, http.client.HTTPException):
                time.sleep(RETRY_S)


def work(connection: http.client.HTTPConnection, note: object, node: str) -> None:
    assert callable(note)
    while True:
        claimed = post(connection, "claim", {"node": node, "max": 5, "lease_ms": 1_000})["claimed"]
        assert isinstance(claimed, list)
        for job in claimed:
            note(f"claimed {job['data']} {job['deliveries']}\n")
        if not claimed:
            time.sleep(RETRY_S)
            continue
        time.sleep(WORK_S)
        for job in claimed:
            note(f"acking {job['data']} 0\n")
        reply = post(
            connection,
            "ack",
            {"node": node, "seqs": [job["$seq"] for job in claimed], "lease_ids": [job["lease_id"] for job in claimed]},
        )
        for job in claimed:
            if job["$seq"] not in reply["skipped"]:  # type: ignore[operator]
                note(f"acked {job['data']} 0\n")


def post(connection: http.client.HTTPConnection, path: str, body: dict[str, object]) -> dict[str, object]:
    connection.request("POST", f"/v0/topics/jobs/{path}", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    if response.status != 200:
        raise http.client.HTTPException(content)
    answer: dict[str, object] = json.loads(content)
    return answer


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
