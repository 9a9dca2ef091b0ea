"""Files into topics and topics into files: every row once and in order, whatever is repeated; losses told."""

import errno
import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conformance.client import Topic
from spark.archives import Bar
from spark.readings import driver_that_holds, history
from spark.server import RestartableServer
from topics import limits
from topics.spark.errors import InvalidOption
from topics.spark.jobs.export_topic import DirectoryExists, ExportSpec, Loss, NoRoom, check, export_topic
from topics.spark.jobs.import_files import ImportSpec, ImportSummary, import_files
from topics.spark.jobs.import_rows import Fields
from topics.spark.jobs.progress import Silent
from topics.spark.jobs.source_files import CsvOptions, FileFormat, FileUnreadable, find_files
from topics.spark.options import Server


def spec_of(server: RestartableServer, topic: str, *files: Path, **changes: Any) -> ImportSpec:
    spec = ImportSpec(
        server=Server(server.url, None),
        files=find_files([str(file) for file in files], None),
        into=topic,
        fields=Fields(),
        csv=CsvOptions(),
        rejects=str(files[0].parent / "rejects.jsonl"),
    )
    return replace(spec, **changes)


def run(spark: SparkSession, spec: ImportSpec) -> ImportSummary:
    return import_files(spark, spec, Silent())


def payloads(topic: Topic) -> list[Any]:
    records, losses = history(topic)
    assert losses == []
    return [records[seq]["data"] for seq in sorted(records)]


def write_lines(path: Path, *lines: object) -> Path:
    path.write_text("".join(line if isinstance(line, str) else f"{json.dumps(line)}\n" for line in lines))
    return path


def rejects(spec: ImportSpec) -> list[tuple[int, str]]:
    found = [json.loads(line) for line in Path(spec.rejects).read_text().splitlines()]
    return [(reject["row"], reject["reason"]) for reject in found]


def test_a_repeated_import_adds_nothing(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    first = write_lines(tmp_path / "a.jsonl", *range(7000))
    second = write_lines(tmp_path / "b.jsonl", {"n": 1}, {"n": 2})
    spec = spec_of(server, topic.name, first, second)
    summary = run(spark, spec)
    assert (summary.imported, summary.already_there, summary.head_seq) == (7002, 0, 7002)
    again = run(spark, spec)
    assert (again.imported, again.already_there, again.head_seq) == (0, 7002, 7002)
    assert payloads(topic) == [*range(7000), {"n": 1}, {"n": 2}]


def test_a_packed_file_larger_than_the_driver_may_hold_is_imported_in_order(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(5)
    monkeypatch.setattr(limits, "IMPORT_PART_BYTES", 4 << 20)
    rows = [{"n": n, "note": chance.randbytes(25_000).hex()} for n in range(500)]
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", compresslevel=1) as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)
    spec = spec_of(server, topic.name, tmp_path / "a.jsonl.gz")
    with driver_that_holds(spark, "16m"):
        assert run(spark, spec).imported == len(rows)
        assert run(spark, spec).imported == 0
    assert payloads(topic) == rows


def test_what_was_deleted_is_imported_again_and_said_to_be(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    spec = spec_of(server, topic.name, write_lines(tmp_path / "a.jsonl", {"n": 1}, {"n": 2}))
    assert run(spark, spec).imported == 2
    topic.delete_records(before_seq=100)
    again = run(spark, spec)
    assert (again.imported, again.already_there, again.head_seq) == (2, 0, 4)
    assert payloads(topic) == [{"n": 1}, {"n": 2}]


def test_the_same_content_is_known_by_any_name_and_a_new_file_is_not(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(3)
    run(spark, spec_of(server, topic.name, write_lines(tmp_path / "a.jsonl", 10, 11)))
    summary = run(
        spark,
        spec_of(
            server, topic.name, write_lines(tmp_path / "b.jsonl", 10, 11), write_lines(tmp_path / "c.jsonl", 11, 10)
        ),
    )
    assert [file.imported for file in summary.files] == [0, 2]
    assert payloads(topic) == [0, 1, 2, 10, 11, 11, 10]


def test_an_import_that_ended_in_the_middle_goes_on_behind_the_last_row(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "a.jsonl", *range(20))
    other = server.topic(f"{topic.name}.whole")
    run(spark, spec_of(server, other.name, file))
    records, _ = history(other)
    # As a killed import would have left it: some rows, and no cursor.
    topic.write(*({"data": records[seq]["data"], "meta": records[seq]["meta"]} for seq in range(1, 13)))
    summary = run(spark, spec_of(server, topic.name, file))
    assert (summary.imported, summary.already_there) == (8, 12)
    assert payloads(topic) == list(range(20))


def test_bad_rows_are_left_out_with_their_reasons(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"sku":"A"}\nnope\n\n{"sku":"\xff"}\n{"sku":{}}\n{"sku":"B"}\n')
    spec = spec_of(server, topic.name, file, fields=Fields(tag="sku"))
    summary = run(spark, spec)
    assert (summary.imported, summary.rejected, summary.rejects) == (2, 3, spec.rejects)
    assert [row for row, _ in rejects(spec)] == [2, 4, 5]
    records, _ = history(topic)
    assert [record["$tag"] for record in records.values()] == ["A", "B"]
    assert run(spark, spec).rejected == 3


def test_rows_with_a_key_are_added_once_across_files(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    first = write_lines(tmp_path / "a.jsonl", *({"id": n % 8, "n": n} for n in range(10)))
    second = write_lines(tmp_path / "b.jsonl", {"id": 7, "n": 10}, {"id": 8, "n": 11}, {"n": 12})
    spec = spec_of(server, topic.name, first, second, fields=Fields(key="id"))
    summary = run(spark, spec)
    assert [(file.imported, file.already_there, file.duplicates, file.rejected) for file in summary.files] == [
        (8, 0, 2, 0),
        (1, 1, 0, 1),
    ]
    assert rejects(spec) == [(3, "has no key id")]
    assert [data["n"] for data in payloads(topic)] == [*range(8), 11]
    assert run(spark, spec).imported == 0


def test_csv_rows_that_do_not_fit_are_rejected(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "a.csv", 'id;name\n1;"a\nb"\nx;c\n3\n4;d;e\n5;"say ""hi"""\n6;\n')
    csv = CsvOptions(delimiter=";", schema="id INT, name STRING")
    spec = spec_of(server, topic.name, file, csv=csv)
    assert run(spark, spec).imported == 3
    assert payloads(topic) == [{"id": 1, "name": "a\nb"}, {"id": 5, "name": 'say "hi"'}, {"id": 6, "name": None}]
    assert rejects(spec) == [(row, "does not fit the columns id int, name string") for row in (2, 3, 4)]


def test_a_schema_that_is_not_the_header_s_is_refused(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "a.csv", "id,name\n1,a\n")
    with pytest.raises(FileUnreadable, match="its header is id, name, but the schema has name, id"):
        run(spark, spec_of(server, topic.name, file, csv=CsvOptions(schema="name STRING, id INT")))
    with pytest.raises(InvalidOption, match="option schema"):
        run(spark, spec_of(server, topic.name, file, csv=CsvOptions(schema="id WRONG")))
    assert not topic.exists()


def test_a_file_that_is_not_what_it_says_is_refused(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "a.parquet", "no parquet\n")
    with pytest.raises(FileUnreadable, match=r"a\.parquet: "):
        run(spark, spec_of(server, topic.name, file))
    assert not topic.exists()


@pytest.mark.parametrize("kind", FileFormat)
def test_what_is_exported_can_be_imported(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path, kind: FileFormat
) -> None:
    topic.write({"data": {"a": [1.0, "x\ny"]}, "tag": "t", "node": "n"}, {"data": "text,\"'", "meta": {"k": "v"}})
    topic.fill(40)
    target = tmp_path / "out"
    summary = export_topic(spark, ExportSpec(Server(server.url, None), topic.name, str(target), kind), Silent())
    assert (summary.records, summary.from_seq, summary.to_seq, summary.losses) == (42, 1, 42, [])
    assert {path.suffix for path in target.glob("part-*")} == {f".{kind}"}

    copy = server.topic(f"{topic.name}.{kind}")
    fields = Fields(data="data", tag="tag", node="node")
    run(spark, spec_of(server, copy.name, target, fields=fields, rejects=str(tmp_path / "rejects")))
    records, _ = history(copy)
    originals, _ = history(topic)
    if kind is FileFormat.JSONL:
        assert [record["data"] for record in records.values()] == [record["data"] for record in originals.values()]
    else:  # there the payload is a column of text
        assert [json.loads(record["data"]) for record in records.values()] == [
            record["data"] for record in originals.values()
        ]
    assert (records[1]["$tag"], records[1]["$node"]) == ("t", "n")


def test_an_export_tells_what_is_lost_and_not_what_was_deleted(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.configure(cap_records=10)
    topic.write(*({"data": n, "tag": f"t{n % 2}"} for n in range(20)))
    topic.delete_records(match="t1")
    spec = ExportSpec(Server(server.url, None), topic.name, str(tmp_path / "out"))
    summary = export_topic(spark, spec, Silent())
    assert summary.records == 5
    [loss] = summary.losses
    assert (loss.gap_from, loss.reason) == (1, "cap")
    assert json.loads((tmp_path / "out" / "_losses.jsonl").read_text()) == {
        "gap_from": 1,
        "gap_to": loss.gap_to,
        "reason": "cap",
    }
    assert loss == Loss(1, loss.gap_to, "cap")


def test_an_export_that_fails_leaves_nothing(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.fill(5)
    spec = ExportSpec(Server(server.url, None), topic.name, str(tmp_path / "out"))
    monkeypatch.setattr("topics.spark.jobs.export_topic.merged", lambda losses: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export_topic(spark, spec, Silent())
    assert list(tmp_path.iterdir()) == []


def test_an_export_to_a_full_disk_says_so_and_leaves_nothing(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    topic.fill(5)
    monkeypatch.setattr("topics.spark.jobs.export_topic.merged", full)
    with pytest.raises(NoRoom):
        export_topic(spark, ExportSpec(Server(server.url, None), topic.name, str(tmp_path / "out")), Silent())
    assert list(tmp_path.iterdir()) == []


def test_an_export_overwrites_nothing(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(5)
    with pytest.raises(DirectoryExists):
        export_topic(spark, ExportSpec(Server(server.url, None), topic.name, str(tmp_path)), Silent())


def test_an_export_that_cannot_be_is_refused_before_spark_starts(
    server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    topic.fill(5)
    spec = ExportSpec(Server(server.url, None), topic.name, str(tmp_path / "out"))
    check(spec)
    for wrong, said in (
        ({"from_seq": 0}, "seqs begin at 1"),
        ({"from_seq": 6}, "beyond the end"),
        ({"to": "/proc/nope"}, "nothing can be written in /proc"),
    ):
        with pytest.raises(InvalidOption, match=said):
            check(replace(spec, **wrong))


def test_the_bar_of_an_import_with_rejects_and_blank_rows_is_full_at_the_end(
    spark: SparkSession, server: RestartableServer, topic: Topic, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "a.jsonl", {"k": 1}, "no json\n", "\n", {"k": 2}, {"k": 1})
    for fields in (Fields(), Fields(key="k")):
        bar = Bar()
        import_files(spark, spec_of(server, topic.name, file, fields=fields), bar)
        assert bar.is_full, bar.parts
        assert len(bar.parts) == 2
