"""Experiments as data: named lists of cells, and their runs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator

from isolatent import __version__
from isolatent.experiments.cells import Cell
from isolatent.experiments.image_cells import ImageCell
from isolatent.experiments.settings import FILE_NAME, Spec, plain, what_matters
from isolatent.files import digest_json, file_name

__all__ = ["AnyCell", "Experiment", "Run"]


def _kind(written: Any) -> str:
    """Which of the kinds of cells this is: its world has images, or it has latents."""
    if isinstance(written, ImageCell):
        return "images"
    world = written.get("world") if isinstance(written, dict) else None
    return "images" if isinstance(world, dict) and "images" in world else "latents"


AnyCell = Annotated[
    Annotated[Cell, Tag("latents")] | Annotated[ImageCell, Tag("images")], Discriminator(_kind)
]


class Run(Spec):
    """A cell with a seed.

    Attributes:
        experiment: The name of the experiment, such as ``"zimmermann2021/table1"``.
        cell: The cell.
        seed: Of the world and of the training.
        source: What the command ``isolatent reproduce`` takes to find the experiment again.
    """

    experiment: str
    cell: AnyCell
    seed: int = Field(ge=0)
    source: str

    @property
    def hash(self) -> str:
        """Changes with all that a result depends on: also the seed and the package's version.

        What a table says beside the result, such as the paper's figure or a note, can be mended
        without running anything again.
        """
        cell = what_matters(plain(self.cell))
        return digest_json({"cell": cell, "seed": self.seed, "version": __version__})

    @property
    def file(self) -> str:
        """Where the result belongs, below the directory of results."""
        folder = file_name(self.experiment)
        return f"runs/{folder}/{self.cell.name}-seed{self.seed}-{self.hash[:12]}.json"


class Experiment(Spec):
    """A named list of cells.

    Attributes:
        name: ``"<paper>/<table>"`` for shipped ones, the file's stem for others.
        title: What it is, in a line.
        note: What a reader must know before believing it.
        cells: The settings.
        source: What the command ``isolatent reproduce`` takes to find it again.
    """

    name: str = Field(pattern=rf"^{FILE_NAME}(/{FILE_NAME})?$")
    title: str
    note: str = ""
    cells: list[AnyCell] = Field(min_length=1)
    source: str = ""

    @field_validator("cells")
    @classmethod
    def _distinct(cls, cells: list[AnyCell]) -> list[AnyCell]:
        names = [cell.name for cell in cells]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"every cell needs a name of its own, but {twice} come twice")
        return cells

    def runs(self, seeds: list[int]) -> list[Run]:
        """Every cell with every seed; the first seed of all cells comes first."""
        source = self.source or self.name
        return [
            Run(experiment=self.name, cell=cell, seed=seed, source=source)
            for seed in seeds
            for cell in self.cells
        ]
