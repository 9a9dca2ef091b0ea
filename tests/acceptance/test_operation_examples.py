"""The examples of the OpenAPI document are one story: sent in their order, each gets the reply that is shown."""

import json
import re
from pathlib import Path
from typing import Any

from acceptance.server import Server
from conformance.client import JSON_TYPE, success
from topics.api.operation_texts import TEXTS

JOBS = {"records": [{"data": {"resize": "cat.jpg"}}]}
ANOTHER_EACH_TIME = re.compile(r"performance|epoch|deadlines?|lease_id|wid|stream_url|\$?\w*ts")


def differences(shown: Any, came: Any, place: str = "") -> list[str]:
    """Fields and values that are not what is shown, but for times, ids and what a request took."""
    if isinstance(shown, dict) and isinstance(came, dict):
        found = [f"{place}.{key}" for key in sorted(shown.keys() ^ came.keys()) if not ANOTHER_EACH_TIME.fullmatch(key)]
        for key in shown.keys() & came.keys():
            if not ANOTHER_EACH_TIME.fullmatch(key):
                found += differences(shown[key], came[key], f"{place}.{key}")
        return found
    if isinstance(shown, list) and isinstance(came, list) and len(shown) == len(came):
        pairs = enumerate(zip(shown, came, strict=True))
        return [each for at, pair in pairs for each in differences(*pair, f"{place}[{at}]")]
    return [] if shown == came else [f"{place}: shown {json.dumps(shown)}, came {json.dumps(came)}"]


def test_every_example_of_the_openapi_document_gets_the_reply_it_shows(tmp_path: Path) -> None:
    server = Server(tmp_path)
    wrong = []
    try:
        success(server.api.put("/v0/topics/jobs", {"type": "queue", "dead_letter": "jobs-failed"}))
        success(server.api.post("/v0/topics/jobs", JOBS))
        for (method, _), text in TEXTS.items():
            if not text.target:
                continue
            body = None if text.request is None else json.dumps(text.request).encode()
            reply = server.api.request(method, text.target, body=body, headers=None if body is None else JSON_TYPE)
            if reply.status >= 300:
                wrong.append(f"{method} {text.target}: {reply.status} {reply.body.decode()}")
            elif text.reply is not None:
                wrong += [f"{method} {text.target}{each}" for each in differences(text.reply, reply.json)]
    finally:
        server.stop()
    assert wrong == [], "\n".join(wrong)


def test_a_reply_that_is_not_the_shown_one_is_told_by_its_place() -> None:
    shown = {"a": [{"seq": 1, "$ts": 5}], "b": 1, "performance": {}}
    assert differences(shown, {"a": [{"seq": 1, "$ts": 6}], "b": 1}) == []
    assert differences(shown, {"a": [{"seq": 2}], "c": 1}) == [".b", ".c", ".a[0].seq: shown 1, came 2"]
