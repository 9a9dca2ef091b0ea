"""Settings from the environment and a file: every TOPICS_ variable is read here, once, and nowhere else.

A value the server cannot use refuses to start, naming the variable and what it takes.
"""

import os
import re
import socket
from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

from msgspec import Struct

from topics import limits
from topics.api.auth import KeyStore, parse_keys
from topics.api.sites import parse_hosts, parse_origins
from topics.errors import ConfigurationError
from topics.server.key_file import read_key_file
from topics.wire.unknown_fields import nearest

_DIGITS_MAX = 20
_SERVICE_LINK = re.compile(r"(?:tcp|udp|sctp)://", re.IGNORECASE)
_BOOLEANS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
# Read by clients, commands and tests.
_OF_OTHERS = ("TOPICS_API_KEYS", "TOPICS_API_KEY", "TOPICS_URL")
_VARIABLE = re.compile(r"TOPICS_([A-Z_]+)")
_OF_A_SERVICE = re.compile(r"TOPICS_(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?|TEST_\w+)")
_LOG_LEVELS = {
    "trace": "DEBUG",
    "debug": "DEBUG",
    "info": "INFO",
    "warn": "WARNING",
    "error": "ERROR",
    "off": "CRITICAL",
}


class Settings(Struct, frozen=True, kw_only=True):
    host: str
    port: int
    port_file: str
    keys: KeyStore
    keys_file: str
    allow_insecure_no_auth: bool
    probe_auth: bool
    cors_origins: tuple[str, ...]
    allowed_hosts: tuple[str, ...]
    log_level: str
    log_format: str
    data_dir: str
    cold_dir: str
    wal_shards: int
    segment_events_max: int
    segment_bytes_max: int
    segment_age_ms_max: int
    unsealed_bytes_max: int
    hot_retain_segments: int
    hot_retain_bytes: int
    free_bytes_min: int
    sealed_text: bool
    seal_process: bool
    body_bytes_max: int
    batch_records_max: int
    record_bytes_max: int
    meta_bytes_max: int
    tag_bytes_max: int
    node_bytes_max: int
    diff_limit_max: int
    claim_max: int
    watch_topics_max: int
    topics_max: int
    routers_max: int
    watch_sessions_max: int
    sse_connections_max: int
    sse_connections_per_key_max: int
    inflight_per_key_max: int
    total_bytes_max: int
    warnings: tuple[str, ...] = ()  # for the log, which does not exist yet when the settings are read

    @property
    def is_loopback(self) -> bool:
        if self.host in ("localhost", "127.0.0.1"):
            return True
        from ipaddress import ip_address  # noqa: PLC0415 - most servers never need it

        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


class _Environment:
    """Reads typed values out of a mapping; a variable that is empty counts as not set."""

    def __init__(self, values: MutableMapping[str, str], given: set[str], file: Mapping[str, str]) -> None:
        self._values = values
        self._given = given  # before the file was joined
        self._file = file
        self._known = set(_OF_OTHERS)  # what is asked for, and what is not for the server
        self.effective: dict[str, str] = {}  # what was asked for, as it was given or by default
        self.warnings: list[str] = []

    def source(self, name: str) -> str:
        if name in self._given:
            return "environment"
        return "file" if name in self._file else "default"

    def as_written(self, message: str) -> str:
        """A sentence about a setting of the file calls settings by the names they have there."""
        about = _VARIABLE.match(message)
        if about is None or self.source(about[0]) != "file":
            return message
        return "in the settings file, " + _VARIABLE.sub(lambda name: name[1].lower(), message)

    def unknown(self) -> list[str]:
        """A sentence for each variable that looks like a setting but is not one."""
        known = [name.removeprefix("TOPICS_") for name in sorted(self._known)]
        return [
            f"{name} is not a setting: it does nothing." + (f" Did you mean TOPICS_{meant}?" if meant else "")
            for name in sorted(self._values)
            if name.startswith("TOPICS_") and name not in self._known and not _OF_A_SERVICE.fullmatch(name)
            for meant in [nearest(name.removeprefix("TOPICS_"), known)]
        ]

    def text(self, name: str, default: str) -> str:
        self._known.add(name)
        value = self._values.get(name, "").strip()
        if _SERVICE_LINK.match(value):
            self.warnings.append(
                f"{name}={value[:80]} is not a setting but the address of a service named `topics`, as Kubernetes and "
                "Docker put it there: ignored. To be rid of this warning, set enableServiceLinks: false in the pod, or "
                "give the service another name"
            )
            value = ""
        self.effective[name] = value or default
        return value or default

    def boolean(self, name: str, *, default: bool = False) -> bool:
        value = self.text(name, "1" if default else "0").lower()
        if value not in _BOOLEANS:
            raise ConfigurationError(f"{name}={value!r}: use 1 or 0")
        return _BOOLEANS[value]

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of `choices`; the first is the default."""
        value = self.text(name, choices[0]).lower()
        if value not in choices:
            raise ConfigurationError(f"{name}={value[:40]!r}: use one of {', '.join(choices)}")
        return value

    def number(self, name: str, default: int, minimum: int, maximum: int = limits.U64_MAX) -> int:
        value = self.text(name, str(default))
        if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX):
            raise ConfigurationError(f"{name}={value[:40]!r}: use a whole number")
        number = int(value)
        if not minimum <= number <= maximum:
            raise ConfigurationError(f"{name}={value}: use a number from {minimum} to {maximum}")
        return number


class Described(NamedTuple):
    """A setting for people; `source` is `environment`, `file` or `default`."""

    name: str
    value: str
    source: str


def read_settings(
    environment: MutableMapping[str, str] | None = None, *, strict: bool = False, file: Mapping[str, str] | None = None
) -> Settings:
    """The settings of this process; a variable of the environment wins over `file`. TOPICS_API_KEYS is taken out of the
    environment: only digests stay. A TOPICS_ variable that nobody knows is a warning; `strict` refuses it. In a file it
    is always refused: nobody but the server reads that."""
    values = os.environ if environment is None else environment
    return _read(_joined(values, file or {}), values, strict, file or {})


def describe_settings(environment: MutableMapping[str, str], file: Mapping[str, str]) -> list[Described]:
    """Every setting, in the order they are read. Of keys, only how many there are."""
    env = _joined(environment, file)
    keys = len(_read(env, environment, False, file).keys.fixed)
    env.effective["TOPICS_API_KEYS"] = f"{keys} key{'' if keys == 1 else 's'}" if keys else ""
    return [Described(name, value, env.source(name)) for name, value in env.effective.items()]


def _joined(values: MutableMapping[str, str], file: Mapping[str, str]) -> _Environment:
    given = {name for name, value in values.items() if value.strip()}
    for name in file.keys() - given:
        values[name] = file[name]
    return _Environment(values, given, file)


def _read(env: _Environment, values: MutableMapping[str, str], strict: bool, file: Mapping[str, str]) -> Settings:
    try:
        return _checked(env, values, strict, file)
    except ConfigurationError as error:
        raise ConfigurationError(env.as_written(error.message)) from None


def _checked(env: _Environment, values: MutableMapping[str, str], strict: bool, file: Mapping[str, str]) -> Settings:
    host, port = _read_address(env)
    fixed_keys = parse_keys(values.pop("TOPICS_API_KEYS", ""))
    keys_file = env.text("TOPICS_API_KEYS_FILE", "")
    file_keys, key_warnings = read_key_file(keys_file) if keys_file else ((), [])
    settings = Settings(
        host=host,
        port=port,
        port_file=env.text("TOPICS_PORT_FILE", ""),
        keys=KeyStore(fixed_keys, file_keys),
        keys_file=keys_file,
        allow_insecure_no_auth=env.boolean("TOPICS_ALLOW_INSECURE_NO_AUTH"),
        probe_auth=env.boolean("TOPICS_PROBE_AUTH"),
        cors_origins=parse_origins(env.text("TOPICS_CORS_ORIGINS", "")),
        allowed_hosts=parse_hosts(env.text("TOPICS_ALLOWED_HOSTS", "")),
        log_level=_read_log_level(env),
        log_format=env.choice("TOPICS_LOG_FORMAT", ("text", "json")),
        data_dir=env.text("TOPICS_DATA_DIR", "./topics-data"),
        cold_dir=env.text("TOPICS_COLD_DIR", ""),
        wal_shards=env.number("TOPICS_WAL_SHARDS", min(os.cpu_count() or 1, 8), 1, 64),
        segment_events_max=env.number("TOPICS_SEGMENT_MAX_EVENTS", limits.SEGMENT_EVENTS_MAX, 1, limits.U32_MAX),
        segment_bytes_max=env.number("TOPICS_SEGMENT_MAX_BYTES", limits.SEGMENT_BYTES_MAX, 1, limits.GIB),
        segment_age_ms_max=env.number("TOPICS_SEGMENT_MAX_AGE_MS", limits.SEGMENT_AGE_MS_MAX, 0),
        unsealed_bytes_max=env.number("TOPICS_UNSEALED_MAX_BYTES", limits.UNSEALED_BYTES_MAX, limits.MIB),
        hot_retain_segments=env.number("TOPICS_HOT_RETAIN_SEGMENTS", limits.HOT_RETAIN_SEGMENTS, 0),
        hot_retain_bytes=env.number("TOPICS_HOT_RETAIN_BYTES", 0, 0),
        free_bytes_min=env.number("TOPICS_MIN_FREE_BYTES", limits.FREE_BYTES_MIN, 0),
        sealed_text=env.boolean("TOPICS_SEALED_TEXT", default=True),
        seal_process=env.boolean("TOPICS_SEAL_PROCESS", default=True),
        body_bytes_max=env.number("TOPICS_MAX_BODY_BYTES", limits.BODY_BYTES_MAX, 1, limits.GIB),
        batch_records_max=env.number("TOPICS_MAX_BATCH_RECORDS", limits.BATCH_RECORDS_MAX, 1),
        record_bytes_max=env.number("TOPICS_MAX_RECORD_BYTES", limits.RECORD_BYTES_MAX, 1, limits.GIB),
        meta_bytes_max=env.number("TOPICS_MAX_META_BYTES", limits.META_BYTES_MAX, 0, limits.GIB),
        tag_bytes_max=env.number("TOPICS_MAX_TAG_BYTES", limits.TAG_BYTES_MAX, 0, limits.U16_MAX),
        node_bytes_max=env.number("TOPICS_MAX_NODE_BYTES", limits.NODE_BYTES_MAX, 0, limits.U16_MAX),
        diff_limit_max=env.number("TOPICS_MAX_LIMIT", limits.DIFF_LIMIT_MAX, 1, limits.U32_MAX),
        claim_max=env.number("TOPICS_MAX_CLAIM", limits.CLAIM_MAX, 1, limits.U32_MAX),
        watch_topics_max=env.number("TOPICS_MAX_WATCH_TOPICS", limits.WATCH_TOPICS_MAX, 1, limits.U32_MAX),
        topics_max=env.number("TOPICS_MAX_TOPICS", limits.TOPICS_MAX, 0),
        routers_max=env.number("TOPICS_MAX_ROUTERS", limits.ROUTERS_MAX, 0),
        watch_sessions_max=env.number("TOPICS_MAX_WATCH_SESSIONS", limits.WATCH_SESSIONS_MAX, 0),
        sse_connections_max=env.number("TOPICS_MAX_SSE_CONNECTIONS", limits.SSE_CONNECTIONS_MAX, 0),
        sse_connections_per_key_max=env.number(
            "TOPICS_MAX_SSE_CONNECTIONS_PER_KEY", limits.SSE_CONNECTIONS_PER_KEY_MAX, 0
        ),
        inflight_per_key_max=env.number("TOPICS_MAX_INFLIGHT_PER_KEY", limits.INFLIGHT_PER_KEY_MAX, 0),
        total_bytes_max=env.number("TOPICS_MAX_TOTAL_BYTES", limits.TOTAL_BYTES_MAX, 0),
        warnings=(*env.warnings, *key_warnings, *env.unknown()),
    )
    unknown = [sentence for sentence in env.unknown() if strict or sentence.partition(" ")[0] in file]
    if unknown:
        raise ConfigurationError(" ".join(unknown))
    if not settings.is_loopback and not settings.keys and not settings.allow_insecure_no_auth:
        require_host(settings.host)
        raise ConfigurationError(
            f"TOPICS_HOST={settings.host} is reachable from other machines and no API keys are set: anybody could "
            "read and delete everything. Set TOPICS_API_KEYS or TOPICS_API_KEYS_FILE, bind to 127.0.0.1, or, only in a "
            "private network, set TOPICS_ALLOW_INSECURE_NO_AUTH=1"
        )
    return settings


def require_host(host: str) -> None:
    """Refuses a name that stands for no address."""
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        raise ConfigurationError(
            f"TOPICS_HOST={host}: there is no such host ({error.strerror or error}). Use an address of this machine, "
            "such as 127.0.0.1, or a name that stands for one"
        ) from None


def _read_address(env: _Environment) -> tuple[str, int]:
    """TOPICS_HOST may also be host:port (an IPv6 address then in brackets); it wins over TOPICS_PORT."""
    port = env.number("TOPICS_PORT", 4000, 0, limits.U16_MAX)
    host, port_of_host = split_address(env.text("TOPICS_HOST", "127.0.0.1"))
    return host, port if port_of_host is None else port_of_host


def split_address(text: str) -> tuple[str, int | None]:
    """The host in a TOPICS_HOST, without brackets, and the port if it has one."""
    before, separator, after = text.rpartition(":")
    if not separator or (":" in before and not (before.startswith("[") and before.endswith("]"))):
        return text.strip("[]"), None
    if not (after.isascii() and after.isdigit() and len(after) <= _DIGITS_MAX and int(after) <= limits.U16_MAX):
        raise ConfigurationError(f"TOPICS_HOST={text!r}: the part after ':' is not a port")
    return before.strip("[]"), int(after)


def _read_log_level(env: _Environment) -> str:
    value = env.text("TOPICS_LOG", "")
    if not value:
        return _level_of_filter(env.text("RUST_LOG", ""))
    level = _LOG_LEVELS.get(value.lower())
    if level is None:
        raise ConfigurationError(f"TOPICS_LOG={value!r}: use one of {', '.join(_LOG_LEVELS)}")
    return level


def _level_of_filter(text: str) -> str:
    """Of a filter such as `warn,topics=debug`, the name the variable has in the API's documentation: the level it gives
    to `topics`, or to everything. Others may have set it for their own programs, so it is never refused."""
    levels: dict[str, str] = {}
    for part in text.lower().split(","):
        target, _, level = part.strip().rpartition("=")
        levels[target] = level
    return _LOG_LEVELS.get(levels.get("topics", levels.get("", "")), "INFO")
