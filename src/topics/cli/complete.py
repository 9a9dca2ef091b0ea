"""`topics complete -- WORD…`: what the last word may become. Shells call it (see `completion`); people never do.

A line for each: the word, a tab, and what it means. Silent about everything that goes wrong: a shell that completes has
no place for errors.
"""

import argparse
from collections.abc import Iterable, Iterator
from importlib import import_module

from topics.cli import commands
from topics.cli.parser import Commands, Parser
from topics.errors import TopicsError

Candidate = tuple[str, str]
NAMES_OF = {
    "TOPIC": "topics",
    "QUEUE": "topics",
    "PREFIX": "topics",
    "SOURCE": "topics",
    "DEST": "topics",
    "ROUTER": "routers",
}
TOPICS_SHOWN_MAX = 1000


def add_parser(parsers: Commands) -> None:
    parser = parsers.add_parser("complete", description="Asked by the completion of shells.")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    for word, what in candidates(words or [""]):
        print(f"{word}\t{what}")
    return 0


def candidates(words: list[str]) -> list[Candidate]:
    *before, partial = words
    found = _commands() if not before else _within(before, partial)
    return [(word, what) for word, what in found if word.startswith(partial)]


def _commands() -> Iterator[Candidate]:
    for group in commands.GROUPS.values():
        yield from ((name, what) for name, (_, what) in group.items())


def _within(before: list[str], partial: str) -> Iterable[Candidate]:
    module = commands.MODULES.get(before[0])
    if module is None or "--" in before:
        return ()
    root = Parser(prog="topics")
    import_module(module).add_parser(root.add_subparsers())
    parser: argparse.ArgumentParser = root
    positionals = 0
    awaited: argparse.Action | None = None
    for word in before:
        choices = _actions_of(parser)
        if awaited is not None:
            awaited = None
        elif word.startswith("-"):
            option = parser._option_string_actions.get(word)
            awaited = option if option is not None and option.nargs is None else None
        elif choices is not None and word in choices:
            parser, positionals = choices[word], 0
        else:
            positionals += 1
    if awaited is not None:
        return _values(awaited)
    if partial.startswith("-"):
        return _options(parser)
    choices = _actions_of(parser)
    if choices is not None:
        return _sub_commands(parser)
    arguments = parser._get_positional_actions()
    if not arguments or (positionals >= len(arguments) and arguments[-1].nargs not in ("*", "+")):
        return ()
    return _values(arguments[min(positionals, len(arguments) - 1)])


def _actions_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser] | None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return None


def _sub_commands(parser: argparse.ArgumentParser) -> Iterator[Candidate]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from ((choice.dest, choice.help or "") for choice in action._choices_actions)


def _options(parser: argparse.ArgumentParser) -> Iterator[Candidate]:
    for option, action in parser._option_string_actions.items():
        if option.startswith("--"):
            yield option, (action.help or "").replace("\n", " ")


def _values(action: argparse.Action) -> Iterable[Candidate]:
    if action.choices is not None:
        return [(str(choice), "") for choice in action.choices]
    kind = NAMES_OF.get(action.metavar) if isinstance(action.metavar, str) else None
    return _names(kind) if kind else ()


def _names(kind: str) -> list[Candidate]:
    from itertools import islice  # noqa: PLC0415

    from topics.cli.connection import connect_briefly  # noqa: PLC0415

    try:
        with connect_briefly() as client:
            if kind == "topics":
                return [
                    (topic.topic, f"{topic.count:,} records") for topic in islice(client.topics(), TOPICS_SHOWN_MAX)
                ]
            return [(router.router, f"{router.source} to {router.dest}") for router in client.routers()]
    except TopicsError:
        return []
