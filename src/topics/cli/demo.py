"""`topics demo`: a server with a living shop in it, until Ctrl-C. One command for the first five minutes."""

import argparse
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from topics.bench.child_process import LOOPBACK, address_in, environment_with, running, wait_for
from topics.cli.output import Paint, Style
from topics.cli.parser import Commands, examples
from topics.cli.shop import Shop, begin_work, open_shop
from topics.cli.values import whole_number

PORT_DEFAULT = 4000
STATUS_S = 1.0
STATUS_S_WITHOUT_TERMINAL = 10.0


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "demo",
        description="Starts a server of its own and opens a shop in it: orders, a queue of e-mails with failures and "
        "dead letters, routers, a capped topic that loses what nobody reads in time, a slow reader, a chat. "
        "Ctrl-C ends it; nothing is left behind unless --data-dir says where.",
        epilog=examples(
            "topics demo", "topics demo --port 4444 --pace 5", "topics demo --data-dir ./shop   # keep the data"
        ),
    )
    parser.add_argument(
        "--port", type=whole_number, help=f"port to listen on ({PORT_DEFAULT}, or any if that is taken)"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="keep the data here (a temporary directory)")
    parser.add_argument("--pace", type=_pace, default=1.0, metavar="X", help="how busy the shop is (1)")
    parser.add_argument("--seed", type=whole_number, default=None, help="the same customers in the same order")
    parser.set_defaults(run=run, until_interrupted=True)


def run(args: argparse.Namespace) -> int:
    from topics.client.sync_client import Client  # noqa: PLC0415 (help does not wait for it)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server and its directory go in any case
    paint = Paint(sys.stdout)
    with _directory(args.data_dir) as directory, _server(directory, args.port) as url:
        shop = Shop(lambda: Client(url), threading.Event(), Random(args.seed), args.pace)
        with Client(url) as client:
            open_shop(client)
        print(_welcome(url, paint), flush=True)
        try:
            begin_work(shop)
            _tell(shop, paint)
        except KeyboardInterrupt:
            pass
        finally:
            shop.stop.set()
            for thread in shop.people:
                thread.join()
        print(f"\nthe shop is closed: {_status(shop)}")
        if shop.failures:
            raise shop.failures[0]
    return 0


@contextmanager
def _directory(wanted: str | None) -> Iterator[Path]:
    if wanted is not None:
        path = Path(wanted).absolute()
        path.mkdir(parents=True, exist_ok=True)
        yield path
    else:
        with tempfile.TemporaryDirectory(prefix="topics-demo-") as name:
            yield Path(name)


@contextmanager
def _server(directory: Path, port: int | None) -> Iterator[str]:
    """On the usual port if it is free and none was asked for, else on any."""
    from topics.client.sockets import listens  # noqa: PLC0415

    if port is None:
        port = 0 if listens(LOOPBACK, PORT_DEFAULT) else PORT_DEFAULT
    port_file, log = directory / "port", directory / "server.log"
    port_file.unlink(missing_ok=True)
    environment = environment_with(
        TOPICS_HOST=LOOPBACK,
        TOPICS_PORT=str(port),
        TOPICS_PORT_FILE=str(port_file),
        TOPICS_DATA_DIR=str(directory / "data"),
    )
    with running([sys.executable, "-m", "topics.cli.main", "serve"], log, environment) as process:
        wait_for(process, "the server", port_file.exists, log)
        host, port = address_in(port_file)
        yield f"http://{host}:{port}"


def _welcome(url: str, paint: Paint) -> str:
    def command(text: str, what: str) -> str:
        return f"  {paint(f'{text:<36}', Style.CYAN)} {what}"

    place = [] if url.endswith(f":{PORT_DEFAULT}") else [f"  {paint(f'export TOPICS_URL={url}', Style.CYAN)}"]
    return "\n".join(
        [
            f"{paint('A shop is open', Style.BOLD)} at {url}. In another terminal, try:",
            *place,
            command("topics top", "everything at a glance"),
            command("topics tail orders -f", "orders as they come"),
            command("topics tail orders -f --tag 'vip:*'", "only those of good customers"),
            command("topics tail 'chat:*' -f", "all rooms of the chat"),
            command("topics tail clicks --from-seq 0", "a capped topic: what it lost is shown in red"),
            command("topics queue peek emails", "jobs, and who holds them"),
            command("topics tail emails:dead", "mails that bounced; topics queue redrive emails sends them again"),
            command("topics router graph", "who copies to whom"),
            command("topics show clicks", "one topic in full: losses, slow readers"),
            f"Or look at all of it in a browser: {paint(f'{url}/console', Style.CYAN)}",
            "Ctrl-C closes the shop.",
            "",
        ]
    )


def _tell(shop: Shop, paint: Paint) -> None:
    """One line that changes, on a terminal; else a line now and then."""
    terminal = sys.stdout.isatty()
    while not shop.stop.wait(STATUS_S if terminal else STATUS_S_WITHOUT_TERMINAL):
        line = _status(shop)
        sys.stdout.write(f"\r\x1b[K{paint(line, Style.DIM)}" if terminal else f"{line}\n")
        sys.stdout.flush()


def _status(shop: Shop) -> str:
    return (
        f"{shop.orders:,} orders, {shop.mailed:,} mails sent, {shop.failed:,} failed; "
        f"the slow dashboard lost {shop.lost_clicks:,} clicks"
    )


def _pace(text: str) -> float:
    try:
        pace = float(text)
    except ValueError:
        pace = 0.0
    if not 0.1 <= pace <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}: a number from 0.1 to 100")
    return pace
