"""Cells that differ in a few settings, written once: every point of a grid is a cell."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

__all__ = ["as_list", "as_table", "as_text", "cells_of", "laid_over"]

GRID = ("name", "axes", "cell", "published")
FIELD = re.compile(r"\{([^{}]*)\}")


def as_table(where: str, value: Any) -> dict[str, Any]:
    """Return ``value`` if it is a table; ``where`` is the file and the key, for the error."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: must be a table, got {_shown(value)}")
    return value


def as_list(where: str, value: Any, of: str) -> list[Any]:
    """Return ``value`` if it is a list; ``of`` says what of."""
    if not isinstance(value, list):
        raise ValueError(f"{where}: must be a list of {of}, got {_shown(value)}")
    return value


def as_text(where: str, value: Any) -> str:
    """Return ``value`` if it is a text."""
    if not isinstance(value, str):
        raise ValueError(f"{where}: must be a text, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else repr(value)


def cells_of(where: str, grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A cell for each combination of the axes' values, put for ``{axis}``.

    Args:
        where: File and key, for errors.
        grid: ``name``, a template of the cells' names; ``axes``, for each a list of values or a
            table of values by label, of which those that are tables are laid over the cell;
            ``cell``, the template; and perhaps ``published`` by cell.

    Example:
        >>> grid = {"name": "n{n}", "axes": {"n": [2, 3]}, "cell": {"a": "Box({n})", "b": "{n}"}}
        >>> [*cells_of("mine.toml: grids[0]", grid)]
        [{'a': 'Box(2)', 'b': 2, 'name': 'n2'}, {'a': 'Box(3)', 'b': 3, 'name': 'n3'}]
    """
    if set(grid) - set(GRID) or not {"name", "axes", "cell"} <= set(grid):
        raise ValueError(
            f"{where}: a grid has name, axes, cell and perhaps published, got {', '.join(grid)}"
        )
    name = as_text(f"{where}.name", grid["name"])
    template = as_table(f"{where}.cell", grid["cell"])
    published = dict(as_table(f"{where}.published", grid.get("published", {})))
    axes = {
        axis: _labelled(f"{where}.axes.{axis}", values)
        for axis, values in as_table(f"{where}.axes", grid["axes"]).items()
    }
    for point in itertools.product(*axes.values()):
        labels = {axis: label for axis, (label, _) in zip(axes, point, strict=True)}
        values = {axis: value for axis, (_, value) in zip(axes, point, strict=True)}
        cell = deepcopy(template)
        for value in values.values():
            if isinstance(value, dict):
                cell = laid_over(cell, value)
        cell = _filled(f"{where}.cell", cell, values)
        cell["name"] = str(_filled(f"{where}.name", name, labels))
        if cell["name"] in published:
            cell["published"] = {"unsupervised": published.pop(cell["name"])}
        yield cell
    if published:
        raise ValueError(f"{where}: published names no cell of the grid: {', '.join(published)}")


def _labelled(where: str, axis: Any) -> list[tuple[str, Any]]:
    if isinstance(axis, dict):
        return [*axis.items()]
    return [(str(value), value) for value in as_list(where, axis, "values, or a table of them")]


def _filled(where: str, template: Any, values: Mapping[str, Any]) -> Any:
    """Put values for ``{axis}``; a text that is nothing else becomes the value itself."""
    if isinstance(template, dict):
        return {key: _filled(f"{where}.{key}", value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [_filled(f"{where}[{k}]", value, values) for k, value in enumerate(template)]
    if not isinstance(template, str):
        return template
    for name in FIELD.findall(template):
        if name not in values:
            axes = ", ".join(values)
            raise ValueError(f"{where}: {template!r} names {name!r}, but the axes are {axes}")
    if set("{}") & set(FIELD.sub("", template)):
        raise ValueError(f"{where}: {template!r} has a brace that is no part of an {{axis}}")
    if whole := FIELD.fullmatch(template):
        return values[whole[1]]
    return FIELD.sub(lambda field: str(values[field[1]]), template)


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables; declarations, which have a kind, replace each other whole."""
    merged = dict(deepcopy(below))
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = laid_over(under, value) if both and "kind" not in value else deepcopy(value)  # type: ignore[arg-type]
    return merged
