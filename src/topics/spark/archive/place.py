"""Where an archive is: a directory, or an address in an object store. The only door to its files, for driver and tasks.

Object stores are reached through `deltalake`, for the files as for the tables, so its options are the only ones. They
are environment variables of the driver (`AWS_…`, `GOOGLE_…`, `AZURE_…`); the command line sets those of `--storage`. A
place takes them along to the tasks and never shows them. Tasks use this, so Delta is imported only for an address.

A directory is synced; an object is durable once it is written. A store has no directories, and moves by copying.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyarrow import fs

from topics.spark.archive.errors import StoreFailed
from topics.spark.errors import InvalidOption

SCHEMES = {"s3": "AWS_", "s3a": "AWS_", "gs": "GOOGLE_", "az": "AZURE_", "abfs": "AZURE_", "abfss": "AZURE_"}
"""Of addresses, and how the names of their options begin."""
PATIENCE = {"max_retries": "5", "retry_timeout": "60s", "connect_timeout": "5s"}
"""Delta's own is three minutes for each request."""
SECRET = re.compile(r"SECRET|TOKEN|PASSWORD|CREDENTIAL|SAS|KEY$")

_OPTION = re.compile(r"(AWS|GOOGLE|AZURE)_[A-Z0-9_]+")
_FROM_STORE = re.compile(r"Generic \w+ error|Error performing|Object at location|loading credentials")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_QUERY = re.compile(r"\?\S*")
_PROBLEMS = (
    ("URL scheme is not allowed", "its endpoint has no TLS: set AWS_ALLOW_HTTP=true to use it all the same"),
    (
        r"169\.254\.|/latest/(api/token|meta-data)|loading credentials|token request",
        "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what the store has instead",
    ),
    ("NoSuchBucket|ContainerNotFound|bucket does not exist", "there is no such bucket: create it, or name another one"),
    (
        "SignatureDoesNotMatch|InvalidAccessKeyId|AuthenticationFailed|401 Unauthorized",
        "it refused the credentials: check the key and its secret in the environment",
    ),
    ("AccessDenied|403 Forbidden", "the credentials do not suffice: they have to list, read, write and delete there"),
    (
        "PermanentRedirect|AuthorizationHeaderMalformed|Moved Permanently",
        "the bucket is in another region: set AWS_REGION",
    ),
    (
        r"\(Connect\)|dns error|error sending request|timed out",
        "{endpoint} cannot be reached: check the address, AWS_ENDPOINT_URL and the network",
    ),
)


@dataclass(frozen=True, slots=True)
class Place:
    """`root` is a path or an address; all other paths are relative to it. `options` are Delta's."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, root: str) -> "Place":
        """Raises `InvalidOption` for an address that is not in a known kind of store."""
        scheme, is_address, rest = root.partition("://")
        if not is_address:
            return cls(root)
        if scheme not in SCHEMES or not rest.strip("/"):
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise InvalidOption("archive", f"{root} is neither a directory nor an address that begins with {known}")
        given = {name: value for name, value in os.environ.items() if name.startswith(SCHEMES[scheme])}
        return cls(root.rstrip("/"), PATIENCE | given)

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    def at(self, path: str) -> str:
        """As people name it, and Delta."""
        return os.path.join(self.root, path)

    def size(self, path: str) -> int | None:
        """None if there is no such file."""
        with self.reaching():
            found = self._files().get_file_info(path)
        return found.size if found.type is fs.FileType.File else None

    def names(self, directory: str = "") -> list[str]:
        """What is in a directory, not below it."""
        with self.reaching():
            found = self._files().get_file_info(fs.FileSelector(directory, allow_not_found=True))
        return sorted(os.path.basename(info.path) for info in found)

    def files(self, directory: str) -> list[str]:
        """The paths of all files below a directory."""
        with self.reaching():
            found = self._files().get_file_info(fs.FileSelector(directory, allow_not_found=True, recursive=True))
        return sorted(info.path for info in found if info.type is fs.FileType.File)

    def open(self, path: str) -> pa.NativeFile:
        with self.reaching():
            return self._files().open_input_file(path)

    def create(self, path: str) -> pa.NativeFile:
        """Its directory is made if it is missing."""
        with self.reaching():
            self._files().create_dir(os.path.dirname(path), recursive=True)
            return self._files().open_output_stream(path)

    def move(self, path: str, to: str) -> None:
        with self.reaching():
            self._files().create_dir(os.path.dirname(to), recursive=True)
            self._files().move(path, to)

    def remove(self, path: str) -> None:
        """Does nothing if there is no such file."""
        with self.reaching(), suppress(FileNotFoundError):
            self._files().delete_file(path)

    def remove_all(self, directory: str) -> None:
        """A directory with all that is in it, and the one it is in if that is empty then."""
        with self.reaching(), suppress(FileNotFoundError):
            self._files().delete_dir(directory)
        if self.is_local:
            with suppress(OSError):
                os.rmdir(os.path.dirname(os.path.join(self.root, directory)))

    def sync(self, path: str) -> None:
        """Makes the content of a file durable, or the names in a directory."""
        if not self.is_local:
            return
        descriptor = os.open(os.path.join(self.root, path), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def require_writable(self) -> None:
        """Writes an object and removes it again. Raises `StoreFailed`."""
        probe = f"staging/probe-{os.urandom(8).hex()}"
        with self.reaching():
            with self.create(probe) as file:
                file.write(b"probe")
            self.remove(probe)

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Turns what a store answers, and that it does not answer, into `StoreFailed`."""
        try:
            yield
        except StoreFailed:
            raise
        except Exception as error:  # Arrow and Delta pass on the same text in different errors
            if self.is_local or _FROM_STORE.search(str(error)) is None:
                raise
            # Without its cause: that may show an address with a key in it.
            raise StoreFailed(self.root, self._problem(str(error))) from None

    def _files(self) -> fs.FileSystem:
        return _files(self.root, tuple(self.options.items()))

    def _problem(self, text: str) -> str:
        for pattern, problem in _PROBLEMS:
            if re.search(pattern, text):
                return problem.format(endpoint=self.options.get("AWS_ENDPOINT_URL", "it"))
        lines = [line.strip(" ↳") for line in _ANSI.sub("", text).partition("<?xml")[0].splitlines()]
        plain = _QUERY.sub("", ": ".join(filter(None, lines)))
        for name, value in self.options.items():
            if value and SECRET.search(name):
                plain = plain.replace(value, "***")
        return plain[:400]


def set_options(pairs: Mapping[str, str]) -> None:
    """Sets options of stores for this process, as if they were in its environment. Secrets are refused: they would show
    in a list of processes, or lie in a file."""
    for name in pairs:
        if _OPTION.fullmatch(name) is None:
            raise InvalidOption("storage", f"{name} is not an option of a store; they begin with AWS_, GOOGLE_, AZURE_")
        if SECRET.search(name):
            raise InvalidOption("storage", f"{name} is a secret: set it as an environment variable")
    os.environ.update(pairs)


@lru_cache(maxsize=64)
def _files(root: str, options: tuple[tuple[str, str], ...]) -> fs.FileSystem:
    """One for each place and process: it keeps connections open."""
    if "://" not in root:
        return fs.SubTreeFileSystem(os.path.abspath(root), fs.LocalFileSystem())
    return _store_files(root, dict(options))


def _store_files(root: str, options: dict[str, str]) -> fs.FileSystem:
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 (tasks on directories do without)

    class Handler(DeltaStorageHandler):
        def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
            return pa.PythonFile(_Output(self._handler.open_output_stream(path, metadata)), "w")

    return fs.PyFileSystem(Handler(root, options))


class _Output:
    """Delta's stream takes nothing but `bytes`, and Arrow writes buffers."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.flush: Callable[[], None] = stream.flush
        self.close: Callable[[], None] = stream.close

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def write(self, data: Any) -> int:
        return int(self._stream.write(bytes(data)))
