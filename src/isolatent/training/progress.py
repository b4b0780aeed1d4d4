"""Follow a training run: its steps, a progress display, and a log file."""

from __future__ import annotations

import csv
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from isolatent.checks import IsolatentWarning

__all__ = [
    "CsvLog",
    "LoggerLog",
    "NotebookLine",
    "ProgressDisplay",
    "Step",
    "follow",
    "ignore_step",
    "steps_from_tensor",
    "steps_to_tensor",
    "tensorboard_log",
]

SECONDS_BETWEEN_LINES = 10.0
PATIENCE, NOTEBOOK_PAUSE = 5.0, 0.5  # seconds
# Time left that is told before the held-out loss has levelled off: most fits end far earlier.
LONGEST_TOLD = 600.0  # seconds
UNTIL_PLATEAU = "ends when the held-out loss levels off"


@dataclass(frozen=True)
class Step:
    """Measurements after an optimiser step.

    Attributes:
        number: Steps done.
        total: Steps in all, as far as is known: the number falls when the held-out loss levels off.
        loss: The loss of this step's batch.
        information: InfoNCE's bound log B - loss on the information that a pair shares, in nats;
            None for other losses.
        scale: The similarity's scale, or the mean of its weights, if it has them.
        quality: Score of the averaged network on known factors, where it was just measured.
        held_out: Loss of the averaged network on held-out pairs, where it was just measured. All
            of them are contrasted at once, so it is not comparable with ``loss``.
        held_out_information: The bound log B - loss on held-out pairs, where it was just measured,
            in nats; as ``information``, it is at most log B, with all held-out pairs as B.
    """

    number: int
    total: int
    loss: float
    information: float | None
    scale: float | None
    quality: float | None = None
    held_out: float | None = None
    held_out_information: float | None = None


def steps_to_tensor(steps: Sequence[Step]) -> Tensor:
    """Return a table (steps, fields), with NaN for None."""
    rows = [[math.nan if v is None else float(v) for v in astuple(step)] for step in steps]
    return torch.tensor(rows, dtype=torch.float64).view(len(rows), len(fields(Step)))


def steps_from_tensor(table: Tensor) -> list[Step]:
    """Return the steps of a table that :func:`steps_to_tensor` returned.

    Tables of earlier versions lack the last columns.
    """
    return [
        Step(int(number), int(total), loss, *(None if math.isnan(v) else v for v in rest))
        for number, total, loss, *rest in table.tolist()
    ]


class ProgressDisplay:
    """A live bar on a terminal, a plain line now and then elsewhere, nothing when quiet.

    Use it as a context manager and call it with every :class:`Step`. The number of steps, and so
    the time left, is an upper bound until the held-out loss levels off; until then, long times left
    are not told, since most fits end far earlier.

    Args:
        console: Where to draw; standard error by default.
        quiet: Whether to show nothing.
        quality_name: Name of the quality figure, such as ``"R²"``.
        pause: Seconds between two plain lines; the last step always gets one.
        counted: What is counted, such as ``"images"``, and a function that returns how many there
            have been, to show their number a second.
    """

    def __init__(
        self,
        console: Console | None = None,
        quiet: bool = False,
        quality_name: str = "quality",
        pause: float = SECONDS_BETWEEN_LINES,
        counted: tuple[str, Callable[[], int]] | None = None,
    ) -> None:
        self.console = console or Console(stderr=True)
        self.quiet = quiet
        self.quality_name = quality_name
        self.pause = pause
        self.counted = counted
        self._measured: dict[str, float] = {}
        self._first_total: int | None = None
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        self._started = self._printed = time.monotonic()
        self._counted_before = 0 if self.counted is None else self.counted[1]()
        self._steps_before: int | None = None  # steps done before this display, after a resume
        if not self.quiet and self.console.is_terminal:
            self._bar = Progress(
                TextColumn("step {task.completed} of at most {task.total}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[figures]}"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=self.console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("training", total=None, figures="", left="")
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
        shared = step.held_out_information
        for name, value in (
            # Losses on different numbers of candidates are not comparable; these bounds are.
            ("held-out loss", step.held_out if shared is None else None),
            ("held-out information", shared),
            (self.quality_name, step.quality),
        ):
            if value is not None:
                self._measured[name] = value
        if step.held_out is not None:  # another objective may have taken over
            self._measured.pop("held-out information" if shared is None else "held-out loss", None)
        if self._steps_before is None:
            self._steps_before, self._first_total = step.number - 1, step.total
        if self.quiet:
            return
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(
                *(self._task,),
                completed=step.number,
                total=step.total,
                figures=self._figures(step),
                left=self._left(step, now - self._started, step.number - self._steps_before),
            )
            return
        if now - self._printed >= self.pause or step.number == step.total:
            line = self._line(step, now - self._started, step.number - self._steps_before)
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)
            self._printed = now

    def _line(self, step: Step, seconds: float, steps: int) -> str:
        """Return a line about a run that did some steps in some seconds."""
        left = self._left(step, seconds, steps)
        return f"step {step.number} of at most {step.total}  {self._figures(step)}  {left}"

    def _left(self, step: Step, seconds: float, steps: int) -> str:
        """Return the time left, or what ends the run if that is not known."""
        left = seconds / steps * (step.total - step.number)
        levelled_off = self._first_total is not None and step.total < self._first_total
        is_told = levelled_off or left < LONGEST_TOLD
        return f"at most {_clock(left)} left" if is_told else UNTIL_PLATEAU

    def _figures(self, step: Step) -> str:
        parts = [f"loss {step.loss:.3f}"]
        if step.information is not None:  # a bound below zero says nothing
            parts.append(f"information ≥ {max(0.0, step.information):.2f} nats")
        if step.scale is not None:
            parts.append(f"scale {step.scale:.2f}")
        for name, value in self._measured.items():
            if name == "held-out information":
                parts.append(f"{name} ≥ {max(0.0, value):.2f} nats")
            else:
                parts.append(f"{name} {value:.3f}")
        if self.counted is not None:
            what, count = self.counted
            passed = time.monotonic() - self._started
            parts.append(f"{(count() - self._counted_before) / max(passed, 1e-9):.0f} {what}/s")
        return "  ".join(parts)


class NotebookLine:
    """One line below a cell of a notebook, for fits that take longer than a few seconds.

    It is updated in place, and ends as a line about the whole run.

    Args:
        show: Shows a text, and returns a function that replaces it.
        patience: Seconds before the line appears.
        pause: Seconds between two updates.
    """

    def __init__(
        self, show: Callable[[str], Any], patience: float = PATIENCE, pause: float = NOTEBOOK_PAUSE
    ) -> None:
        self.show, self.patience, self.pause = show, patience, pause
        self._texts = ProgressDisplay(quiet=True).__enter__()  # measures, and shows nothing
        self._update: Callable[[str], Any] | None = None
        self._started = self._shown = time.monotonic()
        self._steps = 0

    def __call__(self, step: Step) -> None:
        self._texts(step)
        self._steps += 1
        now = time.monotonic()
        seconds, is_last = now - self._started, step.number == step.total
        if self._update is None and seconds < self.patience:
            return
        if self._update is not None and not is_last and now - self._shown < self.pause:
            return
        line = self._texts._line(step, seconds, self._steps)
        if is_last:
            figures = self._texts._figures(step)
            line = f"trained {step.number} steps in {_clock(seconds)}  {figures}"
        if self._update is None:
            self._update = self.show(line)
        else:
            self._update(line)
        self._shown = now


def ignore_step(step: Step) -> None:
    """Do nothing, the default of ``on_step``."""


def follow(on_step: Callable[[Step], None]) -> Callable[[Step], None]:
    """Return what follows a run: a line in a notebook if nothing else does."""
    # IPython is not imported: where it is not yet, there is no notebook.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if on_step is not ignore_step or not hasattr(shell, "kernel"):
        return on_step
    return NotebookLine(_show_in_notebook)


def _show_in_notebook(line: str) -> Callable[[str], Any]:
    """Show a text below the cell, and return a function that replaces it."""
    display: Any = import_module("IPython.display").display
    handle = display({"text/plain": line}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)


class CsvLog:
    """A CSV file with one line per step.

    Use it as a context manager and call it with every :class:`Step`. An existing log is continued:
    lines before the first step are kept, lines that a killed run wrote beyond its last checkpoint
    are replaced, and so are damaged ones. A file that is no log at all is kept under another name,
    which a warning says: a log never keeps a run from being resumed.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._open:
            self._file.close()

    def __call__(self, step: Step) -> None:
        if not self._open:
            self._start(step.number)
        self._writer.writerow("" if value is None else value for value in astuple(step))
        self._file.flush()

    def _start(self, first: int) -> None:
        header = [field.name for field in fields(Step)]
        kept = _kept_lines(self.path, header, first)
        self._file = self.path.open("w", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerows([header, *kept])
        self._open = True


class LoggerLog:
    """Pass every :class:`Step` to a logger of lightning-fabric, such as that of TensorBoard.

    Use it as a context manager and call it with every step. Measurements are logged by the names
    of the fields of :class:`Step`.

    Args:
        logger: A ``lightning_fabric.loggers.Logger``; or a function that returns one, called at the
            first step with its number, from which a resumed run replaces what was logged.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from lightning_fabric.loggers import CSVLogger
        >>> with TemporaryDirectory() as folder:
        ...     with LoggerLog(CSVLogger(folder, name="fit", version=0)) as log:
        ...         log(Step(1, 10, loss=0.5, information=None, scale=2.0))
        ...     (Path(folder) / "fit" / "version_0" / "metrics.csv").read_text().split()
        ['loss,scale,step', '0.5,2.0,1']
    """

    def __init__(self, logger: Any) -> None:
        self._logger: Any = None
        self._build = logger if not hasattr(logger, "log_metrics") else lambda first: logger
        if not callable(self._build):
            raise TypeError(
                "logger must be a logger of lightning-fabric, with log_metrics, or a function that "
                f"returns one, got {logger!r}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._logger is not None:
            self._logger.finalize("success" if kind is None else "failed")

    def __call__(self, step: Step) -> None:
        if self._logger is None:
            self._logger = self._build(step.number)
        values = {field.name: getattr(step, field.name) for field in fields(Step)[2:]}
        metrics = {name: float(value) for name, value in values.items() if value is not None}
        self._logger.log_metrics(metrics, step=step.number)


def tensorboard_log(directory: str | os.PathLike[str]) -> LoggerLog:
    """Return a log of steps for TensorBoard, in files of a directory.

    A resumed run continues it: TensorBoard leaves out what was logged after the checkpoint. The
    package ``tensorboard`` must be installed.

    Args:
        directory: Where the files are written.
    """
    if not (find_spec("tensorboard") or find_spec("tensorboardX")):
        raise ValueError("a log for TensorBoard needs tensorboard: pip install tensorboard")

    def build(first: int) -> Any:
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        path = Path(directory)
        return TensorBoardLogger(path.parent, name=path.name, version="", purge_step=first)

    return LoggerLog(build)


def _kept_lines(path: Path, header: Sequence[str], first: int) -> list[list[str]]:
    """Return the complete lines of a log before a step; move a file aside that is no log."""
    if not path.is_file():
        return []
    lines = path.read_bytes().decode(errors="replace").split("\n")
    written = ",".join(header)
    earlier = ",".join(header[:-1])  # of versions that had a column less
    if lines[0].rstrip("\r") not in (written, earlier):
        if not written.startswith(lines[0]) or len(lines) > 1:  # not a header that was cut
            aside = next(p for k in count(1) if not (p := Path(f"{path}.{k}")).exists())
            path.rename(aside)
            warnings.warn(
                f"{path} is not a log of isolatent and was renamed to {aside.name}",
                IsolatentWarning,
                stacklevel=2,
            )
        return []
    rows = [line.rstrip("\r").split(",") for line in lines[1:-1]]  # a last one may be cut
    if lines[0].rstrip("\r") == earlier:
        rows = [[*row, ""] for row in rows]
    return [row for row in rows if _is_step(row, len(header)) and int(row[0]) < first]


def _is_step(row: Sequence[str], length: int) -> bool:
    try:
        numbers = [float(value) for value in row if value]
        return len(row) == length and len(numbers) >= 3 and int(row[0]) > 0
    except ValueError:
        return False


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
