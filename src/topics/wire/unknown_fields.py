"""Unknown fields of a request: most often a typo. They are allowed, and the reply says so.

Request structs refuse unknown fields (`forbid_unknown_fields`), which costs a good request nothing. A body that is
refused for that is decoded again into the struct's lenient twin, a subclass that ignores them, and searched for what to
warn about.
"""

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, structs

from topics import limits

_objects = msgspec.json.Decoder(dict[str, Raw])
_lists = msgspec.json.Decoder(list[Raw])
_texts = msgspec.json.Decoder(str)


class UnknownFields(Exception):
    """A request has unknown fields. Decode it with `decode_leniently`, and put the warnings into the reply."""

    def __init__(self, warnings: list[str]) -> None:
        super().__init__(warnings)
        self.warnings = warnings


@cache
def lenient(kind: Any) -> Any:
    """The same type, with every struct in it replaced by its twin that ignores unknown fields."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        overridden = [
            (each.name, twin) if each.required else (each.name, twin, each.default)
            for each in structs.fields(kind)
            if _holds_structs(each.type) and (twin := lenient(each.type))
        ]
        return msgspec.defstruct(
            f"Lenient{kind.__name__}", overridden, bases=(kind,), forbid_unknown_fields=False, kw_only=True
        )
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return Annotated[(lenient(inner[0]), *inner[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(lenient(each) for each in inner)]  # noqa: UP007 - made of a tuple
    if origin in (list, dict):
        return origin[tuple(lenient(each) for each in inner)]
    return kind


def _holds_structs(kind: Any) -> bool:
    return bool(_structs(kind)) or any(_holds_structs(each) for each in get_args(kind))


def warnings_of(body: bytes, kind: Any) -> list[str]:
    """A sentence for each unknown field, up to a few. A field that many records have is named once."""
    warnings: dict[tuple[str, str], str] = {}
    for place, path, name, known in _unknown(Raw(body), kind, "", ""):
        if (place, name) not in warnings:
            warnings[place, name] = _sentence(path, name, known)
            if len(warnings) == limits.WARNINGS_MAX:
                break
    return [*warnings.values()]


def nearest(name: str, known: list[str]) -> str | None:
    """The known name that somebody may have meant."""
    from difflib import get_close_matches  # noqa: PLC0415 (only who mistyped waits for it)

    found = get_close_matches(name[: limits.WARNING_NAME_CHARS_MAX], known, n=1)
    return found[0] if found else None


def _sentence(path: str, name: str, known: list[str]) -> str:
    meant = nearest(name, known)
    shown = f"unknown field {path}{name[: limits.WARNING_NAME_CHARS_MAX]}"
    return f"{shown}; did you mean {meant}?" if meant else f"{shown} was ignored"


class _Found(NamedTuple):
    """`place` is the path without the numbers of list entries."""

    place: str
    path: str
    name: str
    known: list[str]


def _unknown(value: Raw, kind: Any, place: str, path: str) -> Iterator[_Found]:
    """The unknown fields of a value of this type, and of what it holds."""
    try:
        origin, inner = get_origin(kind), get_args(kind)
        if origin is list:
            for index, each in enumerate(_lists.decode(value)[: limits.WARNING_ENTRIES_MAX]):
                yield from _unknown(each, inner[0], place, f"{path.removesuffix('.')}[{index}].")
        elif origin is dict:
            for name, each in list(_objects.decode(value).items())[: limits.WARNING_ENTRIES_MAX]:
                yield from _unknown(each, inner[1], place, f"{path}{name}.")
        elif candidates := _structs(kind):
            fields = _objects.decode(value)
            chosen = _chosen(candidates, fields)
            infos = {each.encode_name: each for each in structs.fields(chosen)}
            tag_field = chosen.__struct_config__.tag_field
            known = [*infos, *([tag_field] if tag_field else [])]
            for name, each in fields.items():
                if name not in known:
                    yield _Found(place, path, name, known)
                elif name in infos:
                    yield from _unknown(each, _without_null(infos[name].type), f"{place}{name}.", f"{path}{name}.")
    except (msgspec.DecodeError, RecursionError):
        return  # not what it should be: whoever decodes it says so


def _structs(kind: Any) -> list[type[Struct]]:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [each for each in kinds if isinstance(each, type) and issubclass(each, Struct)]


def _chosen(candidates: list[type[Struct]], fields: dict[str, Raw]) -> type[Struct]:
    """Of several types, the one that the tag of the object names."""
    for each in candidates:
        config = each.__struct_config__
        if config.tag_field in fields and _texts.decode(fields[config.tag_field]) == config.tag:
            return each
    return candidates[0]


def _without_null(kind: Any) -> Any:
    """The only type besides null, if there is just one."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        others = [each for each in get_args(kind) if each is not type(None)]
        if len(others) == 1:
            return others[0]
    return kind
