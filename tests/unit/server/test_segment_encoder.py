"""Large blocks are encoded in another process, to the same bytes, and whatever happens to it nothing is lost."""

import logging
import os
import resource
import signal
from array import array
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.client import eventually
from topics import limits
from topics.model.record import Columns, render_fragment
from topics.server.segment_encoder import SegmentEncoder
from topics.storage.segment_writer import encode_segment


def started() -> SegmentEncoder:
    """One whose process can be asked."""
    encoder = SegmentEncoder(elsewhere=True)
    eventually(encoder.is_ready)
    return encoder


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[SegmentEncoder]:
    encoder = started()
    yield encoder
    encoder.close()


@pytest.fixture
def all_blocks_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENCODED_ELSEWHERE_RECORDS_MIN", 1)


def columns_of(records: list[tuple[bool, int, str | None, str | None, bytes]]) -> Columns:
    """Each as (live, ts, node, tag, meta)."""
    rendered = [
        render_fragment(seq, ts, node, b'{"n":%d}' % seq, meta) for seq, (_, ts, node, _, meta) in enumerate(records, 1)
    ]
    return Columns(
        [fragment if live else None for (live, *_), (fragment, _) in zip(records, rendered, strict=True)],
        array("q", (ts for _, ts, _, _, _ in records)),
        array("I", (meta_at for _, meta_at in rendered)),
        [node if live else None for live, _, node, _, _ in records],
        [tag if live else None for live, _, _, tag, _ in records],
    )


def many() -> Columns:
    return columns_of([(True, 1000, None, None, b"")] * limits.ENCODED_ELSEWHERE_RECORDS_MIN)


def name() -> st.SearchStrategy[str | None]:
    return st.none() | st.text(max_size=8)


def record() -> st.SearchStrategy[tuple[bool, int, str | None, str | None, bytes]]:
    metas = st.sampled_from([b"", b'{"k":"v"}', '{"k":"\u00e9"}'.encode()])
    return st.tuples(st.booleans(), st.integers(0, 2**62), name(), name(), metas)


@pytest.mark.usefixtures("all_blocks_are_large")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(records=st.lists(record(), min_size=1, max_size=40), with_text=st.booleans())
def test_both_ways_give_the_same_bytes(
    elsewhere: SegmentEncoder, records: list[tuple[bool, int, str | None, str | None, bytes]], with_text: bool
) -> None:
    columns = columns_of(records)
    assert elsewhere.encode(1, columns, with_text=with_text) == encode_segment(1, columns, with_text=with_text)
    assert elsewhere.process_id is not None


def test_a_small_block_starts_no_process() -> None:
    encoder = SegmentEncoder(elsewhere=True)
    columns = columns_of([(True, 1000, None, None, b"")])
    assert encoder.encode(1, columns, with_text=True) == encode_segment(1, columns, with_text=True)
    assert encoder.process_id is None


def test_a_server_that_may_not_start_a_process_encodes_everything_itself() -> None:
    encoder = SegmentEncoder(elsewhere=False)
    assert encoder.encode(1, many(), with_text=True) == encode_segment(1, many(), with_text=True)
    assert encoder.process_id is None


def test_a_process_that_was_killed_is_told_and_the_next_block_starts_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    encoder = started()
    first = encoder.process_id
    assert first is not None
    os.kill(first, signal.SIGKILL)
    with caplog.at_level(logging.WARNING):
        assert encoder.encode(1, many(), with_text=True) == encode_segment(1, many(), with_text=True)
    assert "the next large block starts another" in caplog.text
    eventually(encoder.is_ready)
    assert encoder.process_id not in (None, first)
    encoder.close()


def test_a_process_that_keeps_dying_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    encoder = SegmentEncoder(elsewhere=True)
    with caplog.at_level(logging.WARNING):
        while len(caplog.records) < limits.SEGMENT_PROCESS_STARTS_MAX:
            assert encoder.encode(1, many(), with_text=False) == encode_segment(1, many(), with_text=False)
    assert len(caplog.records) == limits.SEGMENT_PROCESS_STARTS_MAX
    assert "from now on the server encodes them itself" in caplog.records[-1].message


def test_a_process_that_cannot_be_started_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    encoder = SegmentEncoder(elsewhere=True)
    with caplog.at_level(logging.WARNING):
        assert encoder.encode(1, many(), with_text=True) == encode_segment(1, many(), with_text=True)
    assert "it could not be started" in caplog.text


def test_signals_for_the_server_do_not_end_the_process() -> None:
    encoder = started()
    process_id = encoder.process_id
    assert process_id is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(process_id, number)
    assert encoder.encode(1, many(), with_text=True) == encode_segment(1, many(), with_text=True)
    assert encoder.process_id == process_id
    encoder.close()


def test_a_server_with_thousands_of_connections_can_ask_the_process() -> None:
    """Some ways to ask whether a socket has anything to read end at file descriptor 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        encoder = started()
        assert encoder.encode(1, many(), with_text=True) == encode_segment(1, many(), with_text=True)
        encoder.close()
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_closing_ends_the_process() -> None:
    encoder = started()
    process_id = encoder.process_id
    assert process_id is not None
    encoder.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)
