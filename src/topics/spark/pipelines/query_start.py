"""Streaming queries start one after the other.

A source in Python is a process of its own, and Spark gives it ten seconds, fixed, from its start to its first word. It
needs one second of a core; several at once, or a busy machine, take all of the ten, and each that misses them is a
failed run that makes the next ones more likely to fail.
"""

import threading

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

LOOK_S = 0.05
_starting = threading.Lock()


def start_query(writer: DataStreamWriter) -> StreamingQuery:
    """Returns when the query has its source, or has failed."""
    with _starting:
        query = writer.start()
        while query.isActive and str(query.status["message"]).startswith("Initializing"):
            threading.Event().wait(LOOK_S)
    return query
