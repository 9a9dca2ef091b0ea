"""A span for every call, if OpenTelemetry is installed and somebody listens; else nothing, and at no cost."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from topics.client.core import Call
from topics.version import VERSION

_tracer: Any = None
_inject: Any = None
_CLIENT: Any = None

with contextlib.suppress(ImportError):
    from opentelemetry import trace
    from opentelemetry.propagate import inject

    _tracer = trace.get_tracer("topics.client", VERSION)
    _inject, _CLIENT = inject, trace.SpanKind.CLIENT

_NOTHING: contextlib.AbstractContextManager[Mapping[str, str] | None] = contextlib.nullcontext()


def span(call: Call[Any]) -> contextlib.AbstractContextManager[Mapping[str, str] | None]:
    """The context of a call; gives the headers by which a server, or a gateway before it, joins the trace."""
    return _NOTHING if _tracer is None else _recorded(call)


@contextlib.contextmanager
def _recorded(call: Call[Any]) -> Iterator[Mapping[str, str] | None]:
    path = call.path.partition("?")[0]
    attributes = {"http.request.method": call.method, "url.path": path, "messaging.system": "topics"}
    with _tracer.start_as_current_span(f"{call.method} {path}", kind=_CLIENT, attributes=attributes) as it:
        if not it.is_recording():
            yield None
            return
        headers: dict[str, str] = {}
        _inject(headers)
        yield headers
