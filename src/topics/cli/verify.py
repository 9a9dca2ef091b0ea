"""`topics verify`: whether a stopped server's data directory is sound.

Exit status: 0 sound, 1 problems, 2 could not be checked (all of it).
"""

import argparse
import os
from collections.abc import Sequence

import msgspec

from topics.cli.progress import ProgressLine
from topics.cli.table import aligned, counted
from topics.storage.errors import failing_as
from topics.storage.findings import Finding, Severity
from topics.storage.fs import Disk, RealDisk
from topics.storage.verify import Progress, Report, unused, verify_directory

NOTES_SHOWN_MAX = 20


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "verify",
        description="Checks every byte of a data directory that no server is using, and changes nothing. "
        "Exit status: 0 sound, 1 problems, 2 could not be checked.",
    )
    parser.add_argument("directory", metavar="DIR", help="the data directory, or a backup")
    parser.add_argument(
        "--cold",
        metavar="DIR",
        default=os.environ.get("TOPICS_COLD_DIR", ""),
        help="directory of the cold tier ($TOPICS_COLD_DIR)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    root, cold_root = os.path.abspath(args.directory), os.path.abspath(args.cold) if args.cold else ""
    progress = ProgressLine("checking")
    try:
        with failing_as(root, "checking"):
            report = verify_unused(RealDisk(), root, cold_root, progress.show)
    finally:
        progress.clear()
    print(render_json(root, report) if args.json else render_text(root, report), end="")
    if report.of(Severity.PROBLEM):
        return 1
    return 2 if report.of(Severity.UNCHECKED) else 0


def verify_unused(disk: Disk, root: str, cold_root: str, progress: Progress) -> Report:
    """Raises `DirectoryInUse` while a server runs."""
    with unused(disk, root):
        return verify_directory(disk, root, cold_root, progress)


def render_text(root: str, report: Report) -> str:
    rows: list[Sequence[str]] = [("topic", "live", "deleted", "lost", "in WAL", "segments", "problems")]
    rows += [
        (topic.name, *map(str, (topic.live, topic.deleted, topic.lost, topic.in_wal, topic.segments, topic.problems)))
        for topic in sorted(report.topics, key=lambda topic: topic.name)
    ]
    lines = [*aligned(rows), ""] if report.topics else []
    notes = report.of(Severity.NOTE)
    shown = [*report.of(Severity.PROBLEM), *report.of(Severity.UNCHECKED), *notes[:NOTES_SHOWN_MAX]]
    lines += [f"{finding.severity}: {finding.path} at byte {finding.offset}: {finding.reason}" for finding in shown]
    if len(notes) > NOTES_SHOWN_MAX:
        lines.append(f"and {len(notes) - NOTES_SHOWN_MAX} more notes (--json has all)")
    lines += [*([""] if shown else []), f"{root}: {_verdict(report)}", ""]
    return "\n".join(lines)


def render_json(root: str, report: Report) -> str:
    document = {
        "directory": root,
        "sound": report.sound,
        "snapshots": report.snapshots,
        "wal_frames": report.wal_frames,
        "checked_bytes": report.checked_bytes,
        "topics": report.topics,
        "problems": [_finding_document(finding) for finding in report.of(Severity.PROBLEM)],
        "unchecked": [_finding_document(finding) for finding in report.of(Severity.UNCHECKED)],
        "notes": [_finding_document(finding) for finding in report.of(Severity.NOTE)],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _finding_document(finding: Finding) -> dict[str, object]:
    return {"file": finding.path, "offset": finding.offset, "reason": finding.reason}


def _verdict(report: Report) -> str:
    problems, unchecked = len(report.of(Severity.PROBLEM)), len(report.of(Severity.UNCHECKED))
    if problems:
        return counted(problems, "problem")
    if unchecked:
        return "no problems, but not everything could be checked"
    return f"sound ({report.checked_bytes / 1e6:.1f} MB, {counted(report.wal_frames, 'WAL frame')} to replay)"
