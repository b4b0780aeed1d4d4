"""Running the papers' experiments, and their results beside what was published."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from isolatent.checks import check_integer, check_one_of
from isolatent.experiments import (
    ReproductionDisplay,
    Store,
    as_csv,
    as_markdown,
    export,
    find_experiment,
    list_experiments,
    reproduce,
    select_cells,
    tabulate,
)

__all__ = ["print_experiments", "run_reproduce", "run_results"]


def print_experiments() -> None:
    """Print the name, the size and the title of every experiment that is shipped."""
    for name in list_experiments():
        experiment = find_experiment(name)
        typer.echo(f"{name:<28} {len(experiment.cells):>3} cells  {experiment.title}")


def run_reproduce(
    name: str,
    *,
    seeds: int,
    first_seed: int,
    cells: str | None,
    jobs: int | None,
    backend: str,
    budget: float | None,
    out: Path,
    quiet: bool,
) -> int:
    """Do what is left of an experiment; return the status to leave with."""
    check_integer("--seeds", seeds, at_least=1)
    check_integer("--first-seed", first_seed, at_least=0)
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out must be a directory, but {out} is a file")
    experiment = find_experiment(name)
    if cells is not None:
        experiment = select_cells(experiment, cells)
    store = Store(out)
    chosen = [*range(first_seed, first_seed + seeds)]
    with ReproductionDisplay(experiment, seeds, store, quiet) as display:
        summary = reproduce(
            experiment, store, chosen, backend=backend, jobs=jobs, budget=budget, tell=display
        )
    counts = {"done": summary.done, "finished before": summary.skipped} | {
        name: count for name in ("diverged", "failed", "left") if (count := getattr(summary, name))
    }
    typer.echo(", ".join(f"{count} {name}" for name, count in counts.items()) + f"; in {out}")
    if summary.left:
        typer.echo("the budget was used up; the same command goes on with what is left")
    return 1 if summary.failed else 0


def run_results(directory: Path, kind: str | None, target: Path | None) -> None:
    """Print or write the table of a directory of results."""
    if kind is not None:
        check_one_of("--format", kind, ("markdown", "csv", "parquet"))
    rows = tabulate(Store(directory))
    if not rows:
        raise FileNotFoundError(f"{directory} holds no results; `isolatent reproduce` writes them")
    if target is not None:
        export(rows, target, kind)
    elif kind == "parquet":
        raise ValueError("--format parquet needs --export FILE")
    else:
        sys.stdout.write(as_csv(rows) if kind == "csv" else as_markdown(rows))
