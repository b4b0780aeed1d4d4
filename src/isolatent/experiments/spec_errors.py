"""What is wrong in a file of experiments, told with the file, the cell and the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from isolatent.experiments.cells import Cell, ModelSpec, WorldSpec
from isolatent.experiments.expressions import UnknownKindError
from isolatent.experiments.image_cells import ImageCell, ImageModelSpec, ImageWorldSpec
from isolatent.experiments.settings import Published
from isolatent.experiments.spec import AnyCell
from isolatent.worlds import Distribution, Mixing, Space
from isolatent.worlds.declaration import declared_classes

__all__ = ["explained", "stumbled"]

PARTS = {"space": Space, "mixing": Mixing}  # the other parts of a world are distributions


def explained(shown: str, error: ValidationError, cells: Sequence[Mapping[str, Any]]) -> str:
    """One line for each mistake: file, cell, key, what is wrong."""
    lines = []
    for mistake in error.errors():
        where = [*mistake["loc"]]
        cell, kind = "", "latents"
        if len(where) > 1 and where[0] == "cells":
            cell = f" cell {cells[int(where[1])].get('name', where[1])!r}:"
            kind, where = str(where[2]), where[3:]
        message = mistake["msg"].removeprefix("Value error, ")
        if mistake["type"] == "extra_forbidden":
            message = f"no such key; allowed are {', '.join(_allowed(where, kind))}"
        elif mistake["type"] == "missing":
            message = "must be given"
        elif mistake["type"] == "literal_error" and where[-1] == "[key]":  # of published
            where.pop()
            message = f"no such approach; allowed are {mistake['ctx']['expected']}"
        elif isinstance(unknown := mistake.get("ctx", {}).get("error"), UnknownKindError):
            message = str(UnknownKindError(unknown.kind, _kinds(str(where[-1]))))
        key = ".".join(map(str, where))
        lines.append(f"{shown}:{cell} {key + ': ' if key else ''}{message}")
    return "\n".join(lines)


def stumbled(shown: str, error: Exception, cells: Sequence[Mapping[str, Any]]) -> str:
    """Where a check could not even say what is wrong: the keys without which it can."""
    for index, cell in enumerate(cells):
        if _stumbles(cell):
            keys = [key for key in cell if not _stumbles({k: cell[k] for k in cell if k != key})]
            name = cell.get("name", index)
            told = f"{type(error).__name__}: {error}"
            return f"{shown}: cell {name!r}: {' or '.join(keys)}: cannot be read ({told})"
    return f"{shown}: cannot be read ({type(error).__name__}: {error})"


def _stumbles(cell: Mapping[str, Any]) -> bool:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyCell)
    try:
        adapter.validate_python(dict(cell))
    except ValidationError:
        return False
    except Exception:
        return True
    return False


def _kinds(part: str) -> list[str]:
    """What a part of a world may be."""
    expected = PARTS.get(part, Distribution)
    return [name for name, kind in declared_classes().items() if issubclass(kind, expected)]


def _allowed(where: list[Any], kind: str) -> list[str]:
    """The keys of the table in which an unknown one stands."""
    images = kind == "images"
    tables: dict[str, type[BaseModel]] = {
        "": ImageCell if images else Cell,
        "world": ImageWorldSpec if images else WorldSpec,
        "model": ImageModelSpec if images else ModelSpec,
        "published": Published,
    }
    return list(tables.get(str(where[0]) if len(where) > 1 else "", tables[""]).model_fields)
