"""`topics` itself: its help, what it says of words it does not know, and what it takes to start."""

import argparse
import os
import subprocess
import sys
from importlib import import_module

import pytest

from topics.cli import commands
from topics.cli.main import main
from topics.cli.parser import Parser
from topics.version import VERSION

# What help and version may not wait for: the server, the client, Spark, and the libraries of any of them.
HEAVY = ("asyncio", "argparse", "msgspec", "socket", "uvloop", "httptools", "websockets", "pyspark", "json")
COLD_COMMANDS = [name for name in commands.names() if name not in {"serve", "bench", "pipeline"}]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        status = main(list(words))
    except SystemExit as end:
        status = int(str(end.code))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_without_a_command_it_shows_its_help_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys) == (2, "", commands.overview())


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_lists_every_command_in_its_group(capsys: pytest.CaptureFixture[str], word: str) -> None:
    status, out, err = said(capsys, word)
    assert (status, err) == (0, "")
    for title, group in commands.GROUPS.items():
        assert f"\n{title}\n" in out
        for name, (_, what) in group.items():
            assert any(line.split() == [name, *what.split()] for line in out.splitlines())
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 100


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version") == (0, f"topics {VERSION}\n", "")


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_import_nothing_to_speak_of(word: str) -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from topics.cli.main import main\n"
        f"main([{word!r}])\n"
        f"found = [name for name in {HEAVY!r} if name in sys.modules and name not in before]\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('topics.')}\n"
        "own = sorted(rooms - {'cli', 'version'})\n"
        "sys.exit(str(found + own) if found or own else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", COLD_COMMANDS)
def test_the_help_of_a_command_imports_neither_server_nor_spark(name: str) -> None:
    code = (
        "import sys\nfrom topics.cli.main import main\n"
        f"try: main([{name!r}, '--help'])\nexcept SystemExit: pass\n"
        "heavy = ('topics.server', 'topics.engine', 'uvloop', 'pyspark', 'topics.client.sync_client')\n"
        "found = [name for name in heavy if name in sys.modules]\n"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", commands.names())
def test_every_command_has_a_help_with_a_description(capsys: pytest.CaptureFixture[str], name: str) -> None:
    status, out, err = said(capsys, "help", name)
    assert (status, err) == (0, "")
    assert out.startswith(f"usage: topics {name}")
    assert "\n\n" in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["tial", "orders"], "topics: there is no command tial; did you mean tail? (see topics --help)"),
        (["xyzzy"], "topics: there is no command xyzzy (see topics --help)"),
        (["queue", "calim", "q"], "topics queue: argument ACTION: 'calim' is not one of claim, ack, nack, extend, "
         "peek, leases, redrive; did you mean claim? (see topics queue --help)"),
        (["tail", "a", "--sinse"],
         "topics tail: there is no option --sinse; did you mean --since? (see topics tail --help)"),
        (["rm"], "topics rm: the following arguments are required: TOPIC (see topics rm --help)"),
        (["ls", "a", "b"], "topics ls: one word too many: b (see topics ls --help)"),
        (["queue", "ack", "q", "1", "--node", "me", "x"],
         "topics queue ack: argument SEQ: 'x' is not a whole number (see topics queue ack --help)"),
        (["tail", "a", "--since", "soon"], "topics tail: argument --since: 'soon' is not a duration; write it as "
         "500ms, 30s, 15m, 2h or 7d (see topics tail --help)"),
        (["--url", "http://x"], "topics: name a command (see topics --help)"),
    ],
)  # fmt: skip
def test_what_it_does_not_know_is_told_in_one_line_with_what_was_meant(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], line: str
) -> None:
    monkeypatch.setenv("TOPICS_URL", "")
    assert said(capsys, *words) == (2, "", f"{line}\n")


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="topics")
    import_module(commands.MODULES[words[0]]).add_parser(parser.add_subparsers(dest="command", required=True))
    return parser.parse_args(words)


def test_words_may_come_behind_an_option() -> None:
    put = parsed("put", "orders", "--tag", "vip:7", '{"sku":1}', "2")
    assert (put.topic, put.tag, put.data) == ("orders", "vip:7", ['{"sku":1}', "2"])
    assert parsed("put", "orders", "1", "--no-create", "2").data == ["1", "2"]
    assert parsed("tail", "orders", "-f", "chat:*").topics == ["orders", "chat:*"]
    assert parsed("queue", "ack", "jobs", "1", "--node", "me", "2").seqs == [1, 2]


@pytest.mark.parametrize(
    "words", [["ls"], ["tail", "orders"], ["put", "orders", "1"], ["top", "--once"], ["show", "a"]]
)
def test_a_server_that_is_not_there_says_how_to_start_one(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    status, out, err = said(capsys, *words, "--url", "http://127.0.0.1:9")
    assert (status, out) == (3, "")
    assert err.startswith("topics: http://127.0.0.1:9 does not answer: Connection refused")
    assert err.endswith("; start a server with `topics serve`, or name another with --url or TOPICS_URL\n")
    assert err.count("\n") == 1


def test_the_url_may_stand_before_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICS_URL", "http://127.0.0.1:8")
    assert "http://127.0.0.1:9 does not answer" in said(capsys, "--url", "http://127.0.0.1:9", "ls")[2]
    assert "http://127.0.0.1:10 does not answer" in said(capsys, "--url=http://127.0.0.1:10", "ls")[2]
    assert os.environ["TOPICS_URL"] == "http://127.0.0.1:10"


def test_every_module_of_the_table_is_there() -> None:
    for module in commands.MODULES.values():
        assert callable(import_module(module).add_parser)
