"""A page that follows a training run: a file that is replaced, and that reloads itself."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from isolatent.report.document import write_report
from isolatent.report.page import Headline, Page, Section

if TYPE_CHECKING:
    from isolatent.training import Step

__all__ = ["LiveReport", "page_of_training"]

SECONDS_BETWEEN_PAGES = 5.0
SHARE = 0.05  # of the time at most, that writing pages may take


def page_of_training(
    steps: Sequence[Step],
    *,
    title: str,
    summary: Sequence[str] = (),
    command: str | None = None,
    headline: Headline | None = None,
) -> Page:
    """Return a page with the curves of a training run so far.

    Args:
        steps: The steps so far.
        title: The page's heading.
        summary: Paragraphs below the heading.
        command: The command that trains.
        headline: What to say about the run; by default that it is training.

    Example:
        >>> from isolatent.training import Step
        >>> page_of_training([Step(3, 90, 1.5, None, None)], title="Fit").headline.text
        'Step 3 of at most 90.'
    """
    text = f"Step {steps[-1].number} of at most {steps[-1].total}." if steps else "No step yet."
    facts = []
    if steps:
        facts.append(("Loss", f"{steps[-1].loss:.4g}"))
        measured: tuple[tuple[str, str], ...] = (
            ("Information in batches (nats)", "information"),
            ("Information in held-out pairs (nats)", "held_out_information"),
        )
        if steps[-1].information is None:  # a loss without such a bound
            measured = (("Held-out loss", "held_out"),)
        for label, field in measured:
            known = [v for step in steps if (v := getattr(step, field)) is not None]
            facts += [(label, f"{known[-1]:.4g}")] if known else []
    section = Section(
        "The training",
        facts=tuple(facts),
        curves=(tuple(map(dataclasses.asdict, steps)),),
        command=command,
    )
    headline = headline or Headline("open", "Training", text)
    return Page(title, tuple(summary), sections=(section,), headline=headline)


class LiveReport:
    """Keep a page current while a model is trained; the browser reloads it by itself.

    Use it as a context manager and call it with every :class:`isolatent.training.Step`. The file is
    replaced as a whole, every few seconds at most, and less often where writing takes long.

    Args:
        path: The HTML file. Its directory is created if it does not exist.
        title: The page's heading.
        summary: Paragraphs below the heading.
        command: The command that trains.
        pause: Least number of seconds between two pages.

    Example:
        >>> import tempfile
        >>> from isolatent.training import Step
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with LiveReport(Path(folder, "report.html"), title="Fit", pause=0.0) as live:
        ...         live(Step(1, 2, 3.5, None, None))
        ...         during = 'http-equiv="refresh"' in Path(folder, "report.html").read_text()
        ...     during, 'http-equiv="refresh"' in Path(folder, "report.html").read_text()
        (True, False)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        title: str,
        summary: Sequence[str] = (),
        command: str | None = None,
        pause: float = SECONDS_BETWEEN_PAGES,
    ) -> None:
        self.path = Path(path)
        self.about: dict[str, Any] = {"title": title, "summary": summary, "command": command}
        self.pause = pause
        self._steps: list[Step] = []
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the last page, which does not reload any more."""
        if not self._steps:
            return
        last = self._steps[-1].number
        headline = Headline("open", "Trained", f"{last} steps; the report follows.")
        if kind is not None:
            reason = "interrupted" if kind is KeyboardInterrupt else f"stopped: {error}"
            headline = Headline("bad", "Stopped", f"The run was {reason}, at step {last}.")
        self._write(headline, None)

    def __call__(self, step: Step) -> None:
        self._steps.append(step)
        started = time.monotonic()
        if started < self._next:
            return
        self._write(None, max(self.pause, 1.0))
        ended = time.monotonic()
        self._next = ended + max(self.pause, (ended - started) / SHARE)

    def _write(self, headline: Headline | None, refresh: float | None) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        page = page_of_training(self._steps, headline=headline, **self.about)
        write_report(self.path, page, overwrite=True, refresh=refresh)
