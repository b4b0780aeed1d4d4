"""The identity of the program that a run depends on: a digest of its modules' source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

import isolatent
from isolatent.files import digest_json

__all__ = ["digest_code", "is_stale", "modules_of_runs", "program_digest"]

PACKAGE = "isolatent"
ENTRY_POINT = "isolatent.experiments.execution"
# Code that names or shows results and does not change them.
NOT_FOLLOWED = (
    "isolatent.cli",
    "isolatent.report",
    "isolatent.experiments.display",
    "isolatent.experiments.objectives",
    "isolatent.experiments.program",
    "isolatent.training.progress",
)
LENGTH = 16  # hexadecimal digits
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def program_digest(entry_point: str = ENTRY_POINT) -> str:
    """Return the digest of all modules of this package on which the result of a run depends.

    These are the modules that the entry point imports, directly or through others. Comments,
    docstrings and formatting do not matter, nor does the version of Python. The digest is computed
    once in a process.

    Args:
        entry_point: The module that runs are started with.
    """
    found = modules_of_runs(Path(isolatent.__file__).parent, entry_point)
    if not found:
        raise FileNotFoundError("the source of isolatent is missing: a run needs it for its record")
    return digest_json({name: _canonical(tree) for name, tree in found.items()})[:LENGTH]


def digest_code(*paths: Path) -> str:
    """Return the digest of files of source, such as those of a benchmark's worlds.

    As in :func:`program_digest`, comments, docstrings and formatting do not matter.

    Args:
        paths: The files.
    """
    trees = [_canonical(ast.parse(path.read_bytes())) for path in paths]
    return digest_json(trees)[:LENGTH]


def is_stale(record: Mapping[str, Any]) -> bool:
    """Return whether a record was made by another program than today's, or by an unknown one."""
    return record.get("program") != program_digest()


def modules_of_runs(root: Path, entry_point: str = ENTRY_POINT) -> dict[str, ast.Module]:
    """Return the syntax trees of the modules that runs depend on, sorted by name.

    Args:
        root: The directory of the package.
        entry_point: The module that runs are started with.
    """
    found: dict[str, ast.Module] = {}
    waiting = [entry_point]
    while waiting:
        name = waiting.pop()
        path = _path_of(root, name)
        # The package itself only loads names on demand.
        if path is None or name in found or name == PACKAGE or _is_excluded(name):
            continue
        found[name] = ast.parse(path.read_bytes())
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imported(found[name], package)
    return {name: found[name] for name in sorted(found)}


def _is_excluded(name: str) -> bool:
    return any(name == other or name.startswith(f"{other}.") for other in NOT_FOLLOWED)


def _path_of(root: Path, name: str) -> Path | None:
    """Return the file of a module of the package; None if the name is not that of a module."""
    package, *parts = name.split(".")
    if package != PACKAGE:
        return None
    stem = root.joinpath(*parts)
    paths = (stem.with_name(f"{stem.name}.py"), stem / "__init__.py")
    return next((path for path in paths if path.is_file()), None)


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the names of imported modules, and names imported from them, which may be modules."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            for other in node.orelse:
                yield from _imported(other, package)
        else:
            yield from _imported(node, package)


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _canonical(node: Any) -> str:
    """Return a syntax tree as text without docstrings and positions.

    Fields that are None or empty are left out: versions of Python differ in which they have.
    """
    if isinstance(node, list):
        return f"[{', '.join(map(_canonical, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name in node._fields:
        value: Any = getattr(node, name, None)
        if name == "body" and isinstance(node, DOCUMENTED):
            value = _without_docstring(value)
        if value is not None and value != []:
            parts.append(f"{name}={_canonical(value)}")
    return f"{type(node).__name__}({', '.join(parts)})"


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if documented and isinstance(first.value.value, str):  # type: ignore[attr-defined]
        return body[1:]
    return body
