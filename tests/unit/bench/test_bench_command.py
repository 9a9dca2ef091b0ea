"""Options with bounds, and no load on anything but loopback unless asked."""

import argparse

import pytest

from topics.bench.command import add_parser
from topics.bench.errors import BenchError
from topics.bench.targets import target_at


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    return parser.parse_args(["bench", *words])


def test_without_words_everything_is_measured() -> None:
    arguments = parse()
    assert (arguments.workload, arguments.targets) == ("all", ("topics", "empty", "redis", "nats"))
    assert (arguments.connections, arguments.rounds, arguments.seconds) == (16, 3, 2.0)
    assert callable(arguments.run)


@pytest.mark.parametrize(
    "words",
    [
        ["unheard-of"],
        ["--connections", "0"],
        ["--connections", "100000"],
        ["--seconds", "0"],
        ["--seconds", "1e9"],
        ["--seconds", "nan"],
        ["--rounds", "many"],
        ["--targets", "topics,other"],
        ["--durability", "stone"],
    ],
)
def test_an_option_out_of_bounds_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(*words)
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://example.org:4000", "http://10.0.0.1:4000", "http://127.0.0.1.example.org"])
def test_a_remote_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(BenchError, match="not a loopback address"):
        target_at(url, allow_remote=False, api_key=None)


@pytest.mark.parametrize("url", ["https://127.0.0.1:4000", "127.0.0.1:4000", "http://"])
def test_a_url_that_is_not_plain_http_is_refused(url: str) -> None:
    with pytest.raises(BenchError, match="expected http://host:port"):
        target_at(url, allow_remote=False, api_key=None)
