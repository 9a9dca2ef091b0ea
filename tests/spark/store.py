"""An object store of moto's on this machine: an S3 without Amazon, in a process of its own.

`careless` is a bucket of a store that ignores `If-None-Match`, as old ones do. `closed` refuses every request. In
`forgetful` the answer to the first try of each commit of records gets lost: it was made, and fails.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

Start = Callable[..., Any]
SECRET = "not-to-be-seen"


@contextmanager
def running_store() -> Iterator[str]:
    """Its endpoint."""
    command, pipe = [sys.executable, "-m", "spark.store"], subprocess.PIPE
    tests = Path(__file__).parents[1]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=tests) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()


def use_store(endpoint: str, monkeypatch: pytest.MonkeyPatch, bucket: str) -> None:
    """Sets the variables that lead there, and makes the bucket."""
    for known in [known for known in os.environ if known.startswith("AWS_")]:
        monkeypatch.delenv(known)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with urlopen(Request(f"{endpoint}/{bucket}", method="PUT")):
        pass


def watched(application: Callable[[dict[str, Any], Start], Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    # moto looks whether an object is there and then writes it, in threads; in S3 nothing comes between the two.
    one_at_a_time = threading.Lock()
    answered: set[str] = set()

    def answer(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        bucket = environ["PATH_INFO"].split("/")[1]
        if bucket == "careless":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if bucket == "closed":
            start("403 Forbidden", [("content-type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]
        if "HTTP_IF_NONE_MATCH" in environ:
            with one_at_a_time:
                path = environ["PATH_INFO"]
                if bucket == "forgetful" and "/records/_delta_log/" in path and path not in answered:
                    answered.add(path)
                    list(application(environ, lambda *_: None))
                    start("500 Internal Server Error", [])
                    return []
                return application(environ, start)
        return application(environ, start)

    return answer


def main() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415
    from werkzeug.serving import make_server  # noqa: PLC0415

    application = watched(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.server_port, flush=True)
    # It ends with the tests, however they end: their end of this pipe is closed then.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
