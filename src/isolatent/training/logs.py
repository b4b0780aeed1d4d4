"""A log of a run that other programs can read."""

from __future__ import annotations

import csv
import os
from dataclasses import astuple, fields
from pathlib import Path
from types import TracebackType
from typing import Self

from isolatent.training.steps import Step

__all__ = ["CsvLog"]


class CsvLog:
    """One line per step: number, loss and what else a :class:`Step` knows.

    Used as a context manager and called with every step. A file that is there is continued: what
    it holds up to the first step is kept, what a killed run wrote beyond its checkpoint replaced.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._started = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._started:
            self._file.close()

    def __call__(self, step: Step) -> None:
        if not self._started:
            self._start(step.number)
        self._writer.writerow("" if value is None else value for value in astuple(step))
        self._file.flush()

    def _start(self, first: int) -> None:
        header = [field.name for field in fields(Step)]
        kept: list[list[str]] = []
        if self.path.is_file():
            with self.path.open(newline="") as file:
                rows = list(csv.reader(file))
            if rows and rows[0] != header:
                raise ValueError(f"{self.path} is not a log of isolatent: it starts with {rows[0]}")
            kept = [r for r in rows[1:] if len(r) == len(header) and int(r[0]) < first]
        self._file = self.path.open("w", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerows([header, *kept])
        self._started = True
