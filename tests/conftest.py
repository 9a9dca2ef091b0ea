"""What holds for every test."""

import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from conformance.process import ServerProcess

# How long an example takes says something about the machine and what else it does, nothing about the code.
settings.register_profile("topics", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("topics")

# A shell starts what it runs in the background with Ctrl-C ignored, and every process a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


LOG_LINES_SHOWN = 30


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the servers that ran beside it have logged: the next run may not fail."""
    report = yield
    if report.failed:
        for server in ServerProcess.running:
            lines = server.log().splitlines()[-LOG_LINES_SHOWN:]
            report.sections.append((f"log of the server at {server.api.port}", "\n".join(lines)))
    return report
