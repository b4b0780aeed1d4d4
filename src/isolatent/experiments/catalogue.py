"""Find the TOML files of experiments, read them, and expand their grids into cells."""

from __future__ import annotations

import itertools
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from isolatent.experiments.cells import FILE_NAME_PATTERN
from isolatent.experiments.experiment import Experiment
from isolatent.experiments.spec_errors import invalid_key_message, validation_message
from isolatent.files import file_name

__all__ = [
    "deep_merge",
    "expand_grid",
    "find_experiment",
    "list_experiments",
    "read_experiment",
]

FILE_KEYS = ("title", "note", "defaults", "cells", "grids", "include")
GRID_KEYS = ("name", "axes", "cell", "published")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def list_experiments() -> list[str]:
    """Return the names of the shipped experiments, such as ``"zimmermann2021/table1"``."""
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
    """Return a shipped experiment by its name, or a user's own by the path of its TOML file.

    Example:
        >>> len(find_experiment("zimmermann2021/table1").cells)
        12
    """
    return _find(os.fspath(name), Path(), ())


def read_experiment(path: Path, name: str | None = None) -> Experiment:
    """Read a TOML file; errors name the file, the key and the allowed values."""
    return _read(path, name, ())


def _find(name: str, folder: Path, including: tuple[Path, ...]) -> Experiment:
    """Return an experiment by the name used in a file in ``folder``.

    ``including`` are the files that include each other on the way to that name.
    """
    if name.endswith(".toml"):
        return _read(folder / name, None, including)
    if name not in list_experiments():
        raise ValueError(
            f"there is no experiment {name!r}; must be one of {', '.join(list_experiments())}, "
            "or a .toml file"
        )
    with resources.as_file(resources.files("isolatent.experiments") / "specs") as root:
        return _read(root / f"{name}.toml", name, including)


def _read(path: Path, name: str | None, including: tuple[Path, ...]) -> Experiment:
    label = f"{name}.toml" if name else str(path)
    data = _load_toml(path, label)
    if name is None and not re.fullmatch(FILE_NAME_PATTERN, path.stem):
        raise ValueError(
            f"{label}: the file's name must begin with a letter or a digit and consist of letters, "
            f"digits and _ . + = - only, got {path.name!r}"
        )
    here = path.resolve()
    if here in including:
        cycle = " → ".join(file.name for file in (*including[including.index(here) :], here))
        raise ValueError(f"{label}: include: the file would include itself: {cycle}")
    if unknown := [key for key in data if key not in FILE_KEYS]:
        raise ValueError(f"{label}: unknown key {unknown[0]!r}; allowed are {', '.join(FILE_KEYS)}")
    if not {"cells", "grids", "include"} & set(data):
        raise ValueError(f"{label}: the file must have cells, grids or include")
    defaults = _check_table(f"{label}: defaults", data.get("defaults", {}))
    cells = [
        *_included_cells(
            f"{label}: include", data.get("include", []), path.parent, (*including, here)
        ),
        *_own_cells(label, data),
    ]
    cells = [_resolve_transitions(path.parent, deep_merge(defaults, cell)) for cell in cells]
    try:
        return Experiment.model_validate(
            {
                "name": name or path.stem,
                "title": data.get("title", ""),
                "note": data.get("note", ""),
                "cells": cells,
                "source": name or str(path),
            }
        )
    except ValidationError as error:
        raise ValueError(validation_message(label, error, cells)) from None
    except Exception as error:  # raised by a validator that expected another type
        raise ValueError(invalid_key_message(label, error, cells)) from error


def _load_toml(path: Path, label: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{label}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{label} is not valid TOML: {error}") from error


def _resolve_transitions(folder: Path, cell: dict[str, Any]) -> dict[str, Any]:
    """Make the path of the cell's transitions absolute if that file exists in ``folder``."""
    world = cell.get("world")
    if not isinstance(world, dict) or not isinstance(written := world.get("transitions"), str):
        return cell
    if not os.path.isfile(folder / written):
        return cell
    return {**cell, "world": {**world, "transitions": str((folder / written).resolve())}}


def _included_cells(
    where: str, references: Any, folder: Path, including: tuple[Path, ...]
) -> Iterator[dict[str, Any]]:
    """Yield cells of other experiments, referred to as ``"<experiment>:<cell>"``."""
    for reference in _check_list(where, references, "strings '<experiment>:<cell>'"):
        experiment, colon, wanted = _check_string(where, reference).rpartition(":")
        if not colon:
            raise ValueError(f"{where}: must name a cell, '<experiment>:<cell>', got {reference!r}")
        try:
            found = {cell.name: cell for cell in _find(experiment, folder, including).cells}
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if wanted not in found:
            raise ValueError(
                f"{where}: {experiment} has no cell {wanted!r}; its cells are {', '.join(found)}"
            )
        prefix = Path(experiment).stem if experiment.endswith(".toml") else file_name(experiment)
        yield found[wanted].model_dump(exclude_none=True) | {"name": f"{prefix}-{wanted}"}


def _own_cells(label: str, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the cells that a file lists, then the cells of its grids."""
    for key in ("cells", "grids"):
        tables = _check_list(f"{label}: {key}", data.get(key, []), f"tables, written [[{key}]]")
        for k, table in enumerate(tables):
            where = f"{label}: {key}[{k}]"
            _check_table(where, table)
            yield from [table] if key == "cells" else expand_grid(where, table)


def expand_grid(where: str, grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a cell for each combination of axis values, which replace ``{axis}``.

    Args:
        where: File and key, for errors.
        grid: A table with ``name``, a template of the cells' names; ``axes``, each a list of values
            or a table of values by label, where a value that is a table is merged into the cell;
            ``cell``, the template; and optionally ``published``, scores by the name of the cell.

    Example:
        >>> grid = {"name": "n{n}", "axes": {"n": [2, 3]}, "cell": {"a": "Box({n})", "b": "{n}"}}
        >>> [*expand_grid("mine.toml: grids[0]", grid)]
        [{'a': 'Box(2)', 'b': 2, 'name': 'n2'}, {'a': 'Box(3)', 'b': 3, 'name': 'n3'}]
    """
    if set(grid) - set(GRID_KEYS) or not {"name", "axes", "cell"} <= set(grid):
        raise ValueError(
            f"{where}: keys must be name, axes, cell and optionally published, "
            f"got {', '.join(grid)}"
        )
    name = _check_string(f"{where}.name", grid["name"])
    template = _check_table(f"{where}.cell", grid["cell"])
    published = dict(_check_table(f"{where}.published", grid.get("published", {})))
    axes = {
        axis: _labelled_values(f"{where}.axes.{axis}", values)
        for axis, values in _check_table(f"{where}.axes", grid["axes"]).items()
    }
    for point in itertools.product(*axes.values()):
        labels = {axis: label for axis, (label, _) in zip(axes, point, strict=True)}
        values = {axis: value for axis, (_, value) in zip(axes, point, strict=True)}
        cell = deepcopy(template)
        for value in values.values():
            if isinstance(value, dict):
                cell = deep_merge(cell, value)
        cell = _substitute(f"{where}.cell", cell, values)
        cell["name"] = str(_substitute(f"{where}.name", name, labels))
        if cell["name"] in published:
            cell["published"] = {"unsupervised": published.pop(cell["name"])}
        yield cell
    if published:
        raise ValueError(
            f"{where}: published must name cells of the grid, got {', '.join(published)}"
        )


def _labelled_values(where: str, axis: Any) -> list[tuple[str, Any]]:
    if isinstance(axis, dict):
        return [*axis.items()]
    return [(str(value), value) for value in _check_list(where, axis, "values, or a table of them")]


def _substitute(where: str, template: Any, values: Mapping[str, Any]) -> Any:
    """Replace each ``{axis}`` by its value; a sole placeholder becomes the value itself."""
    if isinstance(template, dict):
        return {
            key: _substitute(f"{where}.{key}", value, values) for key, value in template.items()
        }
    if isinstance(template, list):
        return [_substitute(f"{where}[{k}]", value, values) for k, value in enumerate(template)]
    if not isinstance(template, str):
        return template
    for name in PLACEHOLDER.findall(template):
        if name not in values:
            axes = ", ".join(values)
            raise ValueError(f"{where}: {template!r} names {name!r}, but the axes are {axes}")
    if set("{}") & set(PLACEHOLDER.sub("", template)):
        raise ValueError(f"{where}: {template!r} has an unmatched brace; axes are written {{axis}}")
    if whole := PLACEHOLDER.fullmatch(template):
        return values[whole[1]]
    return PLACEHOLDER.sub(lambda field: str(values[field[1]]), template)


def deep_merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested tables, ``above`` taking precedence.

    Declarations, which are tables with the key ``kind``, are replaced as a whole.

    Example:
        >>> deep_merge({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
        {'a': {'b': 1, 'c': 3}}
    """
    merged = dict(deepcopy(below))
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(under, dict) and isinstance(value, dict) and "kind" not in value:
            merged[key] = deep_merge(under, value)
        else:
            merged[key] = deepcopy(value)
    return merged


def _check_table(where: str, value: Any) -> dict[str, Any]:
    """Return ``value`` if it is a table; ``where`` names the file and the key."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: must be a table, got {_describe(value)}")
    return value


def _check_list(where: str, value: Any, elements: str) -> list[Any]:
    """Return ``value`` if it is a list; ``elements`` describes its elements."""
    if not isinstance(value, list):
        raise ValueError(f"{where}: must be a list of {elements}, got {_describe(value)}")
    return value


def _check_string(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: must be a string, got {_describe(value)}")
    return value


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else repr(value)
