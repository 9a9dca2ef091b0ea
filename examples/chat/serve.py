"""Serves the page of this folder: python serve.py [PORT]."""

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def page_server(port: int) -> ThreadingHTTPServer:
    return ThreadingHTTPServer(
        ("127.0.0.1", port), partial(SimpleHTTPRequestHandler, directory=str(Path(__file__).parent))
    )


if __name__ == "__main__":
    server = page_server(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
    print(f"http://127.0.0.1:{server.server_port}")
    server.serve_forever()
