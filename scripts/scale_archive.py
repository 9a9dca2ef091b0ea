"""Scale: fills a topic, archives it, compacts, replays and audits it, and prints rows/s and memory of every step.

    .venv/bin/python scripts/scale_archive.py --records 10000000

Not part of the test run: ten million records take some minutes and a few GB of disk. Memory is the largest sum of
the resident sets of this process and its Python workers, that of Spark's JVM, and that of the server if one runs, by
quarters of a step; the heap is what is left of Spark's after a collection at the end of the step. Flat means that it
does not grow with the records, and the JVM not beyond the heap it has. Rows a CPU second are what a machine that is
busy with other things still tells.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from topics.client.calls import NewRecord
from topics.client.sync_client import Client
from topics.spark.jobs.archive import ArchiveSpec, archive
from topics.spark.jobs.audit import AuditSpec, audit
from topics.spark.jobs.compact import CompactSpec, compact
from topics.spark.jobs.replay import ReplaySpec, replay
from topics.spark.options import Files, Server
from topics.spark.session import local_session

Sample = tuple[int, int, int]

SERVERS: set[int] = set()
WRITE_RECORDS = 5000
SAMPLE_S = 0.5
SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR", "spark.driver.memory": "2g"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--from", dest="origin", choices=["files", "server"], default="files")
    parser.add_argument("--file-mb", type=int, default=256, help="JSON text in a file; smaller ones make more commits")
    parser.add_argument("--directory", help="where everything goes; a temporary one if not given")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory) as name:
        run(Path(name), args.records, args.master, args.origin, args.file_mb)


def run(directory: Path, records: int, master: str, origin: str, file_mb: int) -> None:
    data, target = directory / "data", directory / "archive"
    with server(directory, data) as url:
        with step("write", records):
            fill(url, records)
        if origin == "server":
            archive_all(Server(url, None), target, records, master, file_mb)
    if origin == "files":
        archive_all(Files(str(data), None), target, records, master, file_mb)
    spark = local_session("scale", master=master, settings=SETTINGS)
    with step("compact", records):
        done = compact(spark, CompactSpec(str(target)))
    print(f"         {done.files_before} files are {done.files_after}, {done.size_bytes_after / 1e6:,.0f} MB")
    # Into a server of its own: the audit is of the one that was archived, stopped.
    with server(directory, directory / "again") as url, step("replay", records):
        replayed = replay(spark, ReplaySpec(str(target), Server(url, None), "again"))
    assert replayed.appended == records
    with step("audit", records):
        summary = audit(spark, AuditSpec(str(data), archive=str(target)))
    [topic] = summary.topics
    print(
        f"         {topic.read:,} read + {topic.deleted:,} deleted + {topic.lost:,} lost = {topic.head_seq:,}; "
        f"{topic.archive_matched:,} archived records match; sound: {summary.sound}; "
        f"{summary.checked_bytes / 1e6:,.0f} MB of files checked"
    )
    spark.stop()
    assert summary.sound
    assert topic.archive_matched == records


def archive_all(origin: Server | Files, target: Path, records: int, master: str, file_mb: int) -> None:
    spark = local_session("scale", master=master, settings=SETTINGS)
    with step("archive", records):
        done = archive(spark, ArchiveSpec(origin, str(target), ("events",), file_mb=file_mb))
    [topic] = done.topics
    print(f"         {topic.files} files, {topic.size_bytes / 1e6:,.0f} MB, {done.commits} commits")


def fill(url: str, records: int) -> None:
    with Client(url) as client:
        for start in range(0, records, WRITE_RECORDS):
            batch = [record(number) for number in range(start, min(start + WRITE_RECORDS, records))]
            client.append_many("events", batch)


def record(number: int) -> NewRecord:
    """About 200 bytes of JSON, as an event of a shop has."""
    mixed = number * 2654435761 % 2**32
    text = (
        b'{"event":"order","sku":"SKU-%d","quantity":%d,"total":%d.%02d,"customer":"c-%d","session":"%08x%08x",'
        b'"country":"%s","note":"ordered in the shop, paid by card"}'
        % (mixed % 997, mixed % 7 + 1, mixed % 300, mixed % 100, mixed % 50021, mixed, mixed ^ number,
           (b"de", b"fr", b"it", b"us")[mixed % 4])
    )  # fmt: skip
    return NewRecord(msgspec.Raw(text), tag=f"order-{mixed % 10_000}")


@contextmanager
def server(directory: Path, data: Path) -> Iterator[str]:
    address = directory / f"{data.name}.address"
    settings = {
        "TOPICS_PORT": "0",
        "TOPICS_PORT_FILE": str(address),
        "TOPICS_DATA_DIR": str(data),
        "TOPICS_LOG": "warn",
    }
    process = subprocess.Popen([sys.executable, "-m", "topics.cli.main", "serve"], env=os.environ | settings)
    SERVERS.add(process.pid)
    try:
        while not address.exists():
            assert process.poll() is None, "the server did not start"
            time.sleep(0.05)
        yield f"http://{address.read_text().strip()}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def step(name: str, records: int) -> Iterator[None]:
    samples: list[Sample] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            samples.append(resident_bytes())

    watcher = threading.Thread(target=sample)
    watcher.start()
    began, began_cpu_s = time.monotonic(), cpu_s()
    try:
        yield
    finally:
        elapsed_s, used_s = time.monotonic() - began, cpu_s() - began_cpu_s
        over.set()
        watcher.join()
    print(
        f"{name:8} {elapsed_s:8.1f} s {records / elapsed_s:10,.0f} rows/s {records / max(used_s, 0.01):10,.0f} rows "
        f"a CPU second   MB by quarters: Python {quarters(samples, 0)}, JVM {quarters(samples, 1)}, "
        f"server {quarters(samples, 2)}; heap {heap_left()}",
        flush=True,
    )


def heap_left() -> str:
    spark = SparkSession.getActiveSession()
    if spark is None:
        return "–"
    java = spark.sparkContext._gateway.jvm.java.lang
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    return f"{(runtime.totalMemory() - runtime.freeMemory()) / 1e6:,.0f}"


def quarters(samples: list[Sample], column: int) -> str:
    parts = [samples[len(samples) * part // 4 : len(samples) * (part + 1) // 4] for part in range(4)]
    return " ".join(f"{max(sample[column] for sample in part) / 1e6:,.0f}" if part else "–" for part in parts)


def resident_bytes() -> Sample:
    """Of Python, of Java, and of the server."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    sizes = [0, 0, 0]
    for pid, name, fields in own_processes():
        kind = 2 if pid in SERVERS else 1 if name == "java" else 0
        sizes[kind] += int(fields[21]) * page_bytes
    return sizes[0], sizes[1], sizes[2]


def cpu_s() -> float:
    """What this process and its descendants have used, those that are gone included."""
    return sum(sum(map(int, fields[11:15])) for _, _, fields in own_processes()) / os.sysconf("SC_CLK_TCK")


def own_processes() -> list[tuple[int, str, list[str]]]:
    """The id, the name and the fields of /proc/PID/stat, from the state on, of this process and all its descendants."""
    found: dict[int, tuple[str, list[str]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                head, _, rest = Path(f"/proc/{entry}/stat").read_text().rpartition(")")
            except OSError:
                continue
            found[int(entry)] = head.partition("(")[2], rest.split()
    mine = {os.getpid()}
    while more := {pid for pid, (_, fields) in found.items() if int(fields[1]) in mine} - mine:
        mine |= more
    return [(pid, *found[pid]) for pid in mine if pid in found]


if __name__ == "__main__":
    main()
