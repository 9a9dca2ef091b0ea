"""Hours of somebody using the console, to see whether page or server grow.

    python scripts/console_soak.py [--minutes 120]

A server of its own has capped topics, a queue and a router that somebody writes to all the time, so what it keeps stays
the same. One page goes over everything again and again: filters, sorts, zooms, browses, tails, publishes, previews.
After each round the page's heap (collected before), its nodes and listeners and the server's memory are written down.
Exits with 1 when a median of the last third is above that of the second one by more than a tenth and a little.
"""

import argparse
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import CDPSession, Page, expect, sync_playwright

from topics import Client, testing

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
GROWTH_MAX = 1.1
SLACK = {"heap_mib": 1.0, "nodes": 300, "listeners": 50, "server_mib": 4.0}
CAP = 2000


@dataclass(frozen=True, slots=True)
class Sample:
    minute: float
    heap_mib: float
    nodes: int
    listeners: int
    server_mib: float


def trade(client: Client, closing: threading.Event) -> None:
    """Writes, works and reads, until it is over."""
    number = 0
    while not closing.wait(0.1):
        number += 1
        client.append_many("clicks", [{"n": number, "page": "/sale"}] * 20)
        client.append("orders", {"n": number}, tag=f"customer:{number % 7}")
        client.append("mails", {"n": number})
        for job in client.claim("mails", node="mailer", max=1, lease_ms=60_000).claimed:
            client.ack("mails", [job], node="mailer")
        if number % 10 == 0:
            client.set_cursor("clicks", "dashboard", client.topic("clicks").head_seq - 500)


def overview(page: Page) -> None:
    box = page.get_by_label("Filter topics by name")
    box.fill("cl")
    expect(page.locator("tbody tr[data-key]")).to_have_count(1)
    box.fill("")
    page.get_by_role("button", name="Size", exact=True).click()


def topic(page: Page) -> None:
    for name in ("Zoom in", "Zoom in", "All"):
        page.get_by_role("button", name=name, exact=True).click()
    expect(page.locator(".record").first).to_be_visible()
    page.locator(".record").first.locator("summary").click()
    page.get_by_role("button", name="Newest").click()


def tail(page: Page) -> None:
    expect(page.locator(".record").first).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(500)
    page.get_by_role("button", name="Resume").click()


def publish(page: Page) -> None:
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Published as seq")).to_be_visible()


def delete(page: Page) -> None:
    page.get_by_label("Tag, or prefix*").fill("customer:*")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("would go")).to_be_visible()


def config(page: Page) -> None:
    page.get_by_label("Most records").fill("100")
    page.get_by_role("button", name="Preview change").click()
    expect(page.get_by_text("will be evicted")).to_be_visible()


def look(page: Page) -> None:
    page.wait_for_timeout(1000)


ROUND: list[tuple[str, Callable[[Page], None]]] = [
    ("overview", overview),
    ("topics/clicks", topic),
    ("topics/clicks/tail", tail),
    ("topics/orders/publish", publish),
    ("topics/orders/delete", delete),
    ("topics/clicks/config", config),
    ("queues/mails", look),
    ("routers", look),
    ("live", look),
    ("pipelines", look),
    ("metrics", look),
]


def use(page: Page) -> None:
    for place, act in ROUND:
        page.evaluate("place => { location.hash = `#/${place}`; }", place)
        expect(page.locator("h1")).to_be_visible()
        act(page)


def measured(page: Page, tools: CDPSession, client: Client, began: float) -> Sample:
    page.evaluate("location.hash = '#/live'")
    page.wait_for_timeout(500)
    tools.send("HeapProfiler.collectGarbage")
    counters = tools.send("Memory.getDOMCounters")
    heap = tools.send("Runtime.getHeapUsage")["usedSize"]
    return Sample(
        round((time.monotonic() - began) / 60, 1),
        round(heap / 2**20, 2),
        counters["nodes"],
        counters["jsEventListeners"],
        round(client.overview().server.memory_bytes / 2**20, 1),
    )


def verdict(samples: list[Sample]) -> int:
    third = len(samples) // 3
    status = 0
    for name, slack in SLACK.items():
        before = statistics.median(getattr(each, name) for each in samples[third : 2 * third])
        after = statistics.median(getattr(each, name) for each in samples[2 * third :])
        grows = after > before * GROWTH_MAX + slack
        print(f"{name:12} {before:10} -> {after:10}  {'GROWS' if grows else 'steady'}")
        status |= grows
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    arguments = parser.parse_args()
    expect.set_options(timeout=60_000)
    browser_path = next(filter(None, map(shutil.which, BROWSERS)))
    closing = threading.Event()
    with testing.server() as server, server.client() as client, server.client() as trader, sync_playwright() as player:
        for name in ("clicks", "orders", "audit"):
            client.create(name, cap_records=CAP)
        client.create("mails", type="queue")
        client.put_router("orders->audit", "orders", "audit")
        client.append_many("clicks", [{"n": number} for number in range(CAP)])
        trading = threading.Thread(target=trade, args=(trader, closing))
        trading.start()
        try:
            browser = player.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page()
            wrong: list[str] = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.goto(f"{server.url}/console")
            tools = page.context.new_cdp_session(page)
            samples: list[Sample] = []
            began = time.monotonic()
            while time.monotonic() - began < arguments.minutes * 60 or len(samples) < 6:
                use(page)
                samples.append(measured(page, tools, client, began))
                print(samples[-1], flush=True)
            browser.close()
        finally:
            closing.set()
            trading.join()
    assert wrong == [], wrong
    return verdict(samples)


if __name__ == "__main__":
    sys.exit(main())
