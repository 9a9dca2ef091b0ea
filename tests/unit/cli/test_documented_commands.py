"""Every `topics` command that a document shows and no test runs is one that the command line takes."""

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from acceptance.document_commands import blocks_of
from topics.cli import commands
from topics.cli.parser import Parser

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
SHELL = ("sh", "bash", "")  # those of kind `console` are all run, and some show what is refused
SETTING = re.compile(r"\w+=.*", re.DOTALL)
NAME = re.compile(r"[a-z-]")
BETWEEN_COMMANDS = {"|", "||", "&", "&&", ";", "(", ")"}
LEFT_OUT = re.compile(r"…|\[")  # of a synopsis


def commands_in(text: str) -> Iterator[list[str]]:
    """The words behind each `topics` of a document's shell blocks."""
    for block in blocks_of(text, *SHELL):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            shown = line.removeprefix("$ ")
            if "topics " not in shown or (shown == line and block.startswith("$ ")):
                continue
            if LEFT_OUT.search(shown.partition(" # ")[0]):
                continue
            yield from commands_of(shown)


def commands_of(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = [*lexer, ";"]
    except ValueError:
        return  # a quote that ends on a later line
    while words:
        end = next(at for at, word in enumerate(words) if word in BETWEEN_COMMANDS)
        command, words = words[:end], words[end + 1 :]
        while command and SETTING.fullmatch(command[0]):
            del command[0]
        if redirected := [at for at, word in enumerate(command) if re.fullmatch(r"[<>]+", word)]:
            del command[redirected[0] :]
        if command[:1] == ["topics"] and NAME.match(" ".join(command[1:2])):  # a row of a table has a figure there
            yield command[1:]


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says of these words without running them, or nothing."""
    if words[0] not in commands.MODULES:
        return f"there is no command {words[0]}"
    parser = Parser(prog="topics")
    import_module(commands.MODULES[words[0]]).add_parser(parser.add_subparsers(dest="command", required=True))
    try:
        parser.parse_args(words)
    except SystemExit:
        return capsys.readouterr().err
    return ""


def test_every_command_a_document_shows_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    shown = [(path.name, words) for path in DOCUMENTS for words in commands_in(path.read_text())]
    assert len(shown) > 30
    assert [(name, said) for name, words in shown if (said := complaint(words, capsys))] == []


def test_a_command_that_is_not_taken_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint(["put", "orders", "1"], capsys) == ""
    assert "--tagg" in complaint(["put", "orders", "1", "--tagg", "a"], capsys)
    assert complaint(["pt", "orders"], capsys) == "there is no command pt"


def test_commands_are_found_wherever_a_line_has_them() -> None:
    text = """
```sh
$ seq 3 | topics put orders --tag a > out; echo topics put
orders: wrote topics
```
```bash
A=1 topics serve  # topics serve
topics ls && topics \\
  top
topics tail [-f] …
```
```
  topics / checkout = 1.0
  topics  30 977
```
```json
topics rm
```
"""
    assert list(commands_in(text)) == [["put", "orders", "--tag", "a"], ["serve"], ["ls"], ["top"]]
