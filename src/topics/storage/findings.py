"""What a check found, in the words it is reported with."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from topics.storage.errors import CorruptFile


class Severity(StrEnum):
    PROBLEM = "problem"
    """Something is not as it was written."""
    UNCHECKED = "unchecked"
    """It could not be looked at: another version, a tier that was not named."""
    NOTE = "note"
    """Expected after a crash, and put right by the next start."""


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    path: str
    offset: int
    reason: str


class Findings:
    """Gathers findings; `topic_id` says whom a problem is counted for."""

    def __init__(self) -> None:
        self.all: list[Finding] = []
        self.problems_by_topic: Counter[int] = Counter()

    def problem(self, path: str, offset: int, reason: str, topic_id: int | None = None) -> None:
        self._add(Severity.PROBLEM, path, offset, reason, topic_id)

    def corrupt(self, error: CorruptFile, topic_id: int | None = None) -> None:
        self._add(Severity.PROBLEM, error.path, error.offset, error.reason, topic_id)

    def unchecked(self, path: str, reason: str) -> None:
        self._add(Severity.UNCHECKED, path, 0, reason, None)

    def note(self, path: str, offset: int, reason: str) -> None:
        self._add(Severity.NOTE, path, offset, reason, None)

    def take(self, findings: list[Finding], problems_by_topic: Mapping[int, int]) -> None:
        """Adds what another one gathered."""
        self.all += findings
        self.problems_by_topic.update(problems_by_topic)

    def _add(self, severity: Severity, path: str, offset: int, reason: str, topic_id: int | None) -> None:
        self.all.append(Finding(severity, path, offset, reason))
        if topic_id is not None:
            self.problems_by_topic[topic_id] += 1
