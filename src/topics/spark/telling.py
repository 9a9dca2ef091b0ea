"""How an error reaches the person who runs the query: as Spark's own exception, its message in the first line.

Spark shows an error of a worker as a traceback, with the message at its end. So for known errors, the worker, which
ends anyway, is told to show the message only. The cause is chained, and the worker's log (level DEBUG) has the
traceback.
"""

import functools
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from pyspark.errors import PySparkException

from topics.errors import TopicsError

LOGGER = logging.getLogger("topics.spark")

P = ParamSpec("P")
R = TypeVar("R")

_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
_OF_WORKERS = "PYTHON_WORKER_FACTORY_"
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class TopicsException(PySparkException):
    """An error caused by a topic, a server or an option. Its condition begins with `TOPICS_`; the error it was made
    from is its cause."""

    def __init__(self, error: TopicsError) -> None:
        condition = f"TOPICS_{_WORD.sub('_', type(error).__name__).upper()}"
        super().__init__(error.message, condition, {name: str(value) for name, value in error.detail.items()})


def is_worker() -> bool:
    return any(name.startswith(_OF_WORKERS) for name in os.environ)


@contextmanager
def telling() -> Iterator[None]:
    try:
        yield
    except TopicsError as error:
        LOGGER.debug("%s", error.message, exc_info=error)
        if is_worker():
            os.environ[_HIDE_TRACEBACK] = "1"
        raise TopicsException(error) from error


def tells(method: Callable[P, R]) -> Callable[P, R]:
    """For what Spark calls."""

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with telling():
            return method(*args, **kwargs)

    return called
