"""A queue with the calls most tests need; each of them asserts success."""

from dataclasses import dataclass
from typing import Any

from conformance.client import Reply, Topic, success


@dataclass(frozen=True, slots=True)
class Queue:
    topic: Topic

    def post(self, path: str, **body: Any) -> Reply:
        return self.topic.api.post(f"{self.topic.path}/{path}", body)

    def claim(self, node: str = "w", **body: Any) -> dict[str, Any]:
        return success(self.post("claim", node=node, **body))

    def jobs(self, node: str = "w", **body: Any) -> list[dict[str, Any]]:
        claimed = self.claim(node, **{"max": 100, **body})["claimed"]
        assert isinstance(claimed, list)
        return claimed

    def seqs(self, node: str = "w", **body: Any) -> list[int]:
        return [job["$seq"] for job in self.jobs(node, **body)]

    def ack(self, *seqs: int, node: str = "w", **body: Any) -> dict[str, Any]:
        return success(self.post("ack", node=node, seqs=seqs, **body))

    def nack(self, *seqs: int, node: str = "w", **body: Any) -> dict[str, Any]:
        return success(self.post("nack", node=node, seqs=seqs, **body))

    def extend(self, *seqs: int, node: str = "w", **body: Any) -> dict[str, Any]:
        return success(self.post("extend", node=node, seqs=seqs, **body))

    def counters(self) -> tuple[int, int, int]:
        counters = self.topic.state()["queue"]
        return counters["ready"], counters["in_flight"], counters["dead_lettered"]
