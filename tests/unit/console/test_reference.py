"""The API as a page: everything of the document, nothing from elsewhere, no script."""

import json
from typing import Any

from topics.console.reference import reference_page

HOSTILE = '<script>alert("x")</script>'


def document(**operation: Any) -> bytes:
    told = {
        "tags": ["Topics"],
        "summary": "Read it",
        "description": "Says `seq` & more.",
        "operationId": "get_it",
        "responses": {"200": {"description": "Done.", "content": {"application/json": {"schema": _REFERENCE}}}},
    }
    return json.dumps(
        {
            "info": {"title": "topics", "version": "9.8.7", "description": "An engine."},
            "tags": [{"name": "Topics", "description": "Logs."}],
            "paths": {"/v0/topics/{topic}": {"get": told | operation}},
            "components": {"schemas": {"TopicState": _STATE}},
        }
    ).encode()


_REFERENCE = {"$ref": "#/components/schemas/TopicState"}
_STATE = {
    "description": "How it is.",
    "required": ["seq"],
    "properties": {
        "seq": {"type": "integer", "description": "The last one."},
        "kind": {"enum": ["log", "queue"]},
        "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
    },
}


def html_of(source: bytes) -> str:
    return reference_page(source).html.decode()


def test_an_operation_is_shown_with_its_link_description_and_replies() -> None:
    html = html_of(document())
    assert '<a href="#get_it"' in html
    assert 'id="get_it"><p>Says <code>seq</code> &amp; more.</p>' in html
    assert '<a href="#schema-TopicState"><code>TopicState</code></a>' in html


def test_a_schema_is_shown_with_its_fields_and_types() -> None:
    html = html_of(document())
    assert '<h4 id="schema-TopicState">' in html
    for shown in (
        "<td><code>seq</code> (required)</td><td>integer</td><td>The last one.</td>",
        "<td><code>&quot;log&quot;</code> or <code>&quot;queue&quot;</code></td>",
        "<td>array of string or null</td>",
    ):
        assert shown in html


def test_examples_are_shown_as_json() -> None:
    body = {"content": {"application/json": {"schema": _REFERENCE, "example": {"records": [1]}}}}
    assert "<pre>{\n  &quot;records&quot;: [\n    1\n  ]\n}</pre>" in html_of(document(requestBody=body))


def test_whatever_the_document_says_stays_text() -> None:
    assert "<script" not in html_of(document(summary=HOSTILE, description=HOSTILE))


def test_the_policy_allows_one_style_sheet_and_nothing_else() -> None:
    page = reference_page(document())
    assert page.policy.startswith(b"default-src 'none'; style-src 'sha256-")
    assert b"script-src" not in page.policy
    assert b"unsafe" not in page.policy
    assert b"http://" not in page.html
    assert b"https://" not in page.html
