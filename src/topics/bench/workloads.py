"""The table of workloads. A new one is a class in a module of its own and a line here."""

from topics.bench.diff_workload import DiffWorkload
from topics.bench.workload import Workload
from topics.bench.write_workload import WriteWorkload

DURABILITY_CLASSES = ("ephemeral", "memory", "disk", "fsync")
EVERYTHING = "all"


def all_workloads(durability: str) -> tuple[Workload, ...]:
    return (
        WriteWorkload(durability, records_per_request=1),
        WriteWorkload(durability, records_per_request=100),
        DiffWorkload(durability, "tail"),
        DiffWorkload(durability, "deep"),
    )


def selections() -> list[str]:
    """Every word that selects workloads: `all`, a group, or a single name."""
    workloads = all_workloads("disk")
    groups = dict.fromkeys(workload.group for workload in workloads)
    return [EVERYTHING, *groups, *(workload.name for workload in workloads)]


def select(selection: str, durability: str) -> list[Workload]:
    return [
        workload for workload in all_workloads(durability) if selection in (EVERYTHING, workload.group, workload.name)
    ]
