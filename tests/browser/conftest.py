"""A headless Chromium, and pages of the server's origin."""

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)

OpenPage = Callable[[str, str], Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not longer than a module: as long as it lives, its event loop counts as running in this thread."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("there is no Chromium on the PATH (on Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, headless=True, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Runs a script in a page of the server's own origin: the API is for pages beside it, and sends no CORS headers.

    The page is a real answer of the server. One that is made up belongs to no address, and Chromium does not let such
    a page open a WebSocket to loopback.
    """
    context = browser.new_context()

    def open_page(origin: str, script: str) -> Page:
        page = context.new_page()
        page.goto(f"{origin}/v0/health")
        page.add_script_tag(content=script)
        return page

    yield open_page
    context.close()
