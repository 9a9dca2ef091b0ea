"""Pictures of every page of the console, in light, dark and at phone width, of a living `topics demo`.

    python scripts/console_screenshots.py OUT [--seconds 30] [--pace 4]

Look at them after every change of the console. Those of docs/console.md are among them, under the same names.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PAGES = {
    "overview": "overview",
    "topic": "topics/clicks",
    "records": "topics/orders",
    "tail": "topics/orders/tail",
    "publish": "topics/orders/publish",
    "delete": "topics/orders/delete",
    "config": "topics/clicks/config",
    "queues": "queues",
    "queue": "queues/emails",
    "routers": "routers",
    "live": "live",
    "pipelines": "pipelines",
    "metrics": "metrics",
}
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "device_scale_factor": 2},
}


@contextmanager
def demo(pace: str) -> Iterator[str]:
    """The address of a shop that is open."""
    with tempfile.TemporaryDirectory(prefix="topics-screenshots-") as directory:
        words = [sys.executable, "-m", "topics.cli.main", "demo", "--port", "0", "--pace", pace, "--seed", "7"]
        process = subprocess.Popen([*words, "--data-dir", directory], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            found = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
            assert found, "the demo did not say where it is"
            yield found[0]
        finally:
            process.terminate()
            process.communicate()


def dress(page: Page, name: str) -> None:
    """What makes a page worth a picture."""
    expect(page.locator("h1")).to_be_visible()
    expect(page.get_by_text("Loading…")).to_have_count(0)
    match name:
        case "records":
            page.locator(".record").last.locator("summary").click()
        case "tail":
            expect(page.locator(".record")).not_to_have_count(0)
        case "delete":
            page.get_by_label("Tag, or prefix*").fill("vip:*")
            page.get_by_role("button", name="Preview").click()
            expect(page.get_by_text("would go")).to_be_visible()
        case "config":
            page.get_by_label("Most records").fill("100")
            page.get_by_role("button", name="Preview change").click()
            expect(page.get_by_text("will be evicted")).to_be_visible()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the shop is open before")
    parser.add_argument("--settle", type=float, default=2.5, help="seconds on a page before its picture")
    parser.add_argument("--pace", default="4")
    parser.add_argument("--only", nargs="*", choices=PAGES, default=list(PAGES))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=60_000)
    browser_path = next(filter(None, map(shutil.which, BROWSERS)))
    with demo(arguments.pace) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        pages = {look: browser.new_context(**options).new_page() for look, options in LOOKS.items()}  # type: ignore[arg-type]
        for page in pages.values():
            page.goto(f"{url}/console")
        time.sleep(arguments.seconds)  # for charts that have something to show
        for name in arguments.only:
            for look, page in pages.items():
                page.evaluate("place => { location.hash = `#/${place}`; }", PAGES[name])
                dress(page, name)
                page.wait_for_timeout(arguments.settle * 1000)
                target = arguments.out / f"console-{name}-{look}.png"
                page.screenshot(path=target, full_page=look == "phone")
                print(target)
        browser.close()


if __name__ == "__main__":
    main()
