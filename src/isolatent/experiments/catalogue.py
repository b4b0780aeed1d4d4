"""Where experiments are found, and how their files are read."""

from __future__ import annotations

import itertools
import os
import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from isolatent.experiments.cells import Cell, ModelSpec, WorldSpec
from isolatent.experiments.image_cells import ImageCell, ImageModelSpec, ImageWorldSpec
from isolatent.experiments.settings import Published
from isolatent.experiments.spec import Experiment

__all__ = ["find_experiment", "list_experiments", "read_experiment"]

TOP = ("title", "note", "defaults", "cells", "grids", "include")
GRID = ("name", "axes", "cell", "published")


def list_experiments() -> list[str]:
    """Names of the experiments that are shipped, such as ``"zimmermann2021/table1"``."""
    root = resources.files("isolatent.experiments") / "specs"
    files = [
        (f"{folder.name}/", file)
        for folder in root.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
    ]
    files += [("", file) for file in root.iterdir()]
    names = [f"{paper}{file.name[:-5]}" for paper, file in files if file.name.endswith(".toml")]
    return sorted(names, key=lambda name: ("/" not in name, name))


def find_experiment(name: str | os.PathLike[str]) -> Experiment:
    """A shipped experiment by its name, or one of your own by the path of its TOML file.

    Example:
        >>> len(find_experiment("zimmermann2021/table1").cells)
        12
    """
    text = os.fspath(name)
    if text.endswith(".toml"):
        return read_experiment(Path(text))
    if text not in list_experiments():
        raise ValueError(
            f"there is no experiment {text!r}; there are {', '.join(list_experiments())}, "
            "or give a .toml file"
        )
    with resources.as_file(resources.files("isolatent.experiments") / "specs") as root:
        return read_experiment(root / f"{text}.toml", name=text)


def read_experiment(path: Path, name: str | None = None) -> Experiment:
    """Read a TOML file; every mistake is reported with the file, the key and what is allowed."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
    shown = f"{name}.toml" if name else str(path)
    if unknown := [key for key in data if key not in TOP]:
        raise ValueError(f"{shown}: {unknown[0]!r} is no key here; allowed are {', '.join(TOP)}")
    cells = [*_expanded(data, shown)]
    try:
        defaults = data.get("defaults", {})
        included = [_over(defaults, c) for c in _included(data.get("include", []), shown)]
        return Experiment.model_validate(
            {
                "name": name or path.stem,
                "title": data.get("title", ""),
                "note": data.get("note", ""),
                "cells": included + cells,
                "source": name or str(path),
            }
        )
    except ValidationError as error:
        raise ValueError(_explained(shown, error, included + cells)) from None


def _included(references: Any, shown: str) -> Iterator[dict[str, Any]]:
    """Cells of other experiments, as ``"<experiment>:<cell>"``."""
    for reference in references:
        experiment, _, wanted = str(reference).partition(":")
        found = {cell.name: cell for cell in find_experiment(experiment).cells}
        if wanted not in found:
            raise ValueError(
                f"{shown}: include: {experiment} has no cell {wanted!r}; it has {', '.join(found)}"
            )
        cell = found[wanted].model_dump(exclude_none=True)
        yield cell | {"name": f"{experiment.replace('/', '-')}-{wanted}"}


def _expanded(data: Mapping[str, Any], shown: str) -> Iterator[dict[str, Any]]:
    """The cells as they are written and those of the grids, each with the defaults below it."""
    defaults = data.get("defaults", {})
    for cell in data.get("cells", []):
        yield _over(defaults, cell)
    for grid in data.get("grids", []):
        for cell in _cells_of(grid, shown):
            yield _over(defaults, cell)


def _cells_of(grid: Mapping[str, Any], shown: str) -> Iterator[dict[str, Any]]:
    if set(grid) - set(GRID) or not {"name", "axes", "cell"} <= set(grid):
        raise ValueError(
            f"{shown}: a grid has name, axes, cell and perhaps published, got {', '.join(grid)}"
        )
    axes = [
        [(label, value) for label, value in axis.items()]
        if isinstance(axis, dict)
        else [(str(value), value) for value in axis]
        for axis in grid["axes"].values()
    ]
    published = dict(grid.get("published", {}))
    for point in itertools.product(*axes):
        labels = {axis: label for axis, (label, _) in zip(grid["axes"], point, strict=True)}
        values = {axis: value for axis, (_, value) in zip(grid["axes"], point, strict=True)}
        cell = deepcopy(grid["cell"])
        for value in values.values():
            if isinstance(value, dict):
                cell = _over(cell, value)
        cell = _filled(cell, values, shown)
        cell["name"] = _filled(grid["name"], labels, shown)
        if cell["name"] in published:
            cell["published"] = {"unsupervised": published.pop(cell["name"])}
        yield cell
    if published:
        raise ValueError(f"{shown}: published names no cell of the grid: {', '.join(published)}")


def _filled(template: Any, values: Mapping[str, Any], shown: str) -> Any:
    """Put values for ``{axis}``; a text that is nothing else becomes the value itself."""
    if isinstance(template, dict):
        return {key: _filled(value, values, shown) for key, value in template.items()}
    if isinstance(template, list):
        return [_filled(value, values, shown) for value in template]
    if not isinstance(template, str) or "{" not in template:
        return template
    if template[1:-1] in values and template == f"{{{template[1:-1]}}}":
        return values[template[1:-1]]
    try:
        return template.format_map(values)
    except KeyError as error:
        raise ValueError(
            f"{shown}: {template!r} names {error}, but the axes are {', '.join(values)}"
        ) from None


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables; declarations, which have a kind, replace each other whole."""
    merged = dict(deepcopy(below))
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = _over(under, value) if both and "kind" not in value else deepcopy(value)  # type: ignore[arg-type]
    return merged


def _explained(shown: str, error: ValidationError, cells: list[dict[str, Any]]) -> str:
    """One line for each mistake: file, cell, key, what is wrong."""
    lines = []
    for mistake in error.errors():
        where = [*mistake["loc"]]
        cell, kind = "", "latents"
        if len(where) > 1 and where[0] == "cells":
            cell = f" cell {cells[int(where[1])].get('name', where[1])!r}:"
            kind, where = str(where[2]), where[3:]
        key = ".".join(map(str, where))
        message = mistake["msg"].removeprefix("Value error, ")
        if mistake["type"] == "extra_forbidden":
            message = f"no such key; allowed are {', '.join(_allowed(where, kind))}"
        elif mistake["type"] == "missing":
            message = "must be given"
        lines.append(f"{shown}:{cell} {key + ': ' if key else ''}{message}")
    return "\n".join(lines)


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
