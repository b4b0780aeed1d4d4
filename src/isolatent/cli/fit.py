"""Fit a model to files; all arguments and data are checked before training starts."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer

from isolatent.checks import check_integer, check_one_of
from isolatent.cli.model import REPORT_FILE

if TYPE_CHECKING:
    from isolatent.pairs.readers import Observations
    from isolatent.training import ContrastiveICA, Step

__all__ = ["Beliefs", "Place", "Run", "check_out", "command_line", "resume_advice", "run_fit"]

MOST_COMPONENTS = 10  # unless more are asked for
LOSSES = ("infonce", "aninfonce", "nce", "scl", "nwj")
# What is believed about a space if nothing is said: marginal and conditional.
USUAL = {
    "sphere": ("uniform", "vmf"),
    "box": ("uniform", "normal"),
    "euclidean": ("normal", "normal"),
    "cubegrid": ("uniform", "normal"),
    "hollowball": ("uniform", "normal"),
}


@dataclass(frozen=True)
class Beliefs:
    """What is believed about the world."""

    space: str
    marginal: str
    conditional: str
    p: float | None

    @classmethod
    def complete(
        cls, space: str, marginal: str | None, conditional: str | None, p: float | None
    ) -> Beliefs:
        """Check what was declared; the rest is what is usual for the space."""
        from isolatent.theory import CONDITIONALS, MARGINALS, SPACES, check_beliefs

        usual_marginal, usual_conditional = USUAL[check_one_of("--space", space, SPACES)]
        beliefs = cls(
            space,
            check_one_of("--marginal", marginal or usual_marginal, MARGINALS),
            check_one_of("--conditional", conditional or usual_conditional, CONDITIONALS),
            p,
        )
        if beliefs.conditional == "gennorm" and p is None:
            raise ValueError(
                "--p must be given with --conditional gennorm: its exponent, 1 or more"
            )
        check_beliefs(space, beliefs.marginal, beliefs.conditional, p)
        return beliefs


@dataclass(frozen=True)
class Run:
    """One training run: its files and its settings."""

    out: Path
    n_components: int | None
    loss: str
    random_state: int
    max_steps: int | None
    batch_size: int | None
    lag: int | None
    session: str | None
    resume: bool
    overwrite: bool
    quiet: bool
    log: str | None

    def check(self) -> None:
        """Raise an error about the first setting that cannot be."""
        check_one_of("--loss", self.loss, LOSSES)
        for name, value, at_least in (
            ("--n-components", self.n_components, 1),
            ("--max-steps", self.max_steps, 1),
            ("--batch-size", self.batch_size, 2),
            ("--lag", self.lag, 1),
        ):
            if value is not None:
                check_integer(name, value, at_least=at_least)
        if self.log is not None:
            check_one_of("--log", self.log, ["csv"])

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.out / "checkpoints"


@dataclass(frozen=True)
class Place:
    """Where training runs."""

    accelerator: str
    devices: int
    num_nodes: int
    precision: str

    def check(self) -> None:
        """Raise an error about the first setting that cannot be."""
        check_one_of("--accelerator", self.accelerator, ["auto", "cpu", "cuda"])
        check_one_of("--precision", self.precision, ["32", "bf16-mixed"])
        check_integer("--devices", self.devices, at_least=1)
        check_integer("--num-nodes", self.num_nodes, at_least=1)

    @property
    def is_first(self) -> bool:
        """Whether this process, of all that train together, is the one that prints and saves."""
        together = max(self.devices, self.num_nodes, int(os.environ.get("WORLD_SIZE", "1"))) > 1
        ranks = (os.environ.get(name, "0") for name in ("RANK", "LOCAL_RANK", "NODE_RANK"))
        return not together or all(rank == "0" for rank in ranks)


def run_fit(data: Path, data_pos: Path | None, beliefs: Beliefs, run: Run, place: Place) -> None:
    """Check the arguments and the data, train, save the model and print its guarantee."""
    run.check()
    place.check()
    if data_pos is not None and run.lag is not None:
        raise ValueError("--lag is for a time series in one file; DATA and DATA_POS hold pairs")
    if place.is_first:  # the others may start after it has created files
        check_out(run.out, overwrite=run.overwrite, resume=run.resume)
    observed = _read(data, data_pos, run)
    components = run.n_components or min(MOST_COMPONENTS, observed.x.shape[1])
    if beliefs.space == "sphere" and components < 2:
        raise ValueError(f"--n-components must be at least 2 on a sphere, got {components}")
    if place.is_first and not run.quiet:
        typer.echo(_summary(observed, beliefs, components, run))
    model = _train(observed, beliefs, components, run, place)
    if place.is_first:
        model.save(run.out, overwrite=run.overwrite or run.resume)
        if run.overwrite and run.log is None:  # the log of the replaced model
            (run.out / "log.csv").unlink(missing_ok=True)
        last = model.history_[-1]
        typer.echo(f"guarantee: {model.guarantee_}")
        typer.echo(f"saved {run.out}: {last.number} steps, loss {last.loss:.3f}")
        _report(model, observed, data, run)


def _report(model: ContrastiveICA, observed: Observations, data: Path, run: Run) -> None:
    from isolatent.report import page_of_fit, write_report

    rows, columns = observed.x.shape
    page = page_of_fit(
        model,
        observed.x,
        command=command_line(),
        title=f"Fit of {data.name}",
        summary=[f"{rows} rows, {columns} columns, {model.n_components} components."],
    )
    write_report(run.out / REPORT_FILE, page, overwrite=True)  # checked by check_out
    typer.echo(f"report: {run.out / REPORT_FILE}")


def _read(data: Path, data_pos: Path | None, run: Run) -> Observations:
    from isolatent.pairs.readers import read_observations, read_pairs

    if data_pos is not None:
        return read_pairs(data, data_pos, run.session)
    observed = read_observations(data, run.session)
    if observed.x_pos is None:
        lag, longest = run.lag or 1, max(_session_lengths(observed))
        if lag >= longest:
            raise ValueError(
                f"--lag must be shorter than the longest session, {longest} rows, got {lag}"
            )
    elif run.lag is not None:
        raise ValueError(f"--lag is for a time series; {data.name} holds pairs, x and x_pos")
    return observed


def _session_lengths(observed: Observations) -> list[int]:
    """Return the number of rows of each uninterrupted session."""
    ids = observed.groups
    changes = [] if ids is None else (1 + (ids[1:] != ids[:-1]).nonzero()[0]).tolist()
    return [end - start for start, end in pairwise([0, *changes, len(observed.x)])]


def _train(
    observed: Observations, beliefs: Beliefs, components: int, run: Run, place: Place
) -> ContrastiveICA:
    from isolatent.training import ContrastiveICA, CsvLog, ProgressDisplay, Recipe

    settings = {"max_steps": run.max_steps, "batch_size": run.batch_size}
    given = {name: value for name, value in settings.items() if value is not None}
    recipe = Recipe(**given)
    if recipe.batch_size % (processes := place.devices * place.num_nodes):
        raise ValueError(
            f"--batch-size must be a multiple of --devices times --num-nodes, {processes}, "
            f"got {recipe.batch_size}"
        )
    model = ContrastiveICA(
        components,
        space=beliefs.space,
        marginal=beliefs.marginal,
        conditional=beliefs.conditional,
        p=beliefs.p,
        loss=run.loss,
        recipe=recipe if given else None,  # without one, few pairs get small batches
        lag=run.lag or 1,
        random_state=run.random_state,
        accelerator=place.accelerator,
        devices=place.devices,
        num_nodes=place.num_nodes,
        precision="32-true" if place.precision == "32" else place.precision,
    )
    with (
        ProgressDisplay(quiet=run.quiet or not place.is_first) as display,
        CsvLog(run.out / "log.csv") as log,
    ):

        def on_step(step: Step) -> None:
            if run.log == "csv" and place.is_first:
                run.out.mkdir(parents=True, exist_ok=True)
                log(step)
            display(step)

        model.fit(
            observed.x,
            observed.x_pos,
            groups=observed.groups,
            checkpoint=None if run.resume else run.checkpoints,
            resume=run.checkpoints if run.resume else None,
            on_step=on_step,
        )
    if observed.names is not None:  # as scikit-learn does for data frames
        model.feature_names_in_ = np.asarray(observed.names, dtype=object)
    return model


def _summary(observed: Observations, beliefs: Beliefs, components: int, run: Run) -> str:
    rows, columns = observed.x.shape
    what = f"{rows} pairs" if observed.x_pos is not None else f"a time series of {rows} rows"
    if observed.x_pos is None:
        what += f", lag up to {run.lag or 1}"
    if observed.groups is not None:
        what += f", {len(_session_lengths(observed))} sessions"
    power = "" if beliefs.p is None else f" with p = {beliefs.p:g}"
    return (
        f"{what}, {columns} columns\n"
        f"{components} components; {beliefs.space}, {beliefs.marginal} marginal, "
        f"{beliefs.conditional} conditional{power}; loss {run.loss}, seed {run.random_state}"
    )


def check_out(out: Path, *, overwrite: bool, resume: bool) -> None:
    """Raise an error if a model cannot or must not be written to a directory."""
    from isolatent.report import is_report

    if overwrite and resume:
        raise ValueError("--overwrite and --resume exclude each other")
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out must be a directory, but {out} is a file")
    if resume and not _has_checkpoint(out):
        raise FileNotFoundError(
            f"--resume: {out / 'checkpoints'} holds no checkpoint; omit --resume to start anew"
        )
    if out.is_dir() and any(not path.is_dir() for path in out.rglob("*")):
        if not _is_ours(out):
            raise FileExistsError(
                f"--out: {out} is not empty and holds no isolatent model; choose another directory"
            )
        if not (overwrite or resume):
            raise FileExistsError(
                f"--out: {out} is not empty; pass --overwrite to replace the model"
                + (", or --resume to continue from its checkpoint" if _has_checkpoint(out) else "")
            )
    report = out / REPORT_FILE
    if report.exists() and not is_report(report):
        raise FileExistsError(f"--out: {report} was not written by isolatent; move it first")
    ancestor = next(path for path in (out, *out.parents) if path.exists())
    if not ancestor.is_dir():
        raise NotADirectoryError(f"--out: {out} cannot be created: {ancestor} is a file")
    try:
        with tempfile.TemporaryFile(dir=ancestor):
            pass
    except OSError as error:
        raise PermissionError(f"--out: cannot write in {ancestor} ({error.strerror})") from error


def command_line() -> str:
    """Return the running command without --overwrite and --resume."""
    words = [word for word in sys.argv[1:] if word not in ("--overwrite", "--resume")]
    return f"isolatent {shlex.join(words)}"


def resume_advice(out: Path) -> str:
    """Return the message for an interrupted run: how to resume it."""
    if not _has_checkpoint(out):
        return "interrupted before the first checkpoint; nothing to resume"
    return f"interrupted; resume with: {command_line()} --resume"


def _has_checkpoint(out: Path) -> bool:
    return any((out / "checkpoints").glob("step-*.json"))


def _is_ours(out: Path) -> bool:
    """Return whether a directory holds a model, checkpoints or a log, all written by isolatent."""
    model, log = out / "model.json", out / "log.csv"
    ours = [_has_checkpoint(out), any((out / "checkpoints").glob(".step-*.partial"))]
    if model.exists():
        try:
            content = json.loads(model.read_bytes())
        except (OSError, ValueError):
            return False
        if not (isinstance(content, dict) and {"format", "tensors", "record"} <= content.keys()):
            return False
        ours.append(True)
    if log.exists():
        with log.open(errors="replace") as file:
            if not file.readline().startswith("number,total,loss"):
                return False
        ours.append(True)
    return any(ours)
