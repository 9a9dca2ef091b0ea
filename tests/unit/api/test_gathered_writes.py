"""Single writes that come to a topic in one turn of the loop are appended together, and answered one by one."""

import asyncio
import errno
import json
from collections.abc import Callable
from typing import Any

import pytest
from test_api_handlers import Served

from topics import limits
from topics.api.http import Request


class InTurns(Served):
    """The requests of one turn are handled before anything happens at its end."""

    def __init__(self, **environment: str) -> None:
        self._due: list[Callable[[], None]] | None = None
        super().__init__(**environment)

    def at_turn_end(self, call: Callable[[], None]) -> None:
        if self._due is None:
            call()
        else:
            self._due.append(call)

    def turn(self, *requests: Request) -> list[tuple[int, dict[str, Any]]]:
        """Handles all of them in one turn; returns the answers, without how long they took."""

        async def run() -> list[tuple[int, dict[str, Any]]]:
            self._due = []
            answers = [self.server.application.handle(request) for request in requests]
            due, self._due = self._due, None
            for call in due:
                call()
            replies = [await self.finished(answer) for answer in answers]
            return [(reply.status, json.loads(reply.body)) for reply in replies]

        return asyncio.run(run())

    def write_of(self, data: object, topic: str = "t", **fields: object) -> Request:
        return self.request(f"POST /v0/topics/{topic}", {"records": [{"data": data}], **fields})


@pytest.fixture
def at() -> InTurns:
    served = InTurns()
    served.ok("PUT /v0/topics/t", {"durability": "fsync"})
    return served


def records(at: InTurns, topic: str = "t") -> list[tuple[int, Any]]:
    read = at.ok(f"POST /v0/topics/{topic}/diff", {"limit": 1000})["records"]
    return [(record["$seq"], record["data"]) for record in read]


def without_times(reply: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in reply.items() if name != "performance"}


def test_all_of_one_turn_are_one_append_and_each_gets_its_own_seq(at: InTurns) -> None:
    appended: list[int] = []
    append = at.server.engine.append

    def counting(name: str, write: Any) -> Any:
        appended.append(len(write.records))
        return append(name, write)

    at.server.engine.append = counting
    replies = at.turn(*(at.write_of(each) for each in range(5)))
    assert appended == [5]
    assert [status for status, _ in replies] == [200] * 5
    assert [reply["seqs"] for _, reply in replies] == [[1], [2], [3], [4], [5]]
    assert records(at) == [(seq, seq - 1) for seq in range(1, 6)]


def test_the_answer_is_that_of_a_write_that_came_alone(at: InTurns) -> None:
    alone = at.turn(at.write_of("a"))[0]
    together = at.turn(at.write_of("b"), at.write_of("c"))
    expected = without_times(alone[1])
    for number, (status, reply) in enumerate(together):
        seq = 2 + number
        assert status == alone[0]
        assert without_times(reply) == expected | {"first_seq": seq, "last_seq": seq, "seqs": [seq], "head_seq": 3}
        assert reply["performance"].keys() == alone[1]["performance"].keys()


def test_nothing_is_answered_before_it_is_durable(at: InTurns) -> None:
    async def run() -> None:
        at._due = []
        answers = [at.server.application.handle(at.write_of(each)) for each in range(3)]
        due, at._due = at._due, None
        for call in due:
            call()
        assert not any(answer.commit.done for answer in answers)  # type: ignore[union-attr]
        assert at.server.engine.topic("t").log.head_seq == 0
        at.wal.step()
        assert all(answer.commit.done for answer in answers)  # type: ignore[union-attr]

    asyncio.run(run())


def test_nobody_is_refused_for_the_record_of_somebody_else() -> None:
    at = InTurns(TOPICS_MAX_RECORD_BYTES="100")
    at.ok("PUT /v0/topics/t", {"durability": "fsync"})
    replies = at.turn(at.write_of("a"), at.write_of("x" * 200), at.write_of("b"))
    assert [status for status, _ in replies] == [200, 400, 200]
    assert replies[1][1]["error"]["message"].startswith("records[0]: data and meta are")
    assert records(at) == [(1, "a"), (2, "b")]


def test_as_many_as_fit_into_a_topic_that_discards_nothing_are_taken(at: InTurns) -> None:
    at.ok("PUT /v0/topics/t", {"cap_records": 2, "discard": "reject"})
    replies = at.turn(*(at.write_of(each) for each in range(4)))
    assert [status for status, _ in replies] == [200, 200, 422, 422]
    assert records(at) == [(1, 0), (2, 1)]


def test_what_is_deleted_in_the_same_turn_is_made_again_as_for_a_write_that_comes_later(at: InTurns) -> None:
    replies = at.turn(at.write_of("a"), at.request("DELETE /v0/topics/t"), at.write_of("b"))
    assert [status for status, _ in replies] == [201, 200, 200]
    assert [replies[place][1]["created"] for place in (0, 2)] == [True, False]
    assert records(at) == [(1, "a"), (2, "b")]


def test_nodes_and_topics_are_kept_apart(at: InTurns) -> None:
    at.ok("PUT /v0/topics/u", {"durability": "fsync"})
    requests = [
        at.write_of(1, node="n"),
        at.write_of(2),
        at.write_of(3, topic="u"),
        at.write_of(4, node="n"),
    ]
    at.turn(*requests)
    read = at.ok("POST /v0/topics/t/diff", {})["records"]
    assert {record["data"]: record.get("$node") for record in read} == {1: "n", 2: None, 4: "n"}
    assert records(at, "u") == [(1, 3)]


def test_more_than_belong_together_are_several_appends(at: InTurns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITES_GATHERED_MAX", 2)
    replies = at.turn(*(at.write_of(each) for each in range(5)))
    assert [reply["seqs"] for _, reply in replies] == [[1], [2], [3], [4], [5]]
    assert records(at) == [(seq, seq - 1) for seq in range(1, 6)]


def test_a_failed_disk_is_told_to_each(at: InTurns) -> None:
    at.disk.fail_at(at.disk.mutating_calls + 1, errno.EIO, and_after=True)
    replies = at.turn(at.write_of("a"), at.write_of("b"))
    assert [status for status, _ in replies] == [503, 503]
    assert records(at) == []
