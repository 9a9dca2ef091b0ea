"""An object store of moto's on this machine: an S3 without Amazon, in a process of its own.

`careless` is a bucket of a store that ignores `If-None-Match`, as old ones do. `closed` refuses every request.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

Start = Callable[..., Any]


def watched(application: Callable[[dict[str, Any], Start], Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    def answer(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        bucket = environ["PATH_INFO"].split("/")[1]
        if bucket == "careless":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if bucket == "closed":
            start("403 Forbidden", [("content-type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]
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
