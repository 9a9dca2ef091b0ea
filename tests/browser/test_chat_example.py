"""examples/chat in a real browser: two people, history, and text that stays text."""

import runpy
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from topics.testing.running_server import server

SERVE = Path(__file__).parents[2] / "examples" / "chat" / "serve.py"
HOSTILE = '<img src=x onerror="window.hacked = 1">'

expect.set_options(timeout=20_000)


@pytest.fixture
def address() -> Iterator[str]:
    """Of the page, with the server it talks to."""
    pages = runpy.run_path(str(SERVE))["page_server"](0)
    thread = threading.Thread(target=pages.serve_forever)
    thread.start()
    origin = f"http://127.0.0.1:{pages.server_port}"
    try:
        with server(cors_origins=origin) as running:
            yield f"{origin}/index.html?server={running.url}"
    finally:
        pages.shutdown()
        thread.join()
        pages.server_close()


def say(page: Page, who: str, text: str) -> None:
    page.get_by_label("Your name").fill(who)
    page.get_by_label("Message").fill(text)
    page.get_by_role("button").click()


def test_what_one_says_the_other_reads_and_who_comes_later_too(browser: Browser, address: str) -> None:
    contexts = [browser.new_context() for _ in range(3)]
    alice, bob, carol = (context.new_page() for context in contexts)
    alice.goto(address)
    bob.goto(address)
    say(alice, "alice", "hello")
    expect(bob.locator("li")).to_have_text(["alice: hello"])
    say(bob, "bob", HOSTILE)
    expect(alice.locator("li")).to_have_text(["alice: hello", f"bob: {HOSTILE}"])
    carol.goto(address)
    expect(carol.locator("li")).to_have_text(["alice: hello", f"bob: {HOSTILE}"])
    assert [page.evaluate("window.hacked") for page in (alice, bob, carol)] == [None] * 3
    for context in contexts:
        context.close()
