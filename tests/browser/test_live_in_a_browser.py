"""A page in a real browser gets every record once and in order, over cut connections and a killed server.

The pages do what any client has to do and no more: remember the cursor of what they have dealt with, and begin there.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from acceptance.faulty_proxy import FaultyProxy
from browser.conftest import OpenPage
from conformance.client import Topic, eventually
from conformance.process import ServerProcess

# A stream that breaks is taken up again by the browser. One that is refused, because its session is gone, is closed
# for good: then the page makes a new session from the cursors in the last id.
EVENT_SOURCE = """
const log = {data: [], seqs: [], opened: 0, sessions: 0, other: []};
let cursor = 0;
function decoded(id) {
    return JSON.parse(atob(id.replaceAll("-", "+").replaceAll("_", "/")));
}
async function watch() {
    let session;
    try {
        const reply = await fetch("/v0/watch", {method: "POST", headers: {"Content-Type": "application/json"},
            body: JSON.stringify({topics: {room: {from_seq: cursor}}})});
        if (!reply.ok) throw new Error(reply.status);
        session = await reply.json();
    } catch (error) {
        setTimeout(watch, 50);
        return;
    }
    log.sessions += 1;
    const source = new EventSource(session.stream_url);
    source.onopen = () => { log.opened += 1; };
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) setTimeout(watch, 50); };
    source.addEventListener("record", (event) => {
        for (const record of JSON.parse(event.data).records) {
            log.seqs.push(record.$seq);
            log.data.push(record.data);
        }
        cursor = decoded(event.lastEventId).room;
    });
    for (const name of ["tombstone", "topic-deleted"])
        source.addEventListener(name, (event) => log.other.push([name, event.data]));
}
watch();
"""

WEB_SOCKET = """
const log = {data: [], seqs: [], opened: 0, sessions: 0, other: []};
let cursor = 0;
let socket;
function connect() {
    socket = new WebSocket(`ws://${location.host}/v0/ws`);
    socket.onopen = () => {
        log.opened += 1;
        socket.send(JSON.stringify({op: "subscribe", topic: "room", from_seq: cursor}));
    };
    socket.onclose = () => setTimeout(connect, 50);
    socket.onmessage = (event) => {
        const frame = JSON.parse(event.data);
        if (frame.op === "record") {
            for (const record of frame.records) {
                log.seqs.push(record.$seq);
                log.data.push(record.data);
            }
            cursor = frame.to_seq;
        } else if (frame.op === "subscribed") {
            log.sessions += 1;
        } else if (frame.op !== "caught_up" && frame.code !== "shutting_down") {
            log.other.push(frame);
        }
    };
}
connect();
"""

PAGES = pytest.mark.parametrize("script", [EVENT_SOURCE, WEB_SOCKET], ids=["EventSource", "WebSocket"])


class Restartable:
    """A server that comes back at the same port with the same data."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.process = ServerProcess(directory, {})
        self.port = self.process.api.port

    @property
    def room(self) -> Topic:
        return Topic(self.process.api, "room")

    def start(self) -> None:
        self.process = ServerProcess(self._directory, {"TOPICS_PORT": str(self.port)})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Restartable]:
    server = Restartable(tmp_path)
    server.room.configure(durability="fsync")
    yield server
    server.process.stop()


@pytest.fixture
def proxy(server: Restartable) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(server.port)
    yield proxy
    proxy.close()


def seen(page: Page) -> dict[str, Any]:
    log: dict[str, Any] = page.evaluate("log")
    return log


def wait_for(page: Page, condition: Callable[[dict[str, Any]], bool]) -> None:
    eventually(lambda: condition(seen(page)))


def write(room: Topic, numbers: range) -> None:
    """One write each, so that deliveries and interruptions have something to fall between."""
    for number in numbers:
        room.write({"data": {"n": number, "text": "line\nbreak"}})


def assert_every_record_once(page: Page, count: int) -> None:
    wait_for(page, lambda log: len(log["seqs"]) >= count)
    log = seen(page)
    assert log["seqs"] == list(range(1, count + 1))
    assert [data["n"] for data in log["data"]] == list(range(count))
    assert log["data"][0]["text"] == "line\nbreak"
    assert log["other"] == []


@PAGES
def test_a_page_goes_on_after_the_server_was_killed(server: Restartable, open_page: OpenPage, script: str) -> None:
    write(server.room, range(10))
    page = open_page(f"http://127.0.0.1:{server.port}", script)
    wait_for(page, lambda log: len(log["seqs"]) == 10)
    write(server.room, range(10, 20))
    server.process.kill()
    server.start()
    write(server.room, range(20, 40))
    wait_for(page, lambda log: log["sessions"] >= 2)
    write(server.room, range(40, 50))
    assert_every_record_once(page, 50)


@PAGES
def test_a_page_goes_on_after_the_server_was_stopped_and_written_to_without_it(
    server: Restartable, open_page: OpenPage, script: str
) -> None:
    write(server.room, range(5))
    page = open_page(f"http://127.0.0.1:{server.port}", script)
    wait_for(page, lambda log: len(log["seqs"]) == 5)
    server.process.stop()
    page.context.set_offline(True)
    server.start()
    write(server.room, range(5, 30))
    assert len(seen(page)["seqs"]) == 5
    page.context.set_offline(False)
    write(server.room, range(30, 35))
    assert_every_record_once(page, 35)


@PAGES
def test_a_page_goes_on_over_cut_connections(
    server: Restartable, proxy: FaultyProxy, open_page: OpenPage, script: str
) -> None:
    page = open_page(proxy.url, script)
    count = 0
    for cuts in range(3):
        write(server.room, range(count, count + 20))
        count += 20
        wait_for(page, lambda log, opened=cuts + 1: log["opened"] >= opened)  # type: ignore[misc]
        proxy.cut()
    assert_every_record_once(page, count)


def test_event_source_takes_its_stream_up_again_by_itself(
    server: Restartable, proxy: FaultyProxy, open_page: OpenPage
) -> None:
    page = open_page(proxy.url, EVENT_SOURCE)
    write(server.room, range(10))
    wait_for(page, lambda log: len(log["seqs"]) == 10)
    proxy.cut()
    write(server.room, range(10, 20))
    assert_every_record_once(page, 20)
    log = seen(page)
    assert (log["opened"], log["sessions"]) == (2, 1)
