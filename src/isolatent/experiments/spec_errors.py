"""Error messages for the TOML file of an experiment, with the file, the cell and the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from isolatent.experiments.cells import Cell, ModelSpec, Published, WorldSpec
from isolatent.experiments.experiment import AnyCell
from isolatent.experiments.expressions import UnknownClassError
from isolatent.experiments.image_cells import ImageCell, ImageModelSpec, ImageWorldSpec
from isolatent.worlds import Distribution, Mixing, Space
from isolatent.worlds.declaration import declared_classes

__all__ = ["invalid_key_message", "validation_message"]

PART_CLASSES = {"space": Space, "mixing": Mixing}  # the other parts of a world are distributions


def validation_message(
    label: str, error: ValidationError, cells: Sequence[Mapping[str, Any]]
) -> str:
    """Return one line for each error: file, cell, key and what is wrong.

    Args:
        label: The file, as messages name it.
        error: What pydantic raised.
        cells: The cells that were validated.
    """
    lines = []
    for mistake in error.errors():
        where = [*mistake["loc"]]
        cell, cell_type = "", "latents"
        if len(where) > 1 and where[0] == "cells":
            cell = f" cell {cells[int(where[1])].get('name', where[1])!r}:"
            cell_type, where = str(where[2]), where[3:]
        message = mistake["msg"].removeprefix("Value error, ")
        if mistake["type"] == "extra_forbidden":
            message = f"unknown key; allowed are {', '.join(_allowed_keys(where, cell_type))}"
        elif mistake["type"] == "missing":
            message = "must be given"
        elif mistake["type"] == "literal_error" and where[-1] == "[key]":  # of published
            where.pop()
            message = f"unknown approach; allowed are {mistake['ctx']['expected']}"
        elif isinstance(unknown := mistake.get("ctx", {}).get("error"), UnknownClassError):
            message = str(UnknownClassError(unknown.kind, _class_names(str(where[-1]))))
        key = ".".join(map(str, where))
        lines.append(f"{label}:{cell} {key + ': ' if key else ''}{message}")
    return "\n".join(lines)


def invalid_key_message(label: str, error: Exception, cells: Sequence[Mapping[str, Any]]) -> str:
    """Return a message for an error that is not a validation error and names no key.

    A key is to blame if validation no longer raises such an error once the key is removed.

    Args:
        label: The file, as messages name it.
        error: What a validator raised.
        cells: The cells that were validated.
    """
    reason = f"cannot be read ({type(error).__name__}: {error})"
    for index, cell in enumerate(cells):
        if _crashes(cell):
            keys = [key for key in cell if not _crashes({k: cell[k] for k in cell if k != key})]
            return f"{label}: cell {cell.get('name', index)!r}: {' or '.join(keys)}: {reason}"
    return f"{label}: {reason}"


def _crashes(cell: Mapping[str, Any]) -> bool:
    """Return whether validation raises anything but a validation error."""
    adapter: TypeAdapter[Any] = TypeAdapter(AnyCell)
    try:
        adapter.validate_python(dict(cell))
    except ValidationError:
        return False
    except Exception:
        return True
    return False


def _class_names(part: str) -> list[str]:
    """Return the names of the classes that a part of a world may have."""
    expected = PART_CLASSES.get(part, Distribution)
    return [name for name, kind in declared_classes().items() if issubclass(kind, expected)]


def _allowed_keys(where: list[Any], cell_type: str) -> list[str]:
    """Return the keys of the table in which an unknown key was found."""
    images = cell_type == "images"
    tables: dict[str, type[BaseModel]] = {
        "": ImageCell if images else Cell,
        "world": ImageWorldSpec if images else WorldSpec,
        "model": ImageModelSpec if images else ModelSpec,
        "published": Published,
    }
    return list(tables.get(str(where[0]) if len(where) > 1 else "", tables[""]).model_fields)
