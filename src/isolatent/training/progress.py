"""Showing a person how training goes."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from isolatent.training.steps import Step

__all__ = ["ProgressDisplay"]

PLAIN_LINES = 10  # how many lines a run prints where there is no terminal to draw on


class ProgressDisplay:
    """A live bar on a terminal, a few plain lines elsewhere, nothing when quiet.

    Used as a context manager and called with every :class:`Step`.

    Args:
        console: Where to draw.
        quiet: Whether to show nothing.
        quality_name: What the quality figure is, such as ``"R²"``.
    """

    def __init__(
        self, console: Console | None = None, quiet: bool = False, quality_name: str = "quality"
    ) -> None:
        self.console = console or Console(stderr=True)
        self.quiet = quiet
        self.quality_name = quality_name
        self._quality: float | None = None
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if not self.quiet and self.console.is_terminal:
            self._bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[figures]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("training", total=None, figures="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, step: Step) -> None:
        self._quality = step.quality if step.quality is not None else self._quality
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.update(
                self._task, completed=step.number, total=step.total, figures=self._figures(step)
            )
        elif step.number % max(1, step.total // PLAIN_LINES) == 0 or step.number == step.total:
            line = f"step {step.number}/{step.total}  {self._figures(step)}"
            self.console.print(line, markup=False, highlight=False)

    def _figures(self, step: Step) -> str:
        parts = [f"loss {step.loss:.3f}"]
        if step.information is not None:
            parts.append(f"information ≥ {step.information:.2f} nats")
        if step.scale is not None:
            parts.append(f"scale {step.scale:.2f}")
        if self._quality is not None:
            parts.append(f"{self.quality_name} {self._quality:.3f}")
        return "  ".join(parts)
