"""The console in a real browser: every page and what one does there, hostile records, keys, a server that goes away."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from topics.testing.running_server import RunningServer, server

AXE = (Path(__file__).parent / "axe.min.js").read_text()
KEYS = "all,look:read,some:read+write:team:"
PAGES = ["overview", "queues", "routers", "live", "pipelines", "metrics", "topics/shop", "topics/shop/config"]
HOSTILE = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">'

expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def shop() -> Iterator[RunningServer]:
    """A server with some of everything."""
    with server() as running, running.client() as client:
        client.create("shop", cap_records=50)
        client.append_many("shop", [{"n": number, "what": f"thing {number}"} for number in range(80)])
        client.set_cursor("shop", "slow", 60)
        client.create("jobs", type="queue", max_deliveries=1, dead_letter="jobs:dead")
        client.create("copies")
        client.put_router("shop->copies", "shop", "copies")
        client.put_router("copies->shop", "copies", "shop", allow_cycle=True)
        yield running


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """Fails when the page reports an error: a bug in a module, or something its policy forbids."""
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if "Content Security" in message.text else None)
    yield page
    assert wrong == []


@pytest.fixture
def opened(page: Page, shop: RunningServer) -> Callable[[str], Page]:
    def opened(place: str) -> Page:
        page.goto(f"{shop.url}/console#/{place}")
        expect(page.locator("h1")).to_be_visible()
        expect(page.get_by_text("connected")).to_be_visible()
        return page

    return opened


def test_the_first_view_takes_two_requests_and_all_else_is_data(page: Page, shop: RunningServer) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(shop.url).partition("?")[0]))
    page.goto(f"{shop.url}/")
    expect(page.get_by_role("link", name="shop", exact=True)).to_be_visible()
    assert [path for path in asked if not path.startswith("/v0/")] == ["/", "/console", "/console/console.js"]
    assert {path for path in asked if path.startswith("/v0/")} == {"/v0/key", "/v0/overview", "/v0/metrics"}


@pytest.mark.parametrize("place", PAGES)
def test_a_page_opens_and_has_no_serious_barriers(
    place: str, opened: Callable[[str], Page], context: BrowserContext
) -> None:
    page = opened(place)
    expect(page.get_by_text("Loading…")).to_have_count(0)
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [
        (one["id"], [node["html"][:120] for node in one["nodes"]][:3])
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
    ]
    assert serious == []


def test_the_overview_is_filtered_sorted_and_tells_of_loss(opened: Callable[[str], Page]) -> None:
    page = opened("overview")
    rows = page.locator("tbody tr[data-key]")
    expect(rows.filter(has_text="% lost")).to_have_count(1)
    page.keyboard.press("/")
    page.keyboard.type("SHOP")
    expect(rows).to_have_count(1)
    page.get_by_label("Filter topics by name").fill("")
    page.get_by_role("button", name="Live", exact=True).click()
    expect(page.get_by_role("columnheader", name="Live", exact=True)).to_have_attribute("aria-sort", "descending")
    expect(rows.first).to_contain_text("shop")


def overview_with(page: Page, change: Callable[[dict[str, Any]], None]) -> None:
    """Lets the server answer, and changes what it said."""

    def answer(route: Route) -> None:
        said = route.fetch().json()
        change(said)
        route.fulfill(json=said)

    page.route("**/v0/overview*", answer)


def write_to_each(url: str, topics: list[str]) -> None:
    """One record to each, over one connection, without waiting for answers in between."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    body = b'{"records":[{"data":1}],"config":{"durability":"memory"}}'
    head = f"Host: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    requests = b"".join(b"POST /v0/topics/%b HTTP/1.1\r\n%b%b" % (topic.encode(), head, body) for topic in topics)
    with socket.create_connection((host, int(port)), 60) as connection:
        sending = threading.Thread(target=connection.sendall, args=(requests,))
        sending.start()
        answers = b""
        while answers.count(b'"first_seq":1') < len(topics):
            data = connection.recv(1 << 16)
            assert data, answers[-500:]
            answers += data
        sending.join()


def test_five_thousand_topics_are_a_few_rows_in_the_page(page: Page) -> None:
    with server() as running:
        write_to_each(running.url, [f"topic-{number:04}" for number in range(5000)])
        page.goto(f"{running.url}/console")
        expect(page.get_by_text("5,000 topics")).to_be_visible()
        assert page.locator("tbody tr").count() < 120
        page.locator(".scroll").evaluate("frame => { frame.scrollTop = frame.scrollHeight; }")
        expect(page.get_by_role("link", name="topic-4999")).to_be_visible()
        page.get_by_label("Filter topics by name").fill("topic-1234")
        expect(page.locator("tbody tr[data-key]")).to_have_count(1)


def test_a_shard_that_refuses_writes_is_told_with_what_to_do(page: Page, shop: RunningServer) -> None:
    def broken(said: dict[str, Any]) -> None:
        said["server"]["read_only_shards"] = [{"shard": "3", "reason": "no space left on device"}]

    overview_with(page, broken)
    page.goto(f"{shop.url}/console")
    expect(page.get_by_role("alert")).to_contain_text("no space left on device")
    expect(page.get_by_role("alert")).to_contain_text("restart the server")


def test_a_hidden_tab_asks_for_nothing(page: Page, shop: RunningServer) -> None:
    page.clock.install()
    page.goto(f"{shop.url}/console")
    expect(page.get_by_text("connected")).to_be_visible()
    hide = "value => { Object.defineProperty(document, 'hidden', {value, configurable: true}); "
    page.evaluate(hide + "document.dispatchEvent(new Event('visibilitychange')); }", True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(60_000)
    assert asked == []
    page.evaluate(hide + "document.dispatchEvent(new Event('visibilitychange')); }", False)
    page.clock.run_for(3000)
    expect(page.get_by_text("connected")).to_be_visible()
    assert asked != []


def test_the_seq_line_shows_what_is_lost_and_who_is_behind(opened: Callable[[str], Page]) -> None:
    page = opened("topics/shop")
    line = page.locator(".seqline")
    expect(line).to_have_attribute(
        "aria-label", "Seqs 1 to 80: 50 live, 0 deleted, 30 lost in 1 range; 1 cursor, 0 watchers"
    )
    expect(line.locator(".mark.cursor text")).to_have_text("slow −20")
    expect(page.get_by_role("table", name="Ranges that were lost")).to_contain_text("cap")
    expect(page.get_by_role("table", name="Readers")).to_contain_text("20")
    page.get_by_role("button", name="Zoom in").click()
    expect(page.locator("output")).not_to_have_text("seq 1 – 80")
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.locator("output")).to_have_text("seq 1 – 80")


def test_who_zooms_before_the_server_has_answered_sees_the_line_when_it_has(
    opened: Callable[[str], Page], page: Page
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v0/topics/shop/map*", hold)
    opened("topics/shop")
    page.get_by_role("button", name="Zoom in").click()
    assert held
    page.unroute("**/v0/topics/shop/map*")  # lets them go
    expect(page.locator(".seqline")).to_have_attribute("aria-label", re.compile("Seqs 1 to 80: 50 live"))
    expect(page.locator("output")).to_have_text("seq 1 – 80")


def test_records_are_found_by_seq_and_text_and_loss_is_told(opened: Callable[[str], Page]) -> None:
    page = opened("topics/shop")
    records = page.locator(".record")
    expect(records.last).to_contain_text("thing 79")
    page.get_by_label("From seq").fill("1")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".tombstone")).to_contain_text("Lost: seq 1 – 30")
    expect(records.first).to_contain_text("thing 30")
    page.get_by_label("Text (within").fill("thing 77")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("1 match for")).to_be_visible()
    expect(records).to_have_count(1)
    records.first.locator("summary").click()
    expect(records.first.locator("pre")).to_contain_text('"n": 77')


def test_hostile_records_are_text(opened: Callable[[str], Page], shop: RunningServer) -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    with shop.client() as client:
        client.append_many("hostile", [HOSTILE, {"rtl": "abc\u202edef"}, "x" * 1_000_000, deep, {"$ts": "not a date"}])
        client.append("hostile", [1], tag=HOSTILE, node="\u202eevil")
        client.set_cursor("hostile", "c", 1)
    page = opened("topics/hostile")
    records = page.locator(".record")
    expect(records).to_have_count(6)
    for number in range(6):
        records.nth(number).locator("summary").click()
    expect(records.nth(0).locator("pre")).to_contain_text("<script>window.hacked = 1</script>")
    expect(records.nth(1).locator("pre")).to_contain_text("abc\\u202edef")
    expect(records.nth(2).locator("pre")).to_contain_text("characters)")
    expect(records.nth(5).locator("summary")).to_contain_text("<script>")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0


def test_numbers_are_shown_as_they_were_written(opened: Callable[[str], Page], shop: RunningServer) -> None:
    page = opened("overview")
    page.evaluate(
        """fetch("/v0/topics/exact", {method: "POST", headers: {"Content-Type": "application/json"},
        body: '{"records":[{"data":[1.0,12345678901234567890,1e400]}]}'})"""
    )
    page = opened("topics/exact")
    expect(page.locator(".record .data")).to_have_text("[1.0,12345678901234567890,1e400]")


def test_a_record_is_published_then_deleted_after_a_preview(opened: Callable[[str], Page], shop: RunningServer) -> None:
    with shop.client() as client:
        client.append_many("notes", [{"old": 1}, {"old": 2}])
    page = opened("topics/notes/publish")
    page.get_by_label("Data (JSON)").fill("{broken")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Data is not JSON")).to_be_visible()
    page.get_by_label("Data (JSON)").fill('{"new": 1.0}')
    page.get_by_label("Tag").fill("mine")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Published as seq 3.")).to_be_visible()
    page.get_by_role("tab", name="Delete").click()
    page.get_by_label("Before seq").fill("3")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("2 records would go")).to_be_visible()
    page.get_by_role("button", name="Delete 2 records").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 2").click()
    expect(page.get_by_text("2 records deleted.")).to_be_visible()
    with shop.client() as client:
        assert client.topic("notes").count == 1


def test_a_tighter_cap_says_first_what_it_evicts(opened: Callable[[str], Page], shop: RunningServer) -> None:
    with shop.client() as client:
        client.append_many("ledger", range(20))
    page = opened("topics/ledger/config")
    page.get_by_label("Most records").fill("5")
    page.get_by_role("button", name="Preview change").click()
    expect(page.get_by_text("15 records will be evicted at once")).to_be_visible()
    with shop.client() as client:
        assert client.topic("ledger").count == 20
    page.get_by_role("button", name="Apply and evict 15").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply").click()
    expect(page.get_by_text("ledger is configured.")).to_be_visible()
    with shop.client() as client:
        assert client.topic("ledger").count == 5


def test_a_queue_says_first_which_jobs_a_tighter_cap_evicts(opened: Callable[[str], Page], shop: RunningServer) -> None:
    with shop.client() as client:
        client.create("parcels", type="queue")
        client.append_many("parcels", range(10))
        done = client.claim("parcels", node="w", max=4).claimed
        client.ack("parcels", done[:2], node="w")  # of eight that are left, two are in flight
    page = opened("topics/parcels/config")
    page.get_by_label("Most records").fill("5")
    page.get_by_role("button", name="Preview change").click()
    expect(page.get_by_text("3 records will be evicted at once")).to_be_visible()
    expect(page.get_by_text("2 of them are leased")).to_be_visible()
    page.get_by_role("button", name="Apply and evict 3").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply").click()
    expect(page.get_by_text("parcels is configured.")).to_be_visible()
    with shop.client() as client:
        assert client.topic("parcels").count == 5


def test_a_lease_is_extended_and_given_back_and_dead_letters_sent_again(
    opened: Callable[[str], Page], shop: RunningServer
) -> None:
    with shop.client() as client:
        client.append_many("jobs", [{"mail": 1}, {"mail": 2}])
        client.claim("jobs", node="worker-1", max=1, lease_ms=600_000)
        (lease,) = client.leases("jobs")
    page = opened("queues/jobs")
    leases = page.get_by_role("table", name="Leases")
    expect(leases).to_contain_text("worker-1")
    since = datetime.fromtimestamp(lease.claimed_ts / 1000, UTC).isoformat(timespec="milliseconds")
    held_for = leases.get_by_title(f"Since {since.removesuffix('+00:00')}Z")
    expect(held_for).to_have_text(re.compile(r"^\d"))
    page.get_by_role("button", name="Extend").click()
    expect(page.get_by_text("more.")).to_be_visible()
    page.get_by_role("button", name="Job 1").click()
    expect(page.get_by_role("dialog")).to_contain_text("leased to worker-1")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Give back").click()
    expect(page.get_by_text("is ready again.")).to_be_visible()
    with shop.client() as client:
        client.claim("jobs", node="worker-2", max=2, lease_ms=600_000)  # the first has had its delivery: it is dead now
    expect(page.get_by_text("1 job in")).to_be_visible()
    page.get_by_role("button", name="Redrive…").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("1 job sent back to jobs")).to_be_visible()


def test_routers_are_a_graph_and_cycles_are_seen(opened: Callable[[str], Page]) -> None:
    page = opened("routers")
    expect(page.locator(".graph .node")).to_have_count(2)
    expect(page.locator(".graph .edge.loop")).to_have_count(2)
    expect(page.get_by_role("table", name="Routers")).to_contain_text("cycle")


def test_a_topic_that_is_not_there_says_what_to_do(opened: Callable[[str], Page]) -> None:
    expect(opened("topics/typo").get_by_text("There is no topic of this name.")).to_be_visible()


def test_a_tail_pauses_and_goes_on_over_a_killed_server(page: Page) -> None:
    with server() as running:
        with running.client() as client:
            client.create("room", durability="fsync")
            page.goto(f"{running.url}/console#/topics/room/tail")
            expect(page.get_by_text("Waiting for the next record.")).to_be_visible()
            client.append("room", "one")
            expect(page.locator(".record")).to_have_count(1)
            page.get_by_role("button", name="Pause").click()
            client.append("room", "two")
            expect(page.get_by_text("paused; 1 record waiting")).to_be_visible()
            expect(page.locator(".record")).to_have_count(1)
            page.get_by_role("button", name="Resume").click()
            expect(page.locator(".record")).to_have_count(2)
        running.kill()
        expect(page.get_by_text("does not answer").first).to_be_visible()
        running.start()
        with running.client() as client:
            client.append_many("room", ["three", "four"])
        expect(page.locator(".record")).to_have_count(4)
        assert page.locator(".record .data").all_text_contents() == ['"four"', '"three"', '"two"', '"one"']


# Keys


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningServer]:
    with server(api_keys=KEYS) as running, running.client("all") as client:
        client.append("team:a", 1)
        client.append("other", 1)
        yield running


def enter(page: Page, url: str, key: str) -> None:
    page.goto(f"{url}/console")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Open the console").click()


def test_a_key_is_asked_for_once_and_kept_in_memory_only(page: Page, guarded: RunningServer) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    enter(page, guarded.url, "wrong")
    expect(page.get_by_text("does not know this key")).to_be_visible()
    enter(page, guarded.url, "all")
    expect(page.get_by_role("link", name="team:a")).to_be_visible()
    assert not [url for url in asked if "token" in url or "all" in url.partition("?")[2]]
    assert json.loads(page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")) == [
        {},
        {},
        "",
    ]
    page.reload()
    expect(page.get_by_label("API key")).to_be_visible()


def test_a_key_that_may_only_read_is_offered_nothing_else(page: Page, guarded: RunningServer) -> None:
    enter(page, guarded.url, "look")
    expect(page.get_by_text("key: read")).to_be_visible()
    expect(page.get_by_role("button", name="New topic")).to_have_count(0)
    page.get_by_role("link", name="other").click()
    expect(page.get_by_role("tab", name="Records")).to_be_visible()
    expect(page.get_by_role("tab", name="Publish")).to_have_count(0)
    expect(page.get_by_role("tab", name="Delete")).to_have_count(0)
    page.get_by_role("tab", name="Configuration").click()
    expect(page.get_by_text("not change it")).to_be_visible()


def test_a_key_with_prefixes_sees_its_names_only(page: Page, guarded: RunningServer) -> None:
    enter(page, guarded.url, "some")
    expect(page.get_by_role("link", name="team:a")).to_be_visible()
    expect(page.get_by_role("link", name="other")).to_have_count(0)
    page.evaluate("location.hash = '#/topics/other'")
    expect(page.get_by_text("This key may not see this topic.")).to_be_visible()


BEYOND_THE_EDGE = """[...document.querySelectorAll("main *, header *")]
    .filter((one) => one.getBoundingClientRect().right > innerWidth && !one.closest(".scroll, nav, .tabs"))
    .map((one) => `${one.tagName}.${one.getAttribute("class")} ${one.textContent.slice(0, 40)}`)"""


def test_a_phone_scrolls_nothing_sideways(page: Page, shop: RunningServer) -> None:
    def long_ago(said: dict[str, Any]) -> None:
        for topic in said["topics"]:
            for name in ("last_ts", "first_ts", "last_read_ts"):
                topic[name] = said["server"]["ts"] - 754_000  # 12 min 34 s: a long text

    overview_with(page, long_ago)
    page.set_viewport_size({"width": 390, "height": 844})
    for place in PAGES:
        page.goto(f"{shop.url}/console#/{place}")
        expect(page.get_by_text("connected")).to_be_visible()
        expect(page.get_by_text("Loading…")).to_have_count(0)
        if place == "topics/shop":
            expect(page.get_by_text("12 min 34 s ago").first).to_be_visible()
        wide = page.evaluate(BEYOND_THE_EDGE)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (place, wide)
