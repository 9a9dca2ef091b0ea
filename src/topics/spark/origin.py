"""Opens the log that a query reads: a running server or its files, with or without an archive. Only this module knows
which."""

from topics.spark.columns import ALL_FIELDS
from topics.spark.log import Log
from topics.spark.options import ReadOptions, Server


def open_log(read: ReadOptions, fields: frozenset[str] = ALL_FIELDS) -> Log:
    """`fields`: the fields of records that are wanted; others may be left null."""
    filters = read.filters
    fields |= {*(("node",) if filters.node else ()), *(("tag",) if filters.match is not None else ())}
    if read.archive is None:
        return _open_origin(read, fields)
    from topics.spark.stitched_log import StitchedLog  # noqa: PLC0415

    return StitchedLog(_open_origin(read, fields), read.archive, read.filters)


def _open_origin(read: ReadOptions, fields: frozenset[str]) -> Log:
    if isinstance(read.origin, Server):
        from topics.spark.http_reader import ServerLog  # noqa: PLC0415

        return ServerLog(read, read.origin, fields)
    # Imported late: one brings the client along, the other the engine, and every worker process would pay for both.
    from topics.spark.files import FilesLog  # noqa: PLC0415

    return FilesLog(read, read.origin, fields)
