"""Run the papers' experiments, and compare their results with the published ones."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isolatent.checks import check_integer, check_one_of, check_real
from isolatent.cli.app import (
    MAX_SEED,
    REPORT_FILE,
    STDOUT,
    JsonOutput,
    Overwrite,
    Quiet,
    app,
    check_json,
    check_seed,
    check_writable,
    interruptible,
    printer,
    write_result,
)
from isolatent.files import file_name, write_text

if TYPE_CHECKING:
    from isolatent.experiments import Row
    from isolatent.report.records import Results

__all__ = ["reproduce", "results", "write_overview"]

TABLE_MARK = "<!-- written by isolatent reproduce -->"  # the first line of our tables
EXPORT_FORMATS = {".md": "markdown", ".csv": "csv", ".parquet": "parquet", ".png": "figure"}


@app.command()
@interruptible(lambda: "interrupted; run the same command again to continue")
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="Name of an experiment (see --list), or a .toml file."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for each cell.")] = 5,
    first_seed: Annotated[int, typer.Option(callback=check_seed, help="The first seed.")] = 0,
    cells: Annotated[
        str | None, typer.Option(help="Pattern for the names of cells, such as 'box_*'.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Number of parallel runs.  [default: number of cores]")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="Where to run: local, or ray for an existing cluster.")
    ] = "local",
    budget: Annotated[
        float | None, typer.Option(help="Time in minutes after which no new run starts.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Directory for the results; finished runs in it are skipped.")
    ] = Path("reproduction"),
    stale: Annotated[
        bool,
        typer.Option(
            "--stale", help="Run finished runs again whose program is not today's; else keep them."
        ),
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
    quiet: Quiet = False,
    json: JsonOutput = None,
    overwrite: Overwrite = False,
) -> None:
    """Run or resume an experiment of the papers."""
    check_json(json, overwrite)
    say = printer(json)
    if name is None and not show:
        raise ValueError("NAME must be given; `isolatent reproduce --list` lists the experiments")
    from isolatent import experiments
    from isolatent.experiments.backends import check_backend

    if show:
        listing = []
        for known in experiments.list_experiments():
            experiment = experiments.find_experiment(known)
            say(f"{known:<28} {len(experiment.cells):>3} cells  {experiment.title}")
            listing.append(
                {"name": known, "cells": len(experiment.cells), "title": experiment.title}
            )
        write_result(json, listing)
        return
    assert name is not None
    check_integer("--seeds", seeds, at_least=1, at_most=MAX_SEED + 1 - first_seed)
    if jobs is not None:
        check_integer("--jobs", jobs, at_least=1)
    if budget is not None:
        check_real("--budget", budget, at_least=0)
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out must be a directory, but {out} is a file")
    experiment = experiments.find_experiment(name)
    if cells is not None:
        experiment = experiments.select_cells(experiment, cells)
    check_backend("--backend", backend)
    try:
        with experiments.ReproductionDisplay(experiment, seeds, quiet) as display:
            summary = experiments.reproduce(
                experiment,
                experiments.Store(out),
                range(first_seed, first_seed + seeds),
                backend=backend,
                jobs=jobs,
                budget=budget,
                stale=stale,
                callback=display,
            )
    except KeyboardInterrupt:
        write_overview(out)
        raise
    finished = "already finished"
    if summary.stale:
        finished += f" ({summary.stale} stale: of another program; --stale runs them again)"
    counts = {"done": summary.done, finished: summary.skipped} | {
        status: count
        for status in ("diverged", "failed", "left")
        if (count := getattr(summary, status))
    }
    counted = ", ".join(f"{count} {status}" for status, count in counts.items())
    say(f"{counted}; results in {out}")
    if summary.left:
        say("time budget used up; run the same command again to continue")
    write_overview(out, say)
    statuses = ("done", "skipped", "stale", "diverged", "failed", "left")
    write_result(
        json,
        {"experiment": experiment.name, "results": str(out)}
        | {status: getattr(summary, status) for status in statuses},
    )
    raise typer.Exit(1 if summary.failed else 0)


def write_overview(out: Path, say: Callable[[str], None] = typer.echo) -> None:
    """Write the report, the table and a figure of each experiment in a directory of results."""
    from isolatent.plot.axes import INSTALL, has_matplotlib
    from isolatent.report import is_report, page_of_runs, read_results, write_report

    found = read_results(out)
    if not found:
        return
    rows, written = _rows(found), []
    report, table = out / REPORT_FILE, out / "table.md"
    for path, is_ours, write in (
        (report, is_report, lambda: write_report(report, page_of_runs(found), overwrite=True)),
        (table, _is_table, lambda: _write_table(table, rows)),
    ):
        if path.exists() and not is_ours(path):
            typer.echo(f"isolatent: {path} was not written by isolatent and is kept", err=True)
        else:
            write()
            written.append(path)
    if has_matplotlib():
        for name in dict.fromkeys(row.experiment for row in rows):
            figure = out / f"{file_name(name)}.png"
            _write_figure(figure, found, [row for row in rows if row.experiment == name])
            written.append(figure)
    else:
        say(f"no figure: matplotlib is missing ({INSTALL})")
    say(f"wrote {', '.join(map(str, written))}")


@app.command()
@interruptible()
def results(
    directory: Annotated[
        Path, typer.Argument(help="Directory of results of reproduce, or one above several.")
    ],
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            help="Format of the table: markdown, csv or parquet.  [default: that of the --export "
            "file, else markdown]"
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="File for the table (.md, .csv or .parquet) or for a figure (.png)."),
    ] = None,
    overwrite: Overwrite = False,
    json: JsonOutput = None,
) -> None:
    """Compare results with the published scores."""
    check_json(json, overwrite)
    if not directory.is_dir():
        raise FileNotFoundError(f"DIRECTORY: {directory} holds no results of `isolatent reproduce`")
    from isolatent import experiments
    from isolatent.experiments.results import FORMATS
    from isolatent.report import read_results

    if format is not None:
        check_one_of("--format", format, FORMATS)
    elif export is not None and export.suffix not in EXPORT_FORMATS:
        raise ValueError(
            f"--export must end in {', '.join(EXPORT_FORMATS)} without --format, "
            f"got {str(export)!r}"
        )
    if export is None and format == "parquet":
        raise ValueError("--export must be given with --format parquet")
    kind = format
    if export is not None:
        kind = format or EXPORT_FORMATS[export.suffix]
        check_writable("--export", export, overwrite or (kind == "markdown" and _is_table(export)))
    found = read_results(directory)
    if not found:
        raise FileNotFoundError(f"DIRECTORY: {directory} holds no results of `isolatent reproduce`")
    rows = _rows(found)
    write_result(json, [dataclasses.asdict(row) for row in rows])
    if json == STDOUT and export is None:
        return
    if export is None:
        sys.stdout.write((experiments.as_csv if kind == "csv" else experiments.as_markdown)(rows))
    elif kind == "figure":
        _write_figure(export, found, rows)
    elif kind == "markdown":
        _write_table(export, rows)
    else:
        experiments.export(rows, export, kind)


def _rows(found: Sequence[Results]) -> list[Row]:
    from isolatent.experiments.results import rows_of

    return [row for experiment, records in found for row in rows_of(experiment, records)]


def _write_figure(target: Path, found: Sequence[Results], rows: Sequence[Row]) -> None:
    from isolatent.plot.axes import INSTALL, has_matplotlib
    from isolatent.plot.experiments import marginal_distances, write_figure

    if not has_matplotlib():
        raise ValueError(f"a figure needs matplotlib, which is not installed: {INSTALL}")
    write_figure(rows, target, marginal_distances(found))


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write a table that _is_table recognises."""
    from isolatent.experiments import as_markdown

    write_text(path, f"{TABLE_MARK}\n\n{as_markdown(rows)}")


def _is_table(path: Path) -> bool:
    return path.is_file() and path.read_bytes().startswith(TABLE_MARK.encode())
