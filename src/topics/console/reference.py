"""The API as a page (`/docs`), made from the OpenAPI document: plain HTML and one style sheet, no script at all.

So it needs no internet, and its Content-Security-Policy allows nothing but that style sheet. Operations are `details`,
which a browser opens by itself when a link leads into one.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any

_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Page:
    html: bytes
    tag: bytes  # its ETag
    policy: bytes  # its Content-Security-Policy


def reference_page(document: bytes) -> Page:
    """About 5 ms, once, when somebody first asks for it."""
    styles = resources.files(__name__.rpartition(".")[0]).joinpath("reference.css").read_text(encoding="utf-8")
    html = _page(json.loads(document), styles).encode()
    digest = base64.b64encode(hashlib.sha256(styles.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(html, f'"{hashlib.sha256(html).hexdigest()[:16]}"'.encode(), policy.encode())


def _page(document: dict[str, Any], styles: str) -> str:
    info = document["info"]
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append((method, path, operation))
    links = "".join(
        f"<h2>{escape(tag)}</h2><ul>{''.join(_link(*each) for each in operations)}</ul>"
        for tag, operations in by_tag.items()
    )
    sections = "".join(
        f"<h2>{escape(tag['name'])}</h2><p>{_prose(tag['description'])}</p>"
        + "".join(_operation(*each) for each in by_tag[tag["name"]])
        for tag in document["tags"]
    )
    schemas = "".join(_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items()))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(info["title"])} {escape(info["version"])}: API</title>
<style>{styles}</style>
</head>
<body>
<div class="page">
<nav aria-label="Operations"><a href="/console">Console</a> · <a href="/v0/openapi.json">OpenAPI document</a>
{links}<h2><a href="#schemas">Schemas</a></h2></nav>
<main>
<h1>{escape(info["title"])} {escape(info["version"])}</h1>
<p>{_prose(info["description"])} If the server has keys, send one with each request:
<code>Authorization: Bearer &lt;key&gt;</code>.</p>
{sections}
<h2 id="schemas">Schemas</h2>
{schemas}
</main>
</div>
</body>
</html>
"""


def _link(method: str, path: str, operation: dict[str, Any]) -> str:
    title = escape(operation["summary"])
    return f'<li><a href="#{operation["operationId"]}" title="{title}">{_method(method)} {escape(path)}</a></li>'


def _method(method: str) -> str:
    return f'<span class="method {method}">{method.upper()}</span>'


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    parts = [f"<p>{_prose(operation['description'])}</p>"]
    if operation.get("parameters"):
        rows = (
            (
                f"<code>{escape(each['name'])}</code>",
                each["in"],
                _type(each["schema"]),
                _prose(each.get("description", "")),
            )
            for each in operation["parameters"]
        )
        parts.append("<h3>Parameters</h3>" + _table(("name", "in", "type", ""), rows))
    if body:
        parts.append(f"<h3>Body</h3><p>{_type(body['schema'])}</p>{_example(body)}")
    replies = (
        (f"<code>{status}</code>", _prose(reply["description"]), _kinds(reply["content"]))
        for status, reply in operation["responses"].items()
    )
    parts.append("<h3>Replies</h3>" + _table(("status", "", "content"), replies))
    parts += [_example(content) for reply in operation["responses"].values() for content in reply["content"].values()]
    return (
        f"<details><summary>{_method(method)}<code>{escape(path)}</code><span>{escape(operation['summary'])}</span>"
        f'</summary><div class="operation" id="{operation["operationId"]}">{"".join(parts)}</div></details>'
    )


def _kinds(content: dict[str, Any]) -> str:
    return "<br>".join(
        f"<code>{escape(kind)}</code>" + ("" if kind != "application/json" else f" {_type(each['schema'])}")
        for kind, each in content.items()
    )


def _example(content: dict[str, Any]) -> str:
    if "example" not in content:
        return ""
    return f"<pre>{escape(json.dumps(content['example'], indent=2, ensure_ascii=False))}</pre>"


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = (
        (
            f"<code>{escape(field)}</code>{' (required)' if field in required else ''}",
            _type(each),
            _prose(each.get("description", "")),
        )
        for field, each in schema.get("properties", {}).items()
    )
    fields = _table(("field", "type", ""), rows) if "properties" in schema else f"<p>{_type(schema)}</p>"
    return f'<h4 id="schema-{escape(name)}">{escape(name)}</h4><p>{_prose(schema.get("description", ""))}</p>{fields}'


def _type(schema: dict[str, Any]) -> str:
    """In a few words; a struct is a link."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}"><code>{name}</code></a>'
    if "anyOf" in schema and "properties" not in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(each))}</code>" for each in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    if "prefixItems" in schema:
        return f"[{', '.join(_type(each) for each in schema['prefixItems'])}]"
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    default = schema.get("default")
    shown = "" if default is None else f", default <code>{escape(json.dumps(default))}</code>"
    return f"{escape(str(schema.get('type', 'any')))}{shown}"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _prose(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))
