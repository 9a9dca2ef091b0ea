"""Measurements of this server alone: figures with bounds instead of rates beside a peer's.

A measurement starts and stops its own server process on loopback, with data in a directory that is removed afterwards.
A new one is a class in its own module and a line in `workloads.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. `at_most` and `at_least` are its bounds, if it has any."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def missed(self) -> bool:
        too_much = self.at_most is not None and self.value > self.at_most
        return too_much or (self.at_least is not None and self.value < self.at_least)


@dataclass(frozen=True, slots=True)
class MeasurementResult:
    name: str
    summary: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know to understand the figures."""


def turn_name(number: int, times: int) -> str:
    """For the progress. Turns below 0 are not measured."""
    return f"{number + 1} of {times}" if number >= 0 else "warming up"


class Measurement(ABC):
    name: str
    part_of_everything = True
    compares = False  # whether it measures an older checkout beside this one

    @abstractmethod
    def measure(self, progress: Progress) -> MeasurementResult:
        """Runs the measurement once."""
