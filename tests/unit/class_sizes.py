"""How many methods a class has, its bases in the project included: a tower of parents does not make a class small.

Properties count, and so does `__init__`; other names with two underscores on both sides do not, since Python asks for
them. A method that a class has from a base and defines again is one method.
"""

import ast
from collections.abc import Iterator, Mapping

from import_graph import imported_names, module_of

METHODS_MAX = 25


def method_counts(sources: Mapping[str, str]) -> dict[str, int]:
    """By class: "topics.engine.topic.Topic". `sources` are texts by file within the package."""
    own: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for file, source in sources.items():
        module, tree = module_of(file), ast.parse(source)
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        known = {node.name: f"{module}.{node.name}" for node in classes}
        known |= {found.bound: found.name for found in imported_names(tree)}
        for node in classes:
            name = f"{module}.{node.name}"
            own[name] = set(_methods(node))
            bases[name] = [_resolved(_dotted(base), known) for base in node.bases]

    def methods(name: str) -> set[str]:
        return own.get(name, set()).union(*(methods(base) for base in bases.get(name, ())))

    return {name: len(methods(name)) for name in own}


def too_large(counts: Mapping[str, int], known: Mapping[str, int]) -> Iterator[str]:
    """A sentence for each class that is too large and not `known` to be, and each entry of `known` that is not true."""
    for name, count in counts.items():
        if count > METHODS_MAX and name not in known:
            yield f"{name} has {count} methods; {METHODS_MAX} are enough"
    for name, listed in known.items():
        count = counts.get(name, 0)
        if count > listed:
            yield f"{name} has grown from {listed} to {count} methods; it should shrink"
        elif count <= METHODS_MAX:
            yield f"{name} has {count} methods: take it off the list"
        elif count < listed:
            yield f"{name} has shrunk from {listed} to {count} methods: write that in the list"


def _methods(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            name = statement.name
            if name == "__init__" or not (name.startswith("__") and name.endswith("__")):
                yield name


def _dotted(base: ast.expr) -> str:
    """`a.b.C` for `a.b.C` and for `a.b.C[int]`; nothing for what is no name."""
    match base:
        case ast.Name(name):
            return name
        case ast.Attribute(value, name):
            return f"{_dotted(value)}.{name}"
        case ast.Subscript(value):
            return _dotted(value)
    return ""


def _resolved(dotted: str, known: Mapping[str, str]) -> str:
    """The full name of what a module calls `a.b.C`, where it knows `a.b.C`, `a.b` or `a`."""
    front, behind = dotted, ""
    while front and front not in known:
        front, _, last = front.rpartition(".")
        behind = f".{last}{behind}"
    return known[front] + behind if front else dotted
