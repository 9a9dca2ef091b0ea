"""The table of workloads. A new one is a class in a module of its own and a line here."""

from topics.bench.diff_workload import DiffWorkload
from topics.bench.fanout_workload import FanoutWorkload
from topics.bench.media_workload import MediaRoom, MediaWorkload
from topics.bench.workload import Workload
from topics.bench.write_workload import WriteWorkload

DURABILITY_CLASSES = ("ephemeral", "memory", "disk", "fsync")
EVERYTHING = "all"


def all_workloads(durability: str, room: MediaRoom) -> tuple[Workload, ...]:
    return (
        WriteWorkload(durability, records_per_request=1),
        WriteWorkload(durability, records_per_request=100),
        DiffWorkload(durability, "tail"),
        DiffWorkload(durability, "deep"),
        FanoutWorkload(durability, watchers=1),
        FanoutWorkload(durability, watchers=10),
        FanoutWorkload(durability, watchers=100),
        FanoutWorkload(durability, watchers=1000),
        MediaWorkload(durability, room),
    )


def selections() -> list[str]:
    """Every word that selects workloads: `all`, a group, or a single name."""
    workloads = all_workloads("disk", MediaRoom())
    groups = dict.fromkeys(workload.group for workload in workloads)
    return list(dict.fromkeys([EVERYTHING, *groups, *(workload.name for workload in workloads)]))


def select(selection: str, durability: str, room: MediaRoom) -> list[Workload]:
    """`room` is that of the media workload."""
    return [
        workload
        for workload in all_workloads(durability, room)
        if selection in (EVERYTHING, workload.group, workload.name)
    ]
