"""The tables of workloads and measurements. A new one is a class in its own module and a line here."""

from dataclasses import dataclass
from pathlib import Path

from topics.bench.diff_workload import DiffWorkload
from topics.bench.floors import FloorsMeasurement
from topics.bench.live_workload import ROOM, FanoutWorkload, MediaRoom, MediaWorkload
from topics.bench.many_topics_workload import ManyTopicsWorkload
from topics.bench.measurement import Measurement
from topics.bench.memory_measurement import MemoryMeasurement
from topics.bench.queue_workload import QueueWorkload
from topics.bench.recovery_measurement import RecoveryMeasurement
from topics.bench.router_measurement import RouterMeasurement
from topics.bench.scale_measurement import ScaleMeasurement
from topics.bench.spark_measurement import SparkMeasurement
from topics.bench.start_measurement import StartMeasurement
from topics.bench.workload import Workload
from topics.bench.write_workload import WriteWorkload

DURABILITY_CLASSES = ("ephemeral", "memory", "disk", "fsync")
EVERYTHING = "all"


def all_workloads(durability: str, room: MediaRoom = ROOM) -> tuple[Workload, ...]:
    return (
        WriteWorkload(durability, records_per_request=1),
        WriteWorkload(durability, records_per_request=100),
        WriteWorkload("fsync", records_per_request=1, connections=1, group="fsync"),
        WriteWorkload("fsync", records_per_request=1, group="fsync"),
        DiffWorkload(durability, "tail"),
        DiffWorkload(durability, "deep"),
        FanoutWorkload(durability, watchers=1),
        FanoutWorkload(durability, watchers=10),
        FanoutWorkload(durability, watchers=100),
        FanoutWorkload(durability, watchers=1000),
        MediaWorkload(durability, room),
        QueueWorkload(durability),
        ManyTopicsWorkload(durability, deletes=False),
        ManyTopicsWorkload(durability, deletes=True),
    )


@dataclass(frozen=True)
class Sizes:
    """How much a measurement measures, and what it is compared with. None means the size that its mark assumes."""

    records: int | None = None
    topics: int | None = None
    rounds: int = 3
    checkout: Path | None = None


SIZES = Sizes()


def all_measurements(durability: str, sizes: Sizes) -> tuple[Measurement, ...]:
    return (
        FloorsMeasurement(),
        StartMeasurement(sizes.rounds, sizes.checkout),
        RecoveryMeasurement(sizes.records, durability, sizes.rounds, sizes.checkout),
        MemoryMeasurement(sizes.records, durability),
        SparkMeasurement(sizes.records, durability, sizes.rounds),
        RouterMeasurement(durability),
        ScaleMeasurement(sizes.topics, sizes.records, sizes.checkout),
    )


def selections() -> list[str]:
    """Every word that selects something: `all`, a group of workloads, or a single name."""
    workloads = all_workloads("disk")
    groups = [workload.group for workload in workloads]
    measurements = [measurement.name for measurement in all_measurements("disk", SIZES)]
    return list(dict.fromkeys([EVERYTHING, *groups, *(workload.name for workload in workloads), *measurements]))


def select(selection: str, durability: str, room: MediaRoom = ROOM) -> list[Workload]:
    """The workloads that `selection` names. `room` is the room of the media workload."""
    return [
        workload
        for workload in all_workloads(durability, room)
        if selection in (EVERYTHING, workload.group, workload.name)
    ]


def select_measurements(selection: str, durability: str, sizes: Sizes = SIZES) -> list[Measurement]:
    found = all_measurements(durability, sizes)
    return [each for each in found if selection == each.name or (selection == EVERYTHING and each.part_of_everything)]
