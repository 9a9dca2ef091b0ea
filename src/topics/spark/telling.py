"""Shows an error to the person who runs the query: as Spark's own exception, with the message in its first line.

Spark shows a worker's error as a traceback with the message at the end. For known errors the worker is therefore told
to show only the message. The cause is chained, and the worker's log has the traceback at level DEBUG.
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
    """An error caused by a topic, a server or an option. Its condition begins with `TOPICS_`; the original error is its
    cause."""

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
    """Decorates methods that Spark calls: a `TopicsError` leaves them as a `TopicsException`."""

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with telling():
            return method(*args, **kwargs)

    return called
