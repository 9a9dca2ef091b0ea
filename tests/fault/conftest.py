"""Tells at the end how many points were tried."""

from collections import Counter

import pytest

_TRIED = pytest.StashKey[Counter[str]]()


@pytest.fixture
def tried(request: pytest.FixtureRequest) -> "Counter[str]":
    """Counts points by what was done at them; the totals are printed after the run."""
    return request.config.stash.setdefault(_TRIED, Counter())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for what, count in sorted(config.stash.get(_TRIED, Counter()).items()):
        terminalreporter.write_line(f"fault points tried: {count:6d} {what}")
