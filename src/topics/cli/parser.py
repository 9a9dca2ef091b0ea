"""How arguments are read: argparse, with errors of one line that say what was meant, and examples in the help."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    # What `add_parser` of a command is handed.
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = argparse._SubParsersAction

USAGE = 2
EXAMPLES = "examples:\n"


def examples(*lines: str) -> str:
    """The epilog of a help text."""
    return EXAMPLES + "\n".join(f"  {line}" for line in lines)


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing where nothing known is close."""
    from difflib import get_close_matches  # noqa: PLC0415 (only who mistyped waits for it)

    found = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


class Formatter(argparse.HelpFormatter):
    """Wraps descriptions and leaves examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(EXAMPLES):
            return "".join(f"{indent}{line}" for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """The parser of `topics` and of each of its commands."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("formatter_class", Formatter)
        super().__init__(*args, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """A parser without subcommands is the last to see a word: what it does not know is an error."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            if self._takes(unknown, found):
                return found, []
            word = unknown[0]
            options = [option for option in self._option_string_actions if option.startswith("--")]
            if word.startswith("-"):
                self.error(f"there is no option {word}{nearest(word.partition('=')[0], options)}")
            self.error(f"one word too many: {word}")
        return found, unknown

    def _takes(self, words: list[str], found: argparse.Namespace) -> bool:
        """Words behind an option, as in `put orders --tag vip '{"sku":1}'`: argparse fills a list of words only once,
        before the first option. Adds them to the list, if there is one."""
        positionals = self._get_positional_actions()
        if not positionals or positionals[-1].nargs not in ("*", "+") or any(word.startswith("-") for word in words):
            return False
        last = positionals[-1]
        try:
            more = [self._get_value(last, word) for word in words]
        except argparse.ArgumentError as error:
            self.error(str(error))
        setattr(found, last.dest, [*getattr(found, last.dest), *more])
        return True

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(
                action, f"{value!r} is not one of {', '.join(choices)}{nearest(value, choices)}"
            )
