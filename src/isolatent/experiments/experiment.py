"""Experiments, which are named lists of cells, and the runs of their cells with seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator

from isolatent import __version__
from isolatent.experiments.augmentation_cells import AugmentationCell
from isolatent.experiments.cells import FILE_NAME_PATTERN, Cell, CellFields, Spec
from isolatent.experiments.frame_cells import FrameCell
from isolatent.experiments.image_cells import ImageCell
from isolatent.files import digest_json, file_name

__all__ = ["CELL_TYPES", "AnyCell", "Experiment", "Run", "hashed_fields"]

CELL_TYPES: dict[str, type[CellFields]] = {
    "images": ImageCell,
    "frames": FrameCell,
    "photographs": AugmentationCell,
}
# Fields of a cell that do not change its result: every run records all scores.
UNHASHED = {"name", "metrics", "published", "centre", "comparable", "matches", "limits", "note"}


def _cell_type(written: Any) -> str:
    """Return the tag of the class that validates a cell: a key of its world, or ``"latents"``."""
    for tag, kind in CELL_TYPES.items():
        if isinstance(written, kind):
            return tag
    world = written.get("world") if isinstance(written, dict) else None
    found = [tag for tag in CELL_TYPES if isinstance(world, dict) and tag in world]
    return found[0] if found else "latents"


AnyCell = Annotated[
    Annotated[Cell, Tag("latents")]
    | Annotated[ImageCell, Tag("images")]
    | Annotated[FrameCell, Tag("frames")]
    | Annotated[AugmentationCell, Tag("photographs")],
    Discriminator(_cell_type),
]


def hashed_fields(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a cell, as plain data, on which its result depends."""
    return {key: value for key, value in cell.items() if key not in UNHASHED}


class Run(Spec):
    """A cell with a seed.

    Attributes:
        experiment: The name of the experiment, such as ``"zimmermann2021/table1"``.
        cell: The cell.
        seed: The seed of the world and of training.
        source: The argument of ``isolatent reproduce`` that names the experiment.
    """

    experiment: str
    cell: AnyCell
    seed: int = Field(ge=0)
    source: str

    @property
    def hash(self) -> str:
        """SHA-256 of everything declared that the result depends on, with seed and package version.

        The program is not part of it but of the record (:mod:`isolatent.experiments.program`), so
        that the results of another program are found, and known to be stale.

        Published scores, notes and other fields in ``UNHASHED`` are not part of it: they can be
        corrected without repeating the run.
        """
        cell = hashed_fields(self.cell.to_dict())
        return digest_json({"cell": cell, "seed": self.seed, "version": __version__})

    @property
    def file(self) -> str:
        """Path of the record, relative to the directory of results."""
        folder = file_name(self.experiment)
        return f"runs/{folder}/{self.cell.name}-seed{self.seed}-{self.hash[:12]}.json"


class Experiment(Spec):
    """A named list of cells.

    Attributes:
        name: ``"<paper>/<table>"`` of a shipped experiment, otherwise the stem of its file.
        title: A title of one line.
        note: A caveat shown beside the results.
        cells: The cells.
        source: The argument of ``isolatent reproduce`` that names the experiment.
    """

    name: str = Field(pattern=rf"^{FILE_NAME_PATTERN}(/{FILE_NAME_PATTERN})?$")
    title: str
    note: str = ""
    cells: list[AnyCell] = Field(min_length=1)
    source: str = ""

    @field_validator("cells")
    @classmethod
    def _check_unique_names(cls, cells: list[AnyCell]) -> list[AnyCell]:
        names = [cell.name for cell in cells]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"names of cells must be unique, got {repeated} more than once")
        return cells

    def runs(self, seeds: Sequence[int]) -> list[Run]:
        """Return the runs of every cell with every seed, ordered by seed, then by cell."""
        source = self.source or self.name
        return [
            Run(experiment=self.name, cell=cell, seed=seed, source=source)
            for seed in seeds
            for cell in self.cells
        ]
