"""A process that forks: the child has a client of its own, and no producer."""

import os
from collections.abc import Callable

from topics.client.errors import ProducerForked
from topics.testing import server


def in_a_child(work: Callable[[], None]) -> int:
    """The exit status of a forked process: 0 when the work was done."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_takes_the_client_along_and_not_the_producer() -> None:
    with server() as running, running.client() as client:
        with client.producer("forked") as producer:
            producer.append("parent").result()

            def child() -> None:
                client.append("forked", "child")  # over a connection of its own
                try:
                    producer.append("lost")
                except ProducerForked:
                    producer.close()  # has nothing to close
                    return
                raise AssertionError("it took a record it will never send")

            assert in_a_child(child) == 0
            producer.append("parent again")
        assert [event.data for event in client.read("forked", losses="raise")] == ["parent", "child", "parent again"]
