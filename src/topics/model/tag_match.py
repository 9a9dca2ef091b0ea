"""The match language: `["tag","Eq","x"]`, `["tag","Glob","x*"]`, or a bare string."""

from typing import NamedTuple

from topics.errors import InvalidRequest


class TagMatch(NamedTuple):
    """Matches one tag exactly, or every tag that begins with `text`."""

    text: str
    is_prefix: bool

    def matches(self, tag: str | None) -> bool:
        """A record without a tag is never matched."""
        if tag is None:
            return False
        return tag.startswith(self.text) if self.is_prefix else tag == self.text


def parse_match(value: object, field: str = "match") -> TagMatch:
    if isinstance(value, str):
        # A bare string ending in * is the prefix form.
        return _glob(value, field) if value.endswith("*") else TagMatch(value, is_prefix=False)
    if not isinstance(value, list) or len(value) != 3 or not all(isinstance(part, str) for part in value):
        raise InvalidRequest.in_field(field, 'must be a string, ["tag","Eq",text] or ["tag","Glob","prefix*"]')
    attribute, operator, text = value
    if attribute != "tag":
        raise InvalidRequest.in_field(field, f'matches on "tag" only, not on {attribute!r}')
    if operator == "Eq":
        return TagMatch(text, is_prefix=False)
    if operator == "Glob":
        return _glob(text, field)
    raise InvalidRequest.in_field(field, f'knows the operators "Eq" and "Glob", not {operator!r}')


def _glob(text: str, field: str) -> TagMatch:
    if not text.endswith("*") or text.count("*") != 1:
        raise InvalidRequest.in_field(field, "a Glob is a literal prefix followed by exactly one *, at its end")
    return TagMatch(text[:-1], is_prefix=True)
