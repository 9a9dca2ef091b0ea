"""A TCP proxy on loopback that does to connections what networks and busy servers do: cuts, delays and refuses."""

import contextlib
import socket
import threading
from collections.abc import Callable

REFUSALS = {
    429: b'{"error":{"code":"throttled","message":"slow down"}}',
    503: b'{"error":{"code":"not_ready","message":"recovering"}}',
}


class FaultyProxy:
    """Forwards to a port until closed. The faults are taken one after the other, each by one request or answer."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lost_answers = 0
        self._refusals: list[int] = []
        self._delay_s = 0.0
        self._stopped = threading.Event()
        self.requests = 0
        self._start(self._accept)

    def lose_answers(self, count: int) -> None:
        """The server gets the next requests, and their answers never come."""
        with self._lock:
            self._lost_answers = count

    def refuse(self, *statuses: int) -> None:
        """The next requests are answered with these, and never reach the server."""
        with self._lock:
            self._refusals = list(statuses)

    def delay_one_answer(self, delay_s: float) -> None:
        with self._lock:
            self._delay_s = delay_s

    def cut(self) -> None:
        """Ends every connection there is; new ones are welcome."""
        with self._lock:
            for each in self._sockets:
                _shut(each)

    def close(self) -> None:
        self._stopped.set()
        _shut(self._listener)  # wakes the accept under way, which closing would not
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()
        for each in (self._listener, *self._sockets):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets += (client, server)
            self._start(self._requests, client, server)
            self._start(self._answers, server, client)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                with self._lock:
                    self.requests += 1
                    refused = self._refusals.pop(0) if self._refusals else None
                if refused is None:
                    server.sendall(data)
                else:
                    body = REFUSALS[refused]
                    head = f"HTTP/1.1 {refused} no\r\nretry-after: 0\r\ncontent-type: application/json\r\n"
                    client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        _shut(server)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                with self._lock:
                    lost, self._lost_answers = self._lost_answers > 0, max(self._lost_answers - 1, 0)
                    delay_s, self._delay_s = self._delay_s, 0.0
                if lost:
                    break
                if delay_s:
                    self._stopped.wait(delay_s)
                client.sendall(data)
        _shut(client)

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
