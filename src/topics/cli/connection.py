"""The server a command talks to: `--url`, else TOPICS_URL, else this machine's; the key is in TOPICS_API_KEY."""

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topics.client.retries import RetryPolicy
    from topics.client.sync_client import Client
    from topics.wire.overview import OverviewPage

URL_DEFAULT = "http://127.0.0.1:4000"
BRIEF_S = 2.0
SHORT_S = 15.0


def url_default() -> str:
    return os.environ.get("TOPICS_URL", "").strip() or URL_DEFAULT


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server and output")
    group.add_argument("--url", default=url_default(), help=f"the server ($TOPICS_URL, or {URL_DEFAULT})")
    group.add_argument("--json", action="store_true", help="print one JSON object per line, for programs")


def connect(args: argparse.Namespace, *, patient: bool = False) -> "Client":
    """A client of the chosen server. If there is no server, that is an error at once; a `patient` command that has
    begun waits for a server that is being restarted."""
    from topics.client.sync_client import Client  # noqa: PLC0415 (help does not wait for it)

    if patient:
        with Client(args.url, policy=short_policy()) as probe:
            probe.ready()
        return Client(args.url)
    return Client(args.url, policy=short_policy())


def short_policy() -> "RetryPolicy":
    """Tries again for a fraction of a second, or as long as the server asks for."""
    from topics.client.retries import RetryPolicy  # noqa: PLC0415

    return RetryPolicy(attempts_max=4, total_ms_max=int(SHORT_S * 1000))


def connect_briefly(url: str | None = None) -> "Client":
    """For callers that would rather have no answer than wait for one."""
    from topics.client.retries import RetryPolicy  # noqa: PLC0415
    from topics.client.sync_client import Client  # noqa: PLC0415

    policy = RetryPolicy(attempts_max=1, total_ms_max=int(BRIEF_S * 1000))
    return Client(url or url_default(), policy=policy, timeout_s=BRIEF_S)


def overviews(client: "Client", prefix: str = "") -> "Iterator[OverviewPage]":
    """The server's overview, page by page: the topics whose names begin with `prefix`, and how the server is."""
    from msgspec import UNSET  # noqa: PLC0415

    page = client.overview(prefix)
    yield page
    while page.next_cursor is not UNSET:
        page = client.overview(prefix, cursor=page.next_cursor)
        yield page
