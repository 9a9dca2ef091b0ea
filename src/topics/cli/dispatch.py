"""From the words of a command line to its exit code: the one place that turns errors into a line on stderr.

0 done; 1 done, and the answer is no; 2 wrong arguments, or refused; 3 no server; 4 no key, or not the right one;
130 interrupted.
"""

import gc
import os
import sys
from importlib import import_module

from topics.cli import commands
from topics.cli.parser import Parser, nearest
from topics.errors import Forbidden, TopicNotFound, TopicsError, Unauthorized

REFUSED = 2
NO_SERVER = 3
NO_ACCESS = 4
INTERRUPTED = 130


def dispatch(words: list[str]) -> int:
    words = _taking_url(words)
    name = words[0] if words else ""
    module = commands.MODULES.get(name)
    if module is None:
        what = f"there is no command {name}{nearest(name, commands.names())}" if name else "name a command"
        print(f"topics: {what} (see topics --help)", file=sys.stderr)
        return REFUSED
    gc.disable()  # nothing is garbage while modules are loaded: looking for it is a twelfth of a server's start
    parser = Parser(prog="topics")
    # With `prog`, argparse does not format a usage line to find it out, which takes four more modules.
    import_module(module).add_parser(parser.add_subparsers(dest="command", required=True, prog="topics"))
    gc.freeze()  # nor later: the first collection would go through all of it, another twelfth
    gc.enable()
    chosen = parser.parse_args(words)
    try:
        status: int = chosen.run(chosen)
        sys.stdout.flush()
    except TopicsError as error:
        code, advice = judged(error)
        print(f"topics: {error.message}{advice}", file=sys.stderr)
        return getattr(chosen, "error_status", code)  # a command may have one of its own for all errors
    except KeyboardInterrupt:
        if getattr(chosen, "until_interrupted", False):  # that is how it ends
            return 0
        print("topics: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def judged(error: TopicsError) -> tuple[int, str]:
    """The exit code an error stands for, and the next step where its message has none."""
    from topics.client.errors import OutcomeUnknown, ServerUnreachable  # noqa: PLC0415 (only who failed waits for it)

    if isinstance(error, ServerUnreachable) and not isinstance(error, OutcomeUnknown):
        return NO_SERVER, "; start a server with `topics serve`, or name another with --url or TOPICS_URL"
    if isinstance(error, Unauthorized):
        return NO_ACCESS, f"; {'correct' if os.environ.get('TOPICS_API_KEY') else 'put your key into'} TOPICS_API_KEY"
    if isinstance(error, Forbidden):
        return NO_ACCESS, "; use a key that may, in TOPICS_API_KEY"
    if isinstance(error, TopicNotFound):
        return REFUSED, "; `topics ls` shows those there are"
    return REFUSED, ""


def _taking_url(words: list[str]) -> list[str]:
    """`--url` may stand before the command, too: for aliases. It is then the default of the option behind it."""
    while words and words[0].startswith("--url"):
        option, equals, value = words[0].partition("=")
        if option != "--url":
            break
        if not equals:
            value, words = (words[1] if len(words) > 1 else ""), words[1:]
        os.environ["TOPICS_URL"] = value
        words = words[1:]
    return words
