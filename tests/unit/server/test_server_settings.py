"""Settings: every environment variable, its default, what it takes and what it refuses."""

import os
import socket

import pytest

from topics import limits
from topics.errors import ConfigurationError
from topics.server.settings import Settings, read_settings

NUMBERS = [
    # variable, field, default, smallest, largest
    ("TOPICS_PORT", "port", 4000, 0, limits.U16_MAX),
    ("TOPICS_WAL_SHARDS", "wal_shards", min(os.cpu_count() or 1, 8), 1, 64),
    ("TOPICS_SEGMENT_MAX_EVENTS", "segment_events_max", 10_000, 1, limits.U32_MAX),
    ("TOPICS_SEGMENT_MAX_BYTES", "segment_bytes_max", 64 * limits.MIB, 1, limits.GIB),
    ("TOPICS_SEGMENT_MAX_AGE_MS", "segment_age_ms_max", 3_600_000, 0, limits.U64_MAX),
    ("TOPICS_HOT_RETAIN_SEGMENTS", "hot_retain_segments", 4, 0, limits.U64_MAX),
    ("TOPICS_HOT_RETAIN_BYTES", "hot_retain_bytes", 0, 0, limits.U64_MAX),
    ("TOPICS_MIN_FREE_BYTES", "free_bytes_min", 256 * limits.MIB, 0, limits.U64_MAX),
    ("TOPICS_MAX_BODY_BYTES", "body_bytes_max", 64 * limits.MIB, 1, limits.GIB),
    ("TOPICS_MAX_BATCH_RECORDS", "batch_records_max", 10_000, 1, limits.U64_MAX),
    ("TOPICS_MAX_RECORD_BYTES", "record_bytes_max", limits.MIB, 1, limits.GIB),
    ("TOPICS_MAX_META_BYTES", "meta_bytes_max", 16 * limits.KIB, 0, limits.GIB),
    ("TOPICS_MAX_TAG_BYTES", "tag_bytes_max", 256, 0, limits.U16_MAX),
    ("TOPICS_MAX_NODE_BYTES", "node_bytes_max", 128, 0, limits.U16_MAX),
    ("TOPICS_MAX_LIMIT", "diff_limit_max", 1000, 1, limits.U32_MAX),
    ("TOPICS_MAX_CLAIM", "claim_max", 1000, 1, limits.U32_MAX),
    ("TOPICS_MAX_WATCH_TOPICS", "watch_topics_max", 256, 1, limits.U32_MAX),
    ("TOPICS_MAX_TOPICS", "topics_max", 100_000, 0, limits.U64_MAX),
    ("TOPICS_MAX_ROUTERS", "routers_max", 10_000, 0, limits.U64_MAX),
    ("TOPICS_MAX_WATCH_SESSIONS", "watch_sessions_max", 10_000, 0, limits.U64_MAX),
    ("TOPICS_MAX_SSE_CONNECTIONS", "sse_connections_max", 10_000, 0, limits.U64_MAX),
    ("TOPICS_MAX_SSE_CONNECTIONS_PER_KEY", "sse_connections_per_key_max", 1000, 0, limits.U64_MAX),
    ("TOPICS_MAX_INFLIGHT_PER_KEY", "inflight_per_key_max", 1000, 0, limits.U64_MAX),
    ("TOPICS_MAX_TOTAL_BYTES", "total_bytes_max", 0, 0, limits.U64_MAX),
]
FLAGS = [("TOPICS_ALLOW_INSECURE_NO_AUTH", "allow_insecure_no_auth"), ("TOPICS_PROBE_AUTH", "probe_auth")]
TEXTS = [
    ("TOPICS_PORT_FILE", "port_file", ""),
    ("TOPICS_DATA_DIR", "data_dir", "./topics-data"),
    ("TOPICS_COLD_DIR", "cold_dir", ""),
]


def settings(**environment: str) -> Settings:
    return read_settings(dict(environment))


def refusal(**environment: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        settings(**environment)
    return refused.value.message


@pytest.mark.parametrize(("variable", "field", "default", "smallest", "largest"), NUMBERS)
def test_a_number_has_its_default_and_takes_its_whole_range(
    variable: str, field: str, default: int, smallest: int, largest: int
) -> None:
    assert getattr(settings(), field) == default
    assert getattr(settings(**{variable: str(smallest)}), field) == smallest
    assert getattr(settings(**{variable: str(largest)}), field) == largest


@pytest.mark.parametrize(("variable", "field", "default", "smallest", "largest"), NUMBERS)
def test_a_number_out_of_its_range_is_refused_by_name(
    variable: str, field: str, default: int, smallest: int, largest: int
) -> None:
    for outside in [largest + 1, *([smallest - 1] if smallest else [])]:
        message = refusal(**{variable: str(outside)})
        assert message.startswith(f"{variable}={outside}: ")
        assert f"from {smallest} to {largest}" in message


@pytest.mark.parametrize("variable", [variable for variable, *_ in NUMBERS])
@pytest.mark.parametrize("value", ["-1", "+1", "1.0", "1e3", "ten", "0x10", "1_000", "1 000", "\u0661"])
def test_what_is_no_whole_number_is_refused_by_name(variable: str, value: str) -> None:
    assert refusal(**{variable: value}).startswith(f"{variable}={value!r}: ")


@pytest.mark.parametrize(
    ("variable", "value"), [("TOPICS_MAX_TOPICS", "1" * 5000), ("TOPICS_HOST", "localhost:" + "1" * 5000)]
)
def test_a_number_of_absurd_length_is_refused_by_name(variable: str, value: str) -> None:
    assert refusal(**{variable: value}).startswith(f"{variable}=")


@pytest.mark.parametrize(("variable", "field", "default", "smallest", "largest"), NUMBERS)
def test_an_empty_variable_counts_as_not_set(
    variable: str, field: str, default: int, smallest: int, largest: int
) -> None:
    assert getattr(settings(**{variable: "  "}), field) == default


@pytest.mark.parametrize(("variable", "field"), FLAGS)
def test_a_flag_is_off_until_it_is_set(variable: str, field: str) -> None:
    assert getattr(settings(), field) is False
    for on in ("1", "true", "YES", " on "):
        assert getattr(settings(**{variable: on}), field) is True
    for off in ("0", "false", "No", "off", ""):
        assert getattr(settings(**{variable: off}), field) is False


@pytest.mark.parametrize(("variable", "field"), FLAGS)
def test_what_is_no_flag_is_refused_by_name(variable: str, field: str) -> None:
    assert refusal(**{variable: "maybe"}) == f"{variable}='maybe': use 1 or 0"


@pytest.mark.parametrize(("variable", "field", "default"), TEXTS)
def test_a_text_has_its_default(variable: str, field: str, default: str) -> None:
    assert getattr(settings(), field) == default
    assert getattr(settings(**{variable: " /some/where "}), field) == "/some/where"


# Address


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({}, ("127.0.0.1", 4000)),
        ({"TOPICS_HOST": "localhost"}, ("localhost", 4000)),
        ({"TOPICS_HOST": "127.0.0.1:7000"}, ("127.0.0.1", 7000)),
        ({"TOPICS_HOST": "127.0.0.1:7000", "TOPICS_PORT": "8000"}, ("127.0.0.1", 7000)),
        ({"TOPICS_HOST": "[::1]:0", "TOPICS_PORT": "8000"}, ("::1", 0)),
        ({"TOPICS_HOST": "::1"}, ("::1", 4000)),
        ({"TOPICS_HOST": "[::1]"}, ("::1", 4000)),
        ({"TOPICS_HOST": "[::1]:7000"}, ("::1", 7000)),
        ({"TOPICS_PORT": "0"}, ("127.0.0.1", 0)),
    ],
)
def test_the_address_is_read_from_host_and_port(environment: dict[str, str], address: tuple[str, int]) -> None:
    read = settings(**environment)
    assert (read.host, read.port) == address


@pytest.mark.parametrize("host", ["127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "[::1]:x", "localhost:-1"])
def test_a_host_with_a_bad_port_is_refused_by_name(host: str) -> None:
    assert refusal(TOPICS_HOST=host).startswith(f"TOPICS_HOST={host!r}: ")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]:5"])
def test_loopback_needs_no_keys(host: str) -> None:
    assert settings(TOPICS_HOST=host).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.com", "[::]:4000"])
def test_any_other_address_without_keys_is_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [])  # no name server is asked
    message = refusal(TOPICS_HOST=host)
    assert "TOPICS_HOST=" in message
    assert "TOPICS_ALLOW_INSECURE_NO_AUTH=1" in message


def test_any_address_is_allowed_with_keys() -> None:
    assert not settings(TOPICS_HOST="0.0.0.0", TOPICS_API_KEYS="secret").is_loopback


def test_any_address_is_allowed_when_insisted_on() -> None:
    assert not settings(TOPICS_HOST="0.0.0.0", TOPICS_ALLOW_INSECURE_NO_AUTH="1").keys


# A service of the name topics


@pytest.mark.parametrize("link", ["tcp://10.96.7.3:4000", "udp://10.96.7.3:53", "TCP://[fd00::3]:4000"])
def test_the_port_that_kubernetes_injects_for_a_service_is_ignored_with_a_warning(link: str) -> None:
    read = settings(
        TOPICS_PORT=link,
        TOPICS_SERVICE_HOST="10.96.7.3",
        TOPICS_SERVICE_PORT="4000",
        TOPICS_PORT_4000_TCP=link,
        TOPICS_PORT_4000_TCP_PROTO="tcp",
        TOPICS_PORT_4000_TCP_PORT="4000",
        TOPICS_PORT_4000_TCP_ADDR="10.96.7.3",
    )
    assert (read.host, read.port) == ("127.0.0.1", 4000)
    (warning,) = read.warnings
    assert warning.startswith(f"TOPICS_PORT={link} ")
    assert "enableServiceLinks: false" in warning


@pytest.mark.parametrize(("variable", "field", "default", "smallest", "largest"), NUMBERS)
def test_no_setting_takes_the_address_of_a_service_for_its_value(
    variable: str, field: str, default: int, smallest: int, largest: int
) -> None:
    read = settings(**{variable: "tcp://10.96.7.3:4000"})
    assert getattr(read, field) == default
    assert read.warnings


def test_a_port_in_the_host_is_used_beside_the_address_of_a_service() -> None:
    assert settings(TOPICS_HOST="127.0.0.1:7000", TOPICS_PORT="tcp://10.96.7.3:4000").port == 7000


def test_ordinary_settings_warn_of_nothing() -> None:
    assert settings(TOPICS_PORT="7000").warnings == ()


# Keys


def test_keys_are_taken_out_of_the_environment() -> None:
    environment = {"TOPICS_API_KEYS": "secret:read"}
    assert read_settings(environment).keys
    assert environment == {}


def test_a_malformed_scope_is_refused_without_showing_the_key() -> None:
    message = refusal(TOPICS_API_KEYS="ok,top-secret:reed")
    assert "TOPICS_API_KEYS" in message
    assert "entry 2" in message
    assert "secret" not in message


# Log level


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("trace", "DEBUG"),
        ("debug", "DEBUG"),
        ("INFO", "INFO"),
        ("warn", "WARNING"),
        ("error", "ERROR"),
        ("off", "CRITICAL"),
    ],
)
@pytest.mark.parametrize("variable", ["TOPICS_LOG", "RUST_LOG"])
def test_the_log_level_is_a_word(variable: str, value: str, level: str) -> None:
    assert settings(**{variable: value}).log_level == level


def test_the_log_level_is_info_by_default_and_its_own_name_wins() -> None:
    assert settings().log_level == "INFO"
    assert settings(TOPICS_LOG="error", RUST_LOG="debug").log_level == "ERROR"


def test_another_log_level_is_refused_by_name() -> None:
    assert refusal(TOPICS_LOG="loud").startswith("TOPICS_LOG='loud': ")


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("topics=debug,info", "DEBUG"),
        ("warn,hyper=debug", "WARNING"),
        ("hyper=debug", "INFO"),
        ("error, topics=warn", "WARNING"),
        ("topics[span]=trace", "INFO"),
        ("loud", "INFO"),
        (",", "INFO"),
    ],
)
def test_a_filter_meant_for_others_too_is_never_refused(value: str, level: str) -> None:
    assert settings(RUST_LOG=value).log_level == level


def test_the_environment_of_the_process_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_MAX_TOPICS", "7")
    assert read_settings().topics_max == 7


def test_a_variable_nobody_knows_is_a_warning_with_the_nearest_name() -> None:
    read = settings(TOPICS_MAX_BODY="1", TOPICS_ZZ="1", TOPICS_API_KEY="k", TOPICS_PORT_4000_TCP="x", OTHER="1")
    assert read.warnings == (
        "TOPICS_MAX_BODY is not a setting: it does nothing. Did you mean TOPICS_MAX_BODY_BYTES?",
        "TOPICS_ZZ is not a setting: it does nothing.",
    )


def test_strict_refuses_a_variable_nobody_knows() -> None:
    with pytest.raises(ConfigurationError, match="TOPICS_MAX_BODY is not a setting"):
        read_settings({"TOPICS_MAX_BODY": "1"}, strict=True)
    assert not read_settings({"TOPICS_PORT": "1"}, strict=True).warnings


def test_a_name_that_stands_for_no_address_is_not_called_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    assert refusal(TOPICS_HOST="nohost.invalid").startswith("TOPICS_HOST=nohost.invalid: there is no such host (Name")


def test_the_log_is_text_or_json() -> None:
    assert settings().log_format == "text"
    assert settings(TOPICS_LOG_FORMAT="JSON").log_format == "json"
    with pytest.raises(ConfigurationError, match=r"TOPICS_LOG_FORMAT='xml': use one of text, json"):
        settings(TOPICS_LOG_FORMAT="xml")
