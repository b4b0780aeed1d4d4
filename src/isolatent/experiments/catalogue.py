"""Where experiments are found, and how their files are read."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from isolatent.experiments.grids import as_list, as_table, as_text, cells_of, laid_over
from isolatent.experiments.settings import FILE_NAME
from isolatent.experiments.spec import Experiment
from isolatent.experiments.spec_errors import explained, stumbled
from isolatent.files import file_name

__all__ = ["find_experiment", "list_experiments", "read_experiment"]

TOP = ("title", "note", "defaults", "cells", "grids", "include")


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
    return _found(os.fspath(name), Path(), ())


def read_experiment(path: Path, name: str | None = None) -> Experiment:
    """Read a TOML file; every mistake is reported with the file, the key and what is allowed."""
    return _read(path, name, ())


def _found(name: str, folder: Path, above: tuple[Path, ...]) -> Experiment:
    """An experiment as it is named by a file in ``folder``, which those ``above`` include."""
    if name.endswith(".toml"):
        return _read(folder / name, None, above)
    if name not in list_experiments():
        raise ValueError(
            f"there is no experiment {name!r}; there are {', '.join(list_experiments())}, "
            "or give a .toml file"
        )
    with resources.as_file(resources.files("isolatent.experiments") / "specs") as root:
        return _read(root / f"{name}.toml", name, above)


def _read(path: Path, name: str | None, above: tuple[Path, ...]) -> Experiment:
    shown = f"{name}.toml" if name else str(path)
    data = _loaded(path, shown)
    if name is None and not re.fullmatch(FILE_NAME, path.stem):
        raise ValueError(
            f"{shown}: the file's name must begin with a letter or a digit and go on with letters, "
            f"digits and _ . + = - alone, got {path.name!r}"
        )
    here = path.resolve()
    if here in above:
        trail = " → ".join(file.name for file in (*above[above.index(here) :], here))
        raise ValueError(f"{shown}: include: the file would include itself: {trail}")
    if unknown := [key for key in data if key not in TOP]:
        raise ValueError(f"{shown}: {unknown[0]!r} is no key here; allowed are {', '.join(TOP)}")
    if not {"cells", "grids", "include"} & set(data):
        raise ValueError(f"{shown}: the file must have cells, grids or include")
    defaults = as_table(f"{shown}: defaults", data.get("defaults", {}))
    cells = [*_included(f"{shown}: include", data.get("include", []), path.parent, (*above, here))]
    cells += _written(shown, data)
    cells = [_near(path.parent, laid_over(defaults, cell)) for cell in cells]
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
        raise ValueError(explained(shown, error, cells)) from None
    except Exception as error:  # of a check that expected another type
        raise ValueError(stumbled(shown, error, cells)) from error


def _near(folder: Path, cell: dict[str, Any]) -> dict[str, Any]:
    """The cell with its file of transitions found in the folder, if there is such a file."""
    world = cell.get("world")
    if not isinstance(world, dict) or not isinstance(written := world.get("transitions"), str):
        return cell
    if not os.path.isfile(folder / written):
        return cell
    return {**cell, "world": {**world, "transitions": str((folder / written).resolve())}}


def _loaded(path: Path, shown: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{shown}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{shown} is not valid TOML: {error}") from error


def _included(
    where: str, references: Any, folder: Path, above: tuple[Path, ...]
) -> Iterator[dict[str, Any]]:
    """Cells of other experiments, as ``"<experiment>:<cell>"``."""
    for reference in as_list(where, references, "texts '<experiment>:<cell>'"):
        experiment, colon, wanted = as_text(where, reference).rpartition(":")
        if not colon:
            raise ValueError(f"{where}: must name a cell, '<experiment>:<cell>', got {reference!r}")
        try:
            found = {cell.name: cell for cell in _found(experiment, folder, above).cells}
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if wanted not in found:
            raise ValueError(
                f"{where}: {experiment} has no cell {wanted!r}; it has {', '.join(found)}"
            )
        own = Path(experiment).stem if experiment.endswith(".toml") else file_name(experiment)
        yield found[wanted].model_dump(exclude_none=True) | {"name": f"{own}-{wanted}"}


def _written(shown: str, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells as they are written, and those of the grids."""
    for key in ("cells", "grids"):
        tables = as_list(f"{shown}: {key}", data.get(key, []), f"tables, written [[{key}]]")
        for k, table in enumerate(tables):
            where = f"{shown}: {key}[{k}]"
            as_table(where, table)
            yield from [table] if key == "cells" else cells_of(where, table)
