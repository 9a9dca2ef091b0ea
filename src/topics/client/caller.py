"""Sends calls: renders them, tries again, and makes answers into replies. Written once, for both shells.

The steps are coroutines over a `Port`, which does the I/O. The asynchronous port waits as coroutines do. The blocking
one has done everything when it returns and never suspends, so that `run` can carry the steps out in one go.
"""

import logging
from collections.abc import Coroutine, Mapping
from random import Random
from typing import Any, Protocol, TypeVar

from topics.client import tracing
from topics.client.core import Answer, Call, refusal, result
from topics.client.errors import OutcomeUnknown
from topics.client.http1 import Requests
from topics.client.retries import Retries, RetryPolicy
from topics.clock import Clock, monotonic_ms

T = TypeVar("T")

log = logging.getLogger("topics.client")


class Broken(Exception):
    """There was no answer. `sent`: the server may have got the request anyway."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


class ByteStream(Protocol):
    """An answer that is read while it comes, on a separate connection."""

    @property
    def answer(self) -> Answer:
        """Its head; if it is a refusal, with the body."""
        ...

    async def read(self, timeout_s: float) -> bytes:
        """What has arrived; empty at the end. Raises `Broken` if the stream was cut, or if nothing arrived for too
        long."""
        ...

    def close(self) -> None: ...


class Port(Protocol):
    """The I/O of a shell."""

    async def exchange(self, request: bytes, timeout_s: float, *, fresh: bool, waits: bool) -> Answer:
        """Raises `Broken`. `fresh`: not over a connection that was used before, and may be dead by now. `waits`: the
        server takes its time, so this one is not counted among the connections."""
        ...

    async def stream(self, request: bytes, timeout_s: float) -> ByteStream: ...

    async def pause(self, duration_s: float) -> None: ...


class Caller:
    def __init__(
        self,
        url: str,
        requests: Requests,
        port: Port,
        clock: Clock,
        *,
        policy: RetryPolicy,
        timeout_s: float,
        random: Random | None = None,
    ) -> None:
        self.url = url
        self.port = port
        self.clock = clock
        self.policy = policy
        self.timeout_s = timeout_s
        self.random = random or Random()
        self._requests = requests

    async def send(self, call: Call[T], *, policy: RetryPolicy | None = None) -> T:
        with tracing.span(call) as headers:
            return result(call, await self._answer(call, self._new_retries(policy), headers))

    async def open(self, call: Call[Any], headers: Mapping[str, str] | None = None) -> ByteStream:
        """A stream whose head has come. A refusal is raised as the error it is."""
        retries = self._new_retries(None)
        request = self._requests.render(call, headers)
        while True:
            try:
                stream = await self.port.stream(request, self.timeout_s)
            except Broken as broken:
                pause_ms: int | None = retries.after_failure(broken.reason, self.url)
            else:
                if stream.answer.status == 200:
                    return stream
                stream.close()
                pause_ms = retries.after_answer(stream.answer)
                if pause_ms is None:
                    raise refusal(stream.answer)
            assert pause_ms is not None
            await self._pause(call, retries, pause_ms)

    def new_retries(self) -> Retries:
        """For callers that open streams again and again, and count failures themselves."""
        return self._new_retries(None)

    async def _answer(self, call: Call[Any], retries: Retries, headers: Mapping[str, str] | None) -> Answer:
        request = self._requests.render(call, headers)
        while True:
            timeout_s = min(self.timeout_s, max(retries.left_s(), 0.001)) + call.wait_s
            try:
                answer = await self.port.exchange(request, timeout_s, fresh=not call.repeatable, waits=call.wait_s > 0)
            except Broken as broken:
                if broken.sent and not call.repeatable:
                    raise OutcomeUnknown(
                        f"{self.url} was asked for {call.method} {call.path}; the connection broke before the answer "
                        f"({broken.reason}); it may have been carried out, so check before you repeat it"
                    ) from None
                pause_ms: int | None = retries.after_failure(broken.reason, self.url)
                log.info("%s %s: %s; trying again", call.method, call.path, broken.reason)
            else:
                pause_ms = retries.after_answer(answer)
                if pause_ms is None:
                    return answer
            assert pause_ms is not None
            await self._pause(call, retries, pause_ms)

    async def _pause(self, call: Call[Any], retries: Retries, pause_ms: int) -> None:
        log.debug("%s %s: attempt %d in %d ms", call.method, call.path, retries.attempts + 1, pause_ms)
        await self.port.pause(pause_ms / 1000)

    def _new_retries(self, policy: RetryPolicy | None) -> Retries:
        return Retries(policy or self.policy, lambda: monotonic_ms(self.clock), self.random)


def run(steps: Coroutine[Any, Any, T]) -> T:
    """Runs steps over a blocking port, which finish in one go."""
    try:
        steps.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    steps.close()
    raise RuntimeError("steps over a blocking port waited for something else")
