"""Progress of a reproduction: a live table on a terminal, one line for each run elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from isolatent.experiments.experiment import AnyCell, Experiment
from isolatent.experiments.results import (
    Row,
    make_row,
    ours_heading,
    ours_text,
    seconds_of_runs,
    spread_text,
)
from isolatent.experiments.runner import Event

__all__ = ["ReproductionDisplay"]

FRAME_HEIGHT = 6  # lines of the table besides its rows


class ReproductionDisplay:
    """Shows the progress of :func:`reproduce`: a context manager that is also its callback.

    Args:
        experiment: The experiment that is reproduced.
        seeds: Number of seeds of each cell.
        quiet: Show nothing.
        console: The console to print to; by default standard output.
    """

    def __init__(
        self,
        experiment: Experiment,
        seeds: int,
        quiet: bool = False,
        console: Console | None = None,
    ) -> None:
        self.experiment, self.seeds, self.quiet = experiment, seeds, quiet
        self.console = console or Console(highlight=False)
        self.records: dict[str, dict[int, dict[str, Any]]] = {c.name: {} for c in experiment.cells}
        self.running: list[tuple[str, int]] = []
        self.recent: list[str] = []  # names of cells, the one that changed last at the end
        self.total, self.finished = len(experiment.cells) * seeds, 0
        self.live = not quiet and self.console.is_terminal
        self._lock = threading.RLock()  # joblib starts runs from several threads

    def __enter__(self) -> Self:
        if self.live:
            self._live = Live(self.table(), console=self.console, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.live:
            self._live.update(self.table())
            self._live.stop()

    def __call__(self, event: Event) -> None:
        key = event.run.cell.name, event.run.seed
        with self._lock:
            if event.kind == "started":
                self.running.append(key)
            else:
                self.finished += 1
            if event.record is not None:
                self.records[key[0]][key[1]] = event.record
            if event.kind == "finished" and event.record is not None:
                self.running.remove(key)
                if not self.quiet and not self.live:
                    line = self._line(event.run.cell, event.record)
                    # Text, since rich would interpret brackets in an error as markup.
                    self.console.print(Text(line), soft_wrap=True)
            if event.kind != "skipped":
                self.recent = [name for name in self.recent if name != key[0]] + [key[0]]
            if self.live:
                self._live.update(self.table())

    def table(self) -> Table:
        """Return a table of all cells, or of the most recent ones if all would not fit."""
        ours = ours_heading({cell.centre for cell in self.experiment.cells})
        table = Table(
            *("cell", "score", ours, "seeds", "paper [%]", ""),
            title=self.experiment.name,
            caption=f"{self.finished} of {self.total} runs",
        )
        height = max(4, self.console.height - FRAME_HEIGHT)
        names = [cell.name for cell in self.experiment.cells]
        if len(names) > height:
            newest = self.recent[-height:]
            names = newest + [name for name in names if name not in newest][: height - len(newest)]
        for cell in self.experiment.cells:
            if cell.name in names:
                table.add_row(*self._table_row(cell))
        return table

    def _table_row(self, cell: AnyCell) -> list[str]:
        records = [*self.records[cell.name].values()]
        row = _main_row(cell, records)
        running = sum(name == cell.name for name, _ in self.running)
        states = [r["status"] for r in records if r["status"] != "done"]
        notes = [f"{running} running"] if running else []
        notes += [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
        seeds, paper = f"{len(records)}/{self.seeds}", spread_text(row.published, row.spread)
        return [cell.name, row.metric, ours_text(row), seeds, paper, ", ".join(notes)]

    def _line(self, cell: AnyCell, record: dict[str, Any]) -> str:
        row = _main_row(cell, [record])
        message = record["error"] or ("" if row.ours is None else f"{row.metric} {row.ours:.2f} %")
        if row.published is not None and row.ours is not None:
            message += f" (paper {spread_text(row.published, row.spread)})"
        seconds, kind = seconds_of_runs([record])
        if seconds:
            message += f", {seconds[0]:.0f} s of {kind} time"
        count = f"[{self.finished}/{self.total}]"
        return f"{count} {cell.name} seed {record['seed']}: {record['status']} {message}"


def _main_row(cell: AnyCell, records: Sequence[dict[str, Any]]) -> Row:
    """Return the row of the first metric, unsupervised or of the last approach of a cell."""
    approach = "unsupervised" if "unsupervised" in cell.approaches else cell.approaches[-1]
    return make_row("", cell.model_dump(), approach, cell.metrics[0], records)
