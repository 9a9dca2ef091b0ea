"""What a key may see of what it asks for in a list."""


def narrowed(allowed: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    """What is left of the allowed prefixes when only names with `prefix` are asked for."""
    return tuple(prefix if prefix.startswith(one) else one for one in allowed if _overlap(one, prefix))


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
