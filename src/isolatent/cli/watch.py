"""Follow a fit that is running in another process, by its checkpoints."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isolatent.checks import check_real
from isolatent.cli.app import (
    REPORT_FILE,
    JsonOutput,
    app,
    check_json,
    interruptible,
    printer,
    write_result,
)
from isolatent.files import LOCK_FILE

if TYPE_CHECKING:
    from isolatent.training import Step
    from isolatent.training.checkpoints import Checkpoints

__all__ = ["watch"]

LEAST_REFRESH = 1.0  # seconds between two readings of the page by a browser


@app.command()
@interruptible()
def watch(
    out: Annotated[Path, typer.Argument(help="Directory of a running fit, its --out.")],
    pause: Annotated[
        float, typer.Option(help="Seconds between two looks at the checkpoints.")
    ] = 5.0,
    once: Annotated[
        bool, typer.Option("--once", help="Write the page once, without waiting for the end.")
    ] = False,
    json: JsonOutput = None,
) -> None:
    """Keep the report of a running fit current."""
    check_real("--pause", pause, above=0)
    check_json(json, overwrite=False)
    say = printer(json)
    if not out.is_dir():
        raise FileNotFoundError(f"OUT: {out} is not a directory")
    from isolatent.report import is_report, page_of_training, write_report
    from isolatent.training.checkpoints import Checkpoints

    page, checkpoints, shown = out / REPORT_FILE, Checkpoints(out / "checkpoints"), -1
    if page.exists() and not is_report(page):
        raise FileExistsError(f"OUT: {page} was not written by isolatent; move it first")
    if once and not checkpoints.steps():
        raise FileNotFoundError(f"OUT: {out / 'checkpoints'} holds no checkpoint")
    if not checkpoints.steps() and not (out / "model.json").is_file():
        _check_running(out, checkpoints)
    say(f"open {page} in a browser: it follows the training")
    while not (finished := _is_finished(out, checkpoints)):
        running = _is_running(out, checkpoints)  # before a look at what it may write meanwhile
        steps = _read_steps(checkpoints)
        ends = once or not running
        if steps and (ends or steps[-1].number != shown):
            shown = steps[-1].number
            content = page_of_training(steps, title=f"Fit in {out.resolve().name}")
            refresh = None if ends else max(pause, LEAST_REFRESH)
            write_report(page, content, overwrite=True, refresh=refresh)
        if ends:
            finished = _is_finished(out, checkpoints)  # perhaps since the look at its lock
            break
        time.sleep(pause)
    if not finished and shown < 0:
        _check_running(out, checkpoints)
    if finished:
        say(f"finished: {out} holds a model")
    elif not once:
        say(f"interrupted: no fit is running in {out}; continue it with isolatent fit --resume")
    write_result(json, {"report": str(page), "steps": max(shown, 0), "finished": finished})


def _check_running(out: Path, checkpoints: Checkpoints) -> None:
    """Raise an error where no fit is running that could be followed."""
    if not _is_running(out, checkpoints):
        raise FileNotFoundError(
            f"OUT: no fit is running in {out}, and it holds no checkpoint; start one with "
            f"isolatent fit DATA --out {out}, or name the directory of a running one"
        )


def _is_running(out: Path, checkpoints: Checkpoints) -> bool:
    """Return whether a fit holds the lock of the directory, or died without removing it."""
    return any((folder / LOCK_FILE).exists() for folder in (out, checkpoints.directory))


def _is_finished(out: Path, checkpoints: Checkpoints) -> bool:
    """Return whether the model is there and is newer than the last checkpoint."""
    model, steps = out / "model.json", checkpoints.steps()
    if not model.is_file():
        return False
    last = checkpoints.directory / f"step-{max(steps, default=0):08d}.json"
    try:
        return model.stat().st_mtime >= last.stat().st_mtime
    except FileNotFoundError:  # replaced meanwhile, or no checkpoint is kept
        return not steps


def _read_steps(checkpoints: Checkpoints) -> list[Step]:
    """Return the steps up to the last checkpoint; none while there is no intact one."""
    from isolatent.training.checkpoints import DamagedFileError
    from isolatent.training.progress import steps_from_tensor

    try:
        return steps_from_tensor(checkpoints.latest().tensors["history"])
    except (FileNotFoundError, DamagedFileError):  # being written, or removed
        return []
