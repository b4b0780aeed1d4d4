"""Running the papers' experiments, and their results beside what was published."""

from __future__ import annotations

import os
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

__all__ = ["print_experiments", "run_reproduce", "run_results", "write_overview"]

TABLE_MARK = "<!-- written by isolatent reproduce -->"


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
    try:
        with ReproductionDisplay(experiment, seeds, store, quiet) as display:
            summary = reproduce(
                experiment, store, chosen, backend=backend, jobs=jobs, budget=budget, tell=display
            )
    except KeyboardInterrupt:
        write_overview(out)
        raise
    counts = {"done": summary.done, "finished before": summary.skipped} | {
        name: count for name in ("diverged", "failed", "left") if (count := getattr(summary, name))
    }
    typer.echo(", ".join(f"{count} {name}" for name, count in counts.items()) + f"; in {out}")
    if summary.left:
        typer.echo("the budget was used up; the same command goes on with what is left")
    write_overview(out)
    return 1 if summary.failed else 0


def write_overview(out: Path) -> None:
    """Write or refresh the page, the table and a figure of each experiment in a directory."""
    from isolatent.report import is_report, page_of_runs, read_results, write_report
    from isolatent.report.plots import can_draw, distances, write_figure

    rows = tabulate(Store(out))
    if not rows:
        return
    written = []
    page, table = out / "report.html", out / "table.md"
    if page.exists() and not is_report(page):
        typer.echo(f"isolatent: {page} was not written by isolatent and is left as it is", err=True)
    else:
        write_report(page, page_of_runs(read_results(out)), overwrite=True)
        written.append(page)
    if table.exists() and not table.read_text(encoding="utf-8").startswith(TABLE_MARK):
        typer.echo(
            f"isolatent: {table} was not written by isolatent and is left as it is", err=True
        )
    else:
        partial = table.with_name(f".{table.name}.{os.getpid()}")
        partial.write_text(f"{TABLE_MARK}\n\n{as_markdown(rows)}", encoding="utf-8")
        partial.replace(table)
        written.append(table)
    if can_draw():
        for name in dict.fromkeys(row.experiment for row in rows):
            figure = out / f"{name.replace('/', '-')}.png"
            own = [row for row in rows if row.experiment == name]
            write_figure(own, figure, distances(Store(out).records(name)))
            written.append(figure)
    else:
        typer.echo("no figure: matplotlib is missing (pip install 'isolatent[bench]')")
    typer.echo(f"wrote {', '.join(map(str, written))}")


def run_results(directory: Path, kind: str | None, target: Path | None) -> None:
    """Print or write the table of a directory of results, or its figure if FILE is a .png."""
    if kind is not None:
        check_one_of("--format", kind, ("markdown", "csv", "parquet"))
    rows = tabulate(Store(directory))
    if not rows:
        raise FileNotFoundError(f"{directory} holds no results; `isolatent reproduce` writes them")
    if target is not None and kind is None and target.suffix == ".png":
        from isolatent.report.plots import write_figure

        write_figure(rows, target)
    elif target is not None:
        export(rows, target, kind)
    elif kind == "parquet":
        raise ValueError("--format parquet needs --export FILE")
    else:
        sys.stdout.write(as_csv(rows) if kind == "csv" else as_markdown(rows))
