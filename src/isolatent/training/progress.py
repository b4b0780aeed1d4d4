"""Showing a person how training goes."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from isolatent.training.steps import Step

__all__ = ["ProgressDisplay"]

PAUSE = 10.0  # seconds between two plain lines


class ProgressDisplay:
    """A live bar on a terminal, a plain line now and then elsewhere, nothing when quiet.

    Used as a context manager and called with every :class:`Step`. The steps in all, and so the time
    left, are the most there can be until the held-out loss stops falling; then they are known.

    Args:
        console: Where to draw.
        quiet: Whether to show nothing.
        quality_name: What the quality figure is, such as ``"R²"``.
        pause: Seconds between two plain lines; the last step always gets one.
    """

    def __init__(
        self,
        console: Console | None = None,
        quiet: bool = False,
        quality_name: str = "quality",
        pause: float = PAUSE,
    ) -> None:
        self.console = console or Console(stderr=True)
        self.quiet = quiet
        self.quality_name = quality_name
        self.pause = pause
        self._measured: dict[str, float] = {}
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        self._started = self._printed = time.monotonic()
        self._before: int | None = None  # steps done when we began to look, after a resume
        if not self.quiet and self.console.is_terminal:
            self._bar = Progress(
                TextColumn("step {task.completed} of at most {task.total}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[figures]}"),
                TimeElapsedColumn(),
                TextColumn("left at most"),
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
        for name, value in (("held-out loss", step.held_out), (self.quality_name, step.quality)):
            if value is not None:
                self._measured[name] = value
        if self._before is None:
            self._before = step.number - 1
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.update(
                self._task, completed=step.number, total=step.total, figures=self._figures(step)
            )
            return
        now = time.monotonic()
        if now - self._printed >= self.pause or step.number == step.total:
            pace = (now - self._started) / (step.number - self._before)
            left = f"at most {_clock(pace * (step.total - step.number))} left"
            line = f"step {step.number} of at most {step.total}  {self._figures(step)}  {left}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)
            self._printed = now

    def _figures(self, step: Step) -> str:
        parts = [f"loss {step.loss:.3f}"]
        if step.information is not None:
            parts.append(f"information ≥ {step.information:.2f} nats")
        if step.scale is not None:
            parts.append(f"scale {step.scale:.2f}")
        parts += [f"{name} {value:.3f}" for name, value in self._measured.items()]
        return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
