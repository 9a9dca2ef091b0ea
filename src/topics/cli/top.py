"""`topics top`: a live screen of the whole server. One cheap request per refresh, which does not count as a read of any
topic."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING

from topics.cli.connection import add_options, connect, overviews
from topics.cli.output import Paint, Style, clipped, harmless, print_json
from topics.cli.parser import Commands, examples
from topics.cli.top_screen import Look, Order, lines_of, rows_of
from topics.cli.values import duration_ms
from topics.errors import TopicsError

if TYPE_CHECKING:
    from topics.client.sync_client import Client

EVERY_MS_DEFAULT = 1000
EVERY_MS_MIN = 100
OPEN_SCREEN = "\x1b[?1049h\x1b[?25l"
CLOSE_SCREEN = "\x1b[?25h\x1b[?1049l"
HOME, END_OF_LINE, BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "top",
        description="A live screen of rates, queues, lag, losses and the server itself. Losses since the last refresh "
        "are marked in red. Keys: q quits, s sorts by something else, p pauses.",
        epilog=examples(
            "topics top",
            "topics top chat: --sort lag --every 5s",
            "topics top --once                        # one screen, for a log or a mail",
            "topics top --json | jq .server.loop      # one object per refresh",
        ),
    )
    parser.add_argument(
        "prefix", metavar="PREFIX", nargs="?", default="", help="only topics whose names begin with this"
    )
    parser.add_argument(
        "--every", type=duration_ms, default=EVERY_MS_DEFAULT, metavar="TIME", help="time between refreshes (1s)"
    )
    parser.add_argument("--sort", choices=tuple(Order), default=Order.RATE, help="(rate)")
    parser.add_argument("--once", action="store_true", help="print one screen and exit")
    add_options(parser)
    parser.set_defaults(run=run, until_interrupted=True)


def run(args: argparse.Namespace) -> int:
    args.every = max(args.every, EVERY_MS_MIN)
    with connect(args) as client:
        live = sys.stdout.isatty() and sys.stdin.isatty() and not args.json and not args.once
        Top(args, client).on_screen() if live else Top(args, client).as_text()
    return 0


class Top:
    def __init__(self, args: argparse.Namespace, client: "Client") -> None:
        self._args = args
        self._client = client
        self._order = Order(args.sort)
        self._paint = Paint(sys.stdout)

    def as_text(self) -> None:
        """One screen after the other, for pipes. The first has no rates, so it is not shown."""
        before = self._look()
        wait = Event()
        while not wait.wait(self._args.every / 1000):
            now = self._look()
            if self._args.json:
                rates = {row.topic.topic: round(row.rate, 3) for row in rows_of(now, before)}
                print_json({"server": now.server, "topics": list(now.topics.values()), "rates": rates})
            else:
                size = os.terminal_size((100, 10_000))
                print("\n".join(self._lines(now, before, size, keys=False)), flush=True)
            if self._args.once:
                return
            before = now

    def on_screen(self) -> None:
        before, now = None, self._look()  # outside: a server that is not there is an error, not a screen
        paused = False
        with _screen() as keys:
            self._draw(self._lines(now, before, _size(), keys=True))
            while True:
                key = _next(keys, self._args.every / 1000)
                if key in {"q", "Q"}:
                    return
                if key in {"p", "P"}:
                    paused = not paused
                if key in {"s", "S"}:
                    orders = list(Order)
                    self._order = orders[(orders.index(self._order) + 1) % len(orders)]
                elif not paused and not key:
                    try:
                        before, now = now, self._look()
                    except TopicsError as error:
                        message = clipped(f"✗ {harmless(error.message)}; trying again", _size().columns)
                        self._draw([self._paint(message, Style.RED)], whole=False)
                        continue
                lines = self._lines(now, before, _size(), keys=True)
                if paused:
                    lines[-1] = self._paint("paused; p goes on", Style.YELLOW)
                self._draw(lines)

    def _look(self) -> Look:
        pages = list(overviews(self._client, self._args.prefix.removesuffix("*")))
        return Look(pages[0].server, {topic.topic: topic for page in pages for topic in page.topics})

    def _lines(self, now: Look, before: Look | None, size: os.terminal_size, *, keys: bool) -> list[str]:
        return lines_of(now, before, self._client.url, size.columns, size.lines, self._order, self._paint, keys=keys)

    def _draw(self, lines: list[str], *, whole: bool = True) -> None:
        body = "\r\n".join(f"{line}{END_OF_LINE}" for line in lines)
        sys.stdout.write(f"{HOME}{body}{BELOW if whole else ''}")
        sys.stdout.flush()


def _size() -> os.terminal_size:
    try:
        return os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return os.terminal_size((80, 24))


def _next(keys: "Queue[str]", seconds: float) -> str:
    """The key that was pressed, or nothing when it is time to look again."""
    try:
        return keys.get(timeout=seconds)
    except Empty:
        return ""


@contextmanager
def _screen() -> "Iterator[Queue[str]]":
    """The terminal's other screen, and the keys as they are pressed; everything is put back at the end."""
    import termios  # noqa: PLC0415 (only where there is a terminal)
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    keys: Queue[str] = Queue()
    tty.setcbreak(descriptor)
    sys.stdout.write(OPEN_SCREEN)
    sys.stdout.flush()
    Thread(target=_read_keys, args=(descriptor, keys), daemon=True).start()
    try:
        yield keys
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write(CLOSE_SCREEN)
        sys.stdout.flush()


def _read_keys(descriptor: int, keys: "Queue[str]") -> None:
    with suppress(OSError):
        while key := os.read(descriptor, 1):
            keys.put(key.decode("ascii", "replace"))
