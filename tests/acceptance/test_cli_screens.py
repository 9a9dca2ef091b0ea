"""What people see: `topics` in a pseudo-terminal, compared as text. Colours are words in angle brackets."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.terminal import LINES, Terminal, environment, masked, readable, shown
from conformance.client import Topic, eventually
from conformance.process import ServerProcess

LAST_FRAME = re.compile(r".*\x1b\[H(.*?)\x1b\[J", re.S)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that has lost something, with a queue and readers."""
    process = ServerProcess(tmp_path_factory.mktemp("server"), {})
    clicks = Topic(process.api, "clicks")
    clicks.configure(cap_records=2)
    clicks.write(*({"data": {"n": number}} for number in range(5)))
    clicks.seqs()  # so that it was read
    orders = Topic(process.api, "orders")
    orders.write({"data": {"sku": 1}, "tag": "vip:\x1b[31m7"}, {"data": {"sku": 2}, "meta": {"by": "hand"}})
    process.api.put("/v0/topics/orders/cursors/billing", {"seq": 1})
    process.api.put("/v0/topics/jobs", {"type": "queue"})
    Topic(process.api, "jobs").write({"data": {"file": "a.mov"}})
    yield process
    process.stop()


@pytest.fixture
def url(server: ServerProcess) -> str:
    return f"http://{server.api.host}:{server.api.port}"


def test_help_has_bold_headings_on_a_terminal() -> None:
    text = shown("--help")
    assert text.startswith("<bold>usage:</> topics [--url URL] COMMAND …\n\n<bold>Start here</>\n  demo ")
    assert "<bold>" not in shown("--help", NO_COLOR="1")


def test_tail_shows_a_loss_in_red_and_tags_without_their_escapes(url: str) -> None:
    assert shown("tail", "clicks", "orders", url=url) == (
        "<red>✗ clicks: lost seqs 1 to 3 (cap: the topic is full)</>\n"
        '<cyan>clicks</>  <dim>     4</>  <dim>TIME</>  {"n":3}\n'
        '<cyan>clicks</>  <dim>     5</>  <dim>TIME</>  {"n":4}\n'
        '<cyan>orders</>  <dim>     1</>  <dim>TIME</>  <yellow>vip:\\x1b[31m7</>  {"sku":1}\n'
        '<cyan>orders</>  <dim>     2</>  <dim>TIME</>  {"sku":2}  <dim>by=hand</>\n'
    )


def test_no_color_is_heeded(url: str) -> None:
    assert shown("tail", "clicks", url=url, NO_COLOR="1") == (
        '✗ lost seqs 1 to 3 (cap: the topic is full)\n     4  TIME  {"n":3}\n     5  TIME  {"n":4}\n'
    )


def test_ls_lines_up(url: str) -> None:
    assert shown("ls", "c", url=url) == (
        "topic   type  records  size  head  lost  class\n"
        "──────  ────  ───────  ────  ────  ────  ─────\n"
        "clicks  log         2  90 B     5     3  disk\n\n"
        "1 topic, 2 records, 90 B\n"
    )


def test_show_has_losses_and_readers(url: str) -> None:
    assert shown("show", "clicks", url=url).startswith(
        "<bold>clicks</>  topic of class disk\n"
        "  records    2 (90 B)\n"
        "  seqs       4 to 5\n"
        "  written    DATE\n"
        "  read       DATE\n\n"
        "<red>lost: 3 in 1 range</>\n"
        "<red>  ✗ 1 to 3  cap, last DATE</>\n\n"
        "<bold>configuration</>\n"
    )
    assert "\ncursors\n  billing  seq 1, 1 behind\n" in shown("show", "orders", url=url)


def test_following_goes_on_until_ctrl_c_which_is_a_clean_end(server: ServerProcess, url: str) -> None:
    with Terminal("tail", "live", "later:*", "-f", url=url) as terminal:
        assert terminal.status() == 2
        assert terminal.text == 'topics: topic "live" does not exist; `topics ls` shows those there are\n'
    live = Topic(server.api, "live")
    live.write({"data": 1})
    with Terminal("tail", "live", "later:*", "-f", url=url) as terminal:
        terminal.expect("TIME</>  1\n")
        live.write({"data": 2})
        terminal.expect("TIME</>  2\n")
        Topic(server.api, "later:1").write({"data": 3})
        terminal.expect("<cyan>later:1</>  <dim>     1</>  <dim>TIME</>  3\n")
        terminal.interrupt()
        assert terminal.status() == 0
        assert terminal.text.endswith("  3\n^C")


def test_watch_tells_of_deleted_topics(server: ServerProcess, url: str) -> None:
    Topic(server.api, "short").write({"data": 1})
    with Terminal("watch", "short", url=url) as terminal:
        terminal.expect("<dim>· short: watching from now on</>\n")
        terminal.expect("<dim>· short: caught up at seq 1</>\n")
        server.api.delete("/v0/topics/short")
        terminal.expect("<dim>· short: deleted; its head was 1</>\n")
        terminal.interrupt()
        assert terminal.status() == 0


def test_a_delete_shows_what_goes_and_asks(server: ServerProcess, url: str) -> None:
    topic = Topic(server.api, "doomed")
    topic.write({"data": {"n": 1}, "tag": "x"}, {"data": {"n": 2}})
    preview = 'doomed: 1 record (46 B) would be deleted, seq 1\n       1  TIME  x  {"n":1}\n'
    question = "Delete 1 record of doomed for good? [y/N] "
    with Terminal("delete", "doomed", "--match", "x", url=url) as terminal:
        terminal.expect(question)
        terminal.type("\n")
        assert terminal.status() == 1
        assert terminal.text == f"{preview}{question}\nnothing was changed\n"
    assert topic.state()["count"] == 2
    with Terminal("delete", "doomed", "--match", "x", url=url) as terminal:
        terminal.expect(question)
        terminal.type("y\n")
        assert terminal.status() == 0
        assert terminal.text == f"{preview}{question}y\ndoomed: deleted 1 record, 1 left\n"
    with Terminal("rm", "doomed", url=url) as terminal:
        terminal.expect("Delete doomed (1 record, 45 B) for good? [y/N] ")
        terminal.interrupt()
        assert terminal.status() == 130
        assert terminal.text.endswith("[y/N] ^Ctopics: interrupted\n")
    assert topic.state()["count"] == 1


def test_put_takes_what_is_typed(server: ServerProcess, url: str) -> None:
    with Terminal("put", "typed", url=url) as terminal:
        terminal.expect("one record a line; Ctrl-D ends\n")
        terminal.type('{"n":1}\n')
        eventually(lambda: server.api.get("/v0/topics/typed").status == 200)
        terminal.type("\x04")
        assert terminal.status() == 0
        assert terminal.text.endswith("typed: wrote 1 record, seq 1 (a new topic)\n")


def test_top_is_a_screen_of_its_own_and_puts_everything_back(server: ServerProcess, url: str) -> None:
    with Terminal("top", "--sort", "name", "--every", "200ms", url=url) as terminal:
        terminal.expect("q quit")
        eventually(lambda: terminal.raw.count("\x1b[H") >= 3)
        frame = LAST_FRAME.match(terminal.raw)
        assert frame is not None
        lines = readable(frame[1].replace("\x1b[K", "")).splitlines()
        assert len(lines) <= LINES
        assert re.fullmatch(r"<bold>topics \S+  http://SERVER  up .*</> +\d\d:\d\d:\d\d", lines[0])
        heading = next(line for line in lines if line.startswith("<bold>topic "))
        columns = "records rate/s size ready leased dead watch lost slowest cursor</>"
        assert heading.split()[1:] == columns.split()
        assert any(re.fullmatch(r"clicks +2 +90 B +<red> +3</>", line) for line in lines), lines
        assert any(line.startswith("orders ") and "<yellow>billing 1 behind" in line for line in lines), lines
        terminal.type("s")
        terminal.expect("s sort (by records)")
        terminal.type("q")
        assert terminal.status() == 0
        assert terminal.raw.startswith("\x1b[?1049h\x1b[?25l")
        assert terminal.raw.endswith("\x1b[?25h\x1b[?1049l")


def test_top_shows_what_was_lost_since_it_last_looked(server: ServerProcess, url: str) -> None:
    with Terminal("top", "clicks", "--every", "100ms", url=url) as terminal:
        terminal.expect("q quit")
        Topic(server.api, "clicks").write(*({"data": {"n": number}} for number in range(4)))
        terminal.expect("+4 ✗</>")
        terminal.interrupt()
        assert terminal.status() == 0


def test_work_lets_what_runs_finish_after_ctrl_c(server: ServerProcess, url: str, tmp_path: Path) -> None:
    server.api.put("/v0/topics/slow", {"type": "queue", "lease_ms": 60_000})
    jobs = Topic(server.api, "slow")
    jobs.write({"data": {"n": 1}}, {"data": {"n": 2}})
    go_on = tmp_path / "go on"
    script = f'cat; until [ -e "{go_on}" ]; do sleep 0.05; done; echo finished $JOB_SEQ'
    with Terminal("work", "slow", "--node", "w", "--", "sh", "-c", script, url=url) as terminal:
        terminal.expect("working on slow, 1 job at a time; Ctrl-C ends\n")
        terminal.expect('{"n":1}\n')
        terminal.interrupt()
        terminal.expect("finishing 1 job; Ctrl-C again ends that\n")
        go_on.touch()
        assert terminal.status() == 0
        text = re.sub(r"\(.*?s\)", "(TOOK)", terminal.text)
        assert text.endswith(
            '{"n":1}\n^Cfinishing 1 job; Ctrl-C again ends that\n'
            "finished 1\n<green>✓</> job 1 (TOOK)\n1 job done, 0 failed\n"
        )
    assert jobs.state()["queue"] == {"ready": 1, "in_flight": 0, "dead_lettered": 0}


def test_a_second_ctrl_c_ends_what_runs_and_gives_its_job_back(server: ServerProcess, url: str) -> None:
    server.api.put("/v0/topics/stuck", {"type": "queue", "lease_ms": 60_000})
    jobs = Topic(server.api, "stuck")
    jobs.write({"data": 1})
    with Terminal("work", "stuck", "--", "sh", "-c", "echo begun; sleep 1000", url=url) as terminal:
        terminal.expect("begun\n")
        terminal.interrupt()
        terminal.expect("finishing 1 job; Ctrl-C again ends that\n")
        terminal.interrupt()
        assert terminal.status() == 0
        assert "<red>✗ job 1: killed by signal 15 (" in terminal.text
        assert terminal.text.endswith("; again in 0 ms</>\n0 jobs done, 1 failed\n")
    assert jobs.state()["queue"] == {"ready": 1, "in_flight": 0, "dead_lettered": 0}


def test_a_wrong_key_says_where_it_goes(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path, {"TOPICS_API_KEYS": "s3cret,reader:read"})
    try:
        address = f"http://{process.api.host}:{process.api.port}"
        with Terminal("ls", url=address) as terminal:
            assert terminal.status() == 4
            assert terminal.text.endswith("; put your key into TOPICS_API_KEY\n")
        with Terminal("put", "a", "1", url=address, TOPICS_API_KEY="another") as terminal:
            assert terminal.status() == 4
            assert terminal.text.endswith("this server does not know the API key; correct TOPICS_API_KEY\n")
        with Terminal("put", "a", "1", url=address, TOPICS_API_KEY="reader") as terminal:
            assert terminal.status() == 4
            assert terminal.text.endswith("; use a key that may, in TOPICS_API_KEY\n")
        with Terminal("put", "a", "1", url=address, TOPICS_API_KEY="s3cret") as terminal:
            assert terminal.status() == 0
    finally:
        process.stop()


def test_a_reader_that_has_seen_enough_is_no_error(url: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m topics.cli.main tail clicks --from-seq 0 | head -1"],
        env=environment(url),
        capture_output=True,
        check=False,
        text=True,
    )
    assert masked(done.stdout) == "✗ lost seqs 1 to 3 (cap: the topic is full)\n" or "lost seqs" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_leaves_nothing_behind(tmp_path: Path, sign: signal.Signals) -> None:
    with Terminal("demo", "--port", "0", "--pace", "5", TMPDIR=str(tmp_path)) as terminal:
        terminal.expect("<bold>A shop is open</> at http://SERVER. In another terminal, try:\n")
        terminal.expect("mails sent")
        assert [path.name.startswith("topics-demo-") for path in tmp_path.iterdir()] == [True]
        if sign is signal.SIGINT:
            terminal.interrupt()
        else:
            terminal.terminate()
        assert terminal.status() == 0
        assert "the shop is closed: " in terminal.text
    assert list(tmp_path.iterdir()) == []
    assert not any(str(tmp_path) in line for line in _commands_running())


def _commands_running() -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            yield (
                (process / "environ").read_bytes().decode("utf-8", "replace")
                if process.name != str(os.getpid())
                else ""
            )
        except OSError:
            continue
