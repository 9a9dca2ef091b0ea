"""Where records are read from: a running server or the files of one, with an archive of it or without. Only this module
knows which."""

from topics.spark.http_reader import ServerLog
from topics.spark.log import Log
from topics.spark.options import ReadOptions, Server


def open_log(read: ReadOptions) -> Log:
    if read.archive is None:
        return _open_origin(read)
    from topics.spark.stitched_log import StitchedLog  # noqa: PLC0415

    return StitchedLog(_open_origin(read), read.archive, read.filters)


def _open_origin(read: ReadOptions) -> Log:
    if isinstance(read.origin, Server):
        return ServerLog(read, read.origin)
    # Only here: the engine comes along with it, and every worker process would pay for importing that.
    from topics.spark.files import FilesLog  # noqa: PLC0415

    return FilesLog(read, read.origin)
