"""/docs in a real browser: shown whole, from this server alone, within its policy, and without barriers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from topics.testing.running_server import RunningServer, server

AXE = (Path(__file__).parent / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningServer]:
    """The page needs no key where the API does."""
    with server(api_keys="s3cret") as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Fails when the page reports something its policy forbids."""
    context = browser.new_context()
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    yield page
    context.close()
    assert wrong == []


def test_the_api_is_shown_from_this_server_alone(page: Page, guarded: RunningServer) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{guarded.url}/docs")
    expect(page.locator("h1")).to_contain_text("topics")
    assert page.locator("details").count() > 30
    assert page.locator("nav").evaluate("each => getComputedStyle(each).position") == "sticky", "the styles are refused"
    assert asked == [f"{guarded.url}/docs"]


def test_a_link_opens_its_operation_and_from_there_its_schema(page: Page, guarded: RunningServer) -> None:
    page.goto(f"{guarded.url}/docs")
    page.locator("nav a", has_text="/v0/topics/{topic}/diff").click()
    operation = page.locator("#post_v0_topics_topic_diff")
    expect(operation).to_be_visible()
    expect(operation.locator("pre").first).to_contain_text('"from_seq": 0')
    operation.get_by_role("link", name="DiffRequest").click()
    expect(page.locator("#schema-DiffRequest")).to_be_in_viewport()


def test_there_are_no_serious_barriers(browser: Browser, guarded: RunningServer) -> None:
    context = browser.new_context(bypass_csp=True)  # for the tool that looks, which is a script
    page = context.new_page()
    page.goto(f"{guarded.url}/docs#post_v0_topics_topic_diff")
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    context.close()
    assert [one["id"] for one in found["violations"] if one["impact"] in {"serious", "critical"}] == []
