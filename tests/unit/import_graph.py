"""The imports of the package as a graph of its modules: who imports whom, and which imports lead back.

An import counts wherever it stands: at the top, inside a function (it happens late, but it happens), under
`TYPE_CHECKING` (only a type checker follows it, and a reader), and as a name in a table for `import_module`.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

PACKAGE = "topics"
MODULE_NAME = re.compile(PACKAGE + r"(\.\w+)+")


class ImportedName(NamedTuple):
    name: str
    """With the module it is imported from: `from a.b import c` is a.b.c. Dots in front where it is relative."""
    bound: str
    """What it is called from then on."""
    line: int
    for_types: bool
    """Under `TYPE_CHECKING`: it never happens while the program runs."""


class Import(NamedTuple):
    importer: str
    imported: str
    line: int
    for_types: bool


class ImportGraph:
    """Modules are named as Python names them. `sources` are texts by file within the package: "engine/topic.py"."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._modules = {module_of(file) for file in sources}
        self.imports = [
            Import(module_of(file), imported, found.line, found.for_types)
            for file, source in sources.items()
            for found in imported_names(ast.parse(source))
            if (imported := self._module_with(found.name)) is not None
        ]

    def cycles(self, *, with_types: bool) -> list[list[str]]:
        """Groups of modules in which each reaches all others, in the order of their names."""
        reached = self._reached(with_types=with_types)
        groups = {
            tuple(sorted(other for other in reached[module] if module in reached[other]))
            for module in self._modules
            if module in reached[module]
        }
        return [list(group) for group in sorted(groups)]

    def within(self, group: list[str]) -> list[str]:
        """The imports that hold a group together, as sentences."""
        return sorted(
            f"{found.importer}, line {found.line}, imports {found.imported}"
            for found in self.imports
            if found.importer in group and found.imported in group
        )

    def _reached(self, *, with_types: bool) -> dict[str, set[str]]:
        """All a module imports, directly or through others."""
        direct: dict[str, set[str]] = {module: set() for module in self._modules}
        for found in self.imports:
            if with_types or not found.for_types:
                direct[found.importer].add(found.imported)
        reached: dict[str, set[str]] = {}
        for module in self._modules:
            seen: set[str] = set()
            to_visit = [module]
            while to_visit:
                fresh = direct[to_visit.pop()] - seen
                seen |= fresh
                to_visit += fresh
            reached[module] = seen
        return reached

    def _module_with(self, name: str) -> str | None:
        """The module that is loaded for the name, which may be that of a class in it; None if it is not ours."""
        while name and name not in self._modules:
            name = name.rpartition(".")[0]
        return name or None


def module_of(file: str) -> str:
    parts = [PACKAGE, *PurePosixPath(file).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.AST) -> Iterator[ImportedName]:
    imports_by_name = any(isinstance(node, ast.Name) and node.id == "import_module" for node in ast.walk(tree))
    only_for_types = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and _is_type_checking(branch.test)
        for statement in branch.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        for_types = id(node) in only_for_types
        match node:
            case ast.Import():
                for alias in node.names:
                    yield ImportedName(alias.name, alias.asname or alias.name, node.lineno, for_types)
            case ast.ImportFrom():
                for alias in node.names:
                    name = f"{'.' * node.level}{node.module or ''}.{alias.name}"
                    yield ImportedName(name, alias.asname or alias.name, node.lineno, for_types)
            case ast.Constant(str(text)) if imports_by_name and MODULE_NAME.fullmatch(text):
                yield ImportedName(text, text, node.lineno, for_types)


def _is_type_checking(test: ast.expr) -> bool:
    match test:
        case ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
    return False
