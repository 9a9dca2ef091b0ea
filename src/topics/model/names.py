"""The names people give to things, and which of them are allowed.

Names are case-sensitive and byte-exact. They never reach the file system.
"""

import re

from topics.errors import InvalidRequest

_ROUTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")


def is_topic_name(name: str) -> bool:
    return _TOPIC_NAME.fullmatch(name) is not None


def check_topic_name(name: str, field: str = "topic") -> None:
    if not is_topic_name(name):
        raise InvalidRequest.in_field(
            field,
            f"{name[:80]!r} is not a topic name; use 1 to 255 of the characters A-Z a-z 0-9 . _ : - "
            "beginning with a letter or digit",
        )


def check_router_name(name: str) -> None:
    if _ROUTER_NAME.fullmatch(name) is None:
        raise InvalidRequest.in_field(
            "router",
            f"{name[:80]!r} is not a router name; use 1 to 255 of the characters A-Z a-z 0-9 . _ : > - "
            "beginning with a letter or digit",
        )
