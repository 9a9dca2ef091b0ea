"""The OpenAPI document, made from the route table and the wire structs. Nothing in it is written twice."""

from typing import Any

from msgspec.json import encode, schema_components

from topics import limits
from topics.api.operation_texts import TAGS, TEXTS, Text
from topics.api.routing import Parameter, Route, RouteTable
from topics.model.record import NewRecord
from topics.version import VERSION
from topics.wire.responses import ErrorResponse

_REFERENCE = "#/components/schemas/{name}"
_EVERY_ROUTE_ERRORS = (401, 403, 429, 500, 503)
_DESCRIPTIONS = {
    101: "The connection speaks WebSocket from here on: JSON text messages.",
    200: "Done.",
    201: "Done; this call created it.",
    400: "A field is malformed, missing or out of range.",
    401: "No API key, or an unknown one.",
    403: "The key lacks the scope, or the name is outside its prefixes.",
    404: "There is no such topic, router or cursor.",
    406: "The client accepts none of the content types on offer.",
    409: "It conflicts with the current state of the topic or its routers.",
    413: "The body is larger than the server reads.",
    415: "The body is not application/json.",
    422: "The topic is full, and its `discard` is `reject`.",
    426: "Only for WebSocket clients.",
    429: "Under load, or a resource cap is reached: wait for Retry-After.",
    500: "A bug in the server.",
    503: "Recovering or shutting down: wait for Retry-After.",
}


def _path_parameter(name: str, pattern: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": pattern}}


_PATH_PARAMETERS = {
    "topic": _path_parameter("topic", "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"),
    "cursor": _path_parameter("cursor", "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"),
    "producer": _path_parameter("producer", "^[^\\x00]{1,256}$"),
    "router": _path_parameter("router", "^[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}$"),
    "wid": _path_parameter("wid", "^wid_[A-Za-z0-9_-]{22}$"),
}
_WHOLE_SECONDS = {"description": "Seconds to wait.", "required": True, "schema": {"type": "integer", "minimum": 0}}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "Bearer.", "required": True, "schema": {"type": "string"}}},
    429: {"Retry-After": _WHOLE_SECONDS},
    503: {"Retry-After": _WHOLE_SECONDS},
}


def openapi_document(table: RouteTable) -> bytes:
    structs = {ErrorResponse, NewRecord}
    routes = [route for route in table.routes if not route.page]
    for route in routes:
        structs |= {reply for reply in route.replies.values() if not isinstance(reply, str | tuple)}
        structs |= {route.body} if route.body else set()
    ordered = sorted(structs, key=str)
    references, components = schema_components(ordered, ref_template=_REFERENCE)
    schema_of = dict(zip(ordered, references, strict=True))
    _describe_payloads(components)
    _describe_rules(components)
    _describe_unknown_fields(components, table)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "topics",
                "version": VERSION,
                "description": "A persistent event engine: named append-only logs, explicit data loss.",
                "license": {"name": "MIT", "identifier": "MIT"},
            },
            "tags": [{"name": name, "description": description} for name, description in TAGS.items()],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"bearer": []}],
        }
    )


def _describe_payloads(components: dict[str, Any]) -> None:
    """`data` and `meta` are raw bytes to the server, so their schemas are said here."""
    record = components["NewRecord"]["properties"]
    record["data"] = {"description": "Any JSON value, returned byte for byte."}
    record["meta"] = {
        "description": "Small headers, returned byte for byte.",
        "anyOf": [
            {"type": "object", "maxProperties": 64},
            {"type": "null"},
        ],
    }


def _describe_rules(components: dict[str, Any]) -> None:
    """What a request must satisfy beyond its types, as far as a schema can say it."""
    write = components["WriteRequest"]["properties"]
    write["records"]["minItems"] = 1
    key = {"minLength": 1, "maxLength": limits.IDEMPOTENCY_KEY_CHARS_MAX, "pattern": r"^[^\x00]+$"}
    write["idempotency_key"]["anyOf"][0] |= key
    components["Producer"]["properties"]["name"] |= key
    components["DiffRequest"]["properties"]["node"]["anyOf"][1]["maxItems"] = limits.NODE_FILTER_ENTRIES_MAX
    delete = components["DeleteRecordsRequest"]
    delete["anyOf"] = [{"required": ["before_seq"]}, {"required": ["match"]}]
    for match in (delete["properties"]["match"], components["PutRouterRequest"]["properties"]["filter"]):
        match["anyOf"][1:2] = [
            _match_of("Eq", {"type": "string"}),
            _match_of("Glob", {"type": "string", "pattern": r"^[^*]*\*$"}),
        ]


def _describe_unknown_fields(components: dict[str, Any], table: RouteTable) -> None:
    """Unknown fields are allowed, although the structs refuse them at first; the reply names them in `warnings`."""
    for component in components.values():
        if component.get("additionalProperties") is False:
            del component["additionalProperties"]
    replies = {reply for route in table.routes if route.body for reply in route.replies.values()} | {ErrorResponse}
    for reply in replies:
        components[reply.__name__]["properties"]["warnings"] = _WARNINGS


_WARNINGS = {
    "type": "array",
    "items": {"type": "string"},
    "maxItems": limits.WARNINGS_MAX,
    "description": "Extension. Names the unknown fields of the request; absent if there are none.",
}


def _match_of(operator: str, text: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": [{"const": "tag"}, {"const": operator}, text], "minItems": 3, "maxItems": 3}


def _operation(route: Route, schema_of: dict[Any, Any]) -> dict[str, Any]:
    text = TEXTS.get((route.method, route.path), _UNTOLD)
    operation: dict[str, Any] = {
        "tags": [text.tag],
        "summary": route.summary,
        "description": text.description,
        "operationId": f"{route.method.lower()}_{route.path.strip('/').replace('/', '_').translate(_PLAIN)}",
        "responses": {},
    }
    if route.open:
        operation["security"] = []
    parameters = [parameter for name, parameter in _PATH_PARAMETERS.items() if f"{{{name}}}" in route.path]
    parameters += [_parameter(parameter) for parameter in route.parameters]
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {"application/json": {"schema": schema_of[route.body], **_example(text.request)}},
        }
    for status, reply in route.replies.items():
        operation["responses"][str(status)] = {
            "description": _DESCRIPTIONS[status],
            "content": _content(reply, schema_of, text.reply if status < 201 else None),
        }
    for status in sorted({*route.errors, *_EVERY_ROUTE_ERRORS}):
        operation["responses"][str(status)] = {
            "description": _DESCRIPTIONS[status],
            "content": {"application/json": {"schema": schema_of[ErrorResponse]}},
        }
        if status in _HEADERS:
            operation["responses"][str(status)]["headers"] = _HEADERS[status]
    return operation


_UNTOLD = Text("", "")


def _example(value: dict[str, Any] | None) -> dict[str, Any]:
    return {} if value is None else {"example": value}


def _content(reply: Any, schema_of: dict[Any, Any], example: dict[str, Any] | None) -> dict[str, Any]:
    if isinstance(reply, tuple):
        return {media_type: {"schema": {"type": "string"}} for media_type in reply}
    if isinstance(reply, str):
        return {reply: {"schema": {"type": "string"}}, "application/json": {"schema": {"type": "object"}}}
    return {"application/json": {"schema": schema_of[reply], **_example(example)}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "header" if parameter.header else "query",
        "required": False,
        "schema": parameter.schema,
        "description": parameter.description,
    }


_PLAIN = str.maketrans({"{": None, "}": None, ".": "_"})
