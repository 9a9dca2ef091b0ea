"""A server process that can be killed and started again on the same directory."""

from pathlib import Path
from typing import Any

from conformance.client import Api, success
from conformance.process import STOP_TIMEOUT_S, ServerProcess


class Server(ServerProcess):
    def __init__(self, directory: Path, **settings: str) -> None:
        (directory / "address").unlink(missing_ok=True)
        super().__init__(directory, settings)

    def kill(self) -> None:
        """SIGKILL: nothing of it gets to finish."""
        self._process.kill()
        self._process.wait()

    def exit_code_after(self, number: int) -> int:
        """Asks it to stop, and says how it ended."""
        self._process.send_signal(number)
        return self._process.wait(STOP_TIMEOUT_S)


def read_all(api: Api, topic: str) -> tuple[dict[int, Any], set[int], int]:
    """Data by seq, the seqs inside tombstones, and the head, as a reader from the beginning finds them."""
    records: dict[int, Any] = {}
    lost: set[int] = set()
    from_seq = 0
    while True:
        reply = success(api.post(f"/v0/topics/{topic}/diff", {"from_seq": from_seq, "limit": 1000}))
        for record in reply["records"]:
            assert record["$seq"] not in records, "a record was delivered twice"
            records[record["$seq"]] = record["data"]
        if (gap := reply["tombstone"]) is not None:
            lost.update(range(gap["gap_from"], gap["gap_to"] + 1))
        if reply["next_from_seq"] >= reply["head_seq"]:
            return records, lost, reply["head_seq"]
        from_seq = reply["next_from_seq"]
