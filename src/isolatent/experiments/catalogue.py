"""Find the TOML files of experiments, read them, and expand their grids into cells."""

from __future__ import annotations

import itertools
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from isolatent.experiments.cells import FILE_NAME_PATTERN, Cell, Published
from isolatent.experiments.experiment import CELL_TYPES, Experiment
from isolatent.files import file_name

__all__ = [
    "deep_merge",
    "expand_grid",
    "find_experiment",
    "list_experiments",
]

SPECS = Path(__file__).parent / "specs"
FILE_KEYS = ("title", "note", "defaults", "cells", "grids", "include", "variant_of", "overrides")
GRID_KEYS = ("name", "axes", "cell", "published")
MAX_CELLS = 10_000  # of a grid
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
Value = TypeVar("Value", str, list[Any], dict[str, Any])


def list_experiments() -> list[str]:
    """Return the names of the shipped experiments, such as ``"zimmermann2021/table1"``."""
    names = [path.relative_to(SPECS).with_suffix("").as_posix() for path in SPECS.rglob("*.toml")]
    return sorted(names, key=lambda name: ("/" not in name, name))


def find_experiment(name: str | os.PathLike[str]) -> Experiment:
    """Return a shipped experiment by its name, or a user's own by the path of its TOML file.

    Errors in a file name the file, the cell, the key and the allowed values.

    Example:
        >>> len(find_experiment("zimmermann2021/table1").cells)
        12
    """
    return _find(os.fspath(name), Path(), ())


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
    return _read(SPECS / f"{name}.toml", name, including)


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
    if not {"cells", "grids", "include", "variant_of"} & set(data):
        raise ValueError(f"{label}: the file must have cells, grids, include or variant_of")
    defaults = _check(f"{label}: defaults", data.get("defaults", {}), dict, "a table")
    cells = [
        *_cells_of_variant(label, data, path.parent, (*including, here)),
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
        raise ValueError(_validation_message(label, error, cells)) from None


def _validation_message(
    label: str, error: ValidationError, cells: Sequence[Mapping[str, Any]]
) -> str:
    """Return one line for each error: file, cell, key and what is wrong."""
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
        key = ".".join(map(str, where))
        lines.append(f"{label}:{cell} {key + ': ' if key else ''}{message}")
    return "\n".join(lines)


def _allowed_keys(where: Sequence[Any], cell_type: str) -> list[str]:
    """Return the keys of the table in which an unknown key was found."""
    table: Any = CELL_TYPES.get(cell_type, Cell)
    if len(where) > 1:
        fields = table.model_fields
        table = Published if where[0] == "published" else fields[where[0]].annotation
    return [*table.model_fields]


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


def _cells_of_variant(
    label: str, data: Mapping[str, Any], folder: Path, including: tuple[Path, ...]
) -> Iterator[dict[str, Any]]:
    """Yield all cells of another experiment, each changed by the same table."""
    overrides = _check(f"{label}: overrides", data.get("overrides", {}), dict, "a table")
    if "variant_of" not in data:
        if overrides:
            raise ValueError(f"{label}: overrides require variant_of, whose cells they change")
        return
    where = f"{label}: variant_of"
    name = _check(where, data["variant_of"], str, "a string")
    try:
        experiment = _find(name, folder, including)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    for cell in experiment.cells:
        yield deep_merge(cell.model_dump(exclude_none=True), overrides)


def _included_cells(
    where: str, references: Any, folder: Path, including: tuple[Path, ...]
) -> Iterator[dict[str, Any]]:
    """Yield cells of other experiments, referred to as ``"<experiment>:<cell>"``."""
    for reference in _check(where, references, list, "a list of strings '<experiment>:<cell>'"):
        name = _check(where, reference, str, "a string")
        experiment, colon, wanted = name.rpartition(":")
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
        expected = f"a list of tables, written [[{key}]]"
        for k, table in enumerate(_check(f"{label}: {key}", data.get(key, []), list, expected)):
            where = f"{label}: {key}[{k}]"
            _check(where, table, dict, "a table")
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
    name = _check(f"{where}.name", grid["name"], str, "a string")
    template = _check(f"{where}.cell", grid["cell"], dict, "a table")
    published = dict(_check(f"{where}.published", grid.get("published", {}), dict, "a table"))
    axes = {
        axis: _labelled_values(f"{where}.axes.{axis}", values)
        for axis, values in _check(f"{where}.axes", grid["axes"], dict, "a table").items()
    }
    count = math.prod(map(len, axes.values()))
    if count > MAX_CELLS:
        sizes = " × ".join(str(len(values)) for values in axes.values())
        raise ValueError(
            f"{where}.axes: must make at most {MAX_CELLS} cells, got {sizes} = {count}"
        )
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
    values = _check(where, axis, list, "a list of values, or a table of them")
    return [(str(value), value) for value in values]


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


def _check(where: str, value: Any, expected: type[Value], description: str) -> Value:
    """Return ``value`` if it has the expected type; ``where`` names the file and the key."""
    if not isinstance(value, expected):
        names: dict[type[Any], str] = {dict: "a table", list: "a list"}
        got = names.get(type(value), repr(value))
        raise ValueError(f"{where}: must be {description}, got {got}")
    return value
