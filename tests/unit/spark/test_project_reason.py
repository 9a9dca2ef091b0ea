"""What is told of a pipeline that failed or cannot start: why, not what came of it."""

import socket

import pytest

from topics.spark.jobs import project
from topics.spark.jobs.project import ConnectPortInUse, await_connect_port, reason_of

CLOSED = (
    "pyspark.errors.exceptions.connect.SparkConnectGrpcException: [INVALID_HANDLE.SESSION_CLOSED] The handle is gone"
)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["loading", "ValueError: a mistake in gold", "  at line 1"], "a mistake in gold"),
        (["ValueError: a mistake in gold", CLOSED], "a mistake in gold"),
        ([CLOSED, "  a stack", "ValueError: a mistake in gold"], "a mistake in gold"),
        ([CLOSED], "[INVALID_HANDLE.SESSION_CLOSED] The handle is gone"),
        (["it just", "ended"], "ended"),
        ([], "it printed nothing"),
    ],
)
def test_the_reason_is_the_first_error_that_is_a_cause(lines: list[str], reason: str) -> None:
    assert reason_of(lines) == reason


def test_a_second_pipeline_on_a_machine_is_refused_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        monkeypatch.setattr(project, "CONNECT_PORT", taken.getsockname()[1])
        with pytest.raises(ConnectPortInUse, match="is in use"):
            await_connect_port(wait_s=0)
    await_connect_port(wait_s=0)
