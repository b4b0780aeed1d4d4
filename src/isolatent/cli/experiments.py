"""Run the papers' experiments, and compare their results with the published ones."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from isolatent.checks import check_integer, check_one_of, check_real
from isolatent.cli.model import REPORT_FILE
from isolatent.cli.output import check_writable
from isolatent.experiments import (
    ReproductionDisplay,
    Row,
    Store,
    as_csv,
    as_markdown,
    export,
    find_experiment,
    list_experiments,
    reproduce,
    select_cells,
)
from isolatent.experiments.backends import check_backend
from isolatent.experiments.results import FORMATS, rows_of
from isolatent.files import file_name, write_text

if TYPE_CHECKING:
    from isolatent.report.records import Results

__all__ = ["print_experiments", "run_reproduce", "run_results", "write_overview"]

TABLE_MARK = "<!-- written by isolatent reproduce -->"  # the first line of our tables
EXPORT_FORMATS = {".md": "markdown", ".csv": "csv", ".parquet": "parquet", ".png": "figure"}


def print_experiments() -> None:
    """Print the name, the number of cells and the title of every shipped experiment."""
    for name in list_experiments():
        experiment = find_experiment(name)
        typer.echo(f"{name:<28} {len(experiment.cells):>3} cells  {experiment.title}")


def run_reproduce(
    name: str,
    *,
    seeds: Sequence[int],
    cells: str | None,
    jobs: int | None,
    backend: str,
    budget: float | None,
    out: Path,
    quiet: bool,
) -> int:
    """Execute the unfinished runs of an experiment; return the exit status."""
    if jobs is not None:
        check_integer("--jobs", jobs, at_least=1)
    if budget is not None:
        check_real("--budget", budget, at_least=0)
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out must be a directory, but {out} is a file")
    experiment = find_experiment(name)
    if cells is not None:
        experiment = select_cells(experiment, cells)
    check_backend("--backend", backend)
    store = Store(out)
    try:
        with ReproductionDisplay(experiment, len(seeds), quiet) as display:
            summary = reproduce(
                experiment,
                store,
                [*seeds],
                backend=backend,
                jobs=jobs,
                budget=budget,
                callback=display,
            )
    except KeyboardInterrupt:
        write_overview(out)
        raise
    counts = {"done": summary.done, "already finished": summary.skipped} | {
        name: count for name in ("diverged", "failed", "left") if (count := getattr(summary, name))
    }
    counted = ", ".join(f"{count} {name}" for name, count in counts.items())
    typer.echo(f"{counted}; results in {out}")
    if summary.left:
        typer.echo("time budget used up; run the same command again to continue")
    write_overview(out)
    return 1 if summary.failed else 0


def write_overview(out: Path) -> None:
    """Write the report, the table and a figure of each experiment in a directory of results."""
    from isolatent.report import is_report, page_of_runs, read_results, write_report
    from isolatent.report.plots import has_matplotlib

    results = read_results(out)
    if not results:
        return
    rows, written = _rows(results), []
    report, table = out / REPORT_FILE, out / "table.md"
    for path, is_ours in ((report, is_report(report)), (table, _is_table(table))):
        if path.exists() and not is_ours:
            typer.echo(f"isolatent: {path} was not written by isolatent and is kept", err=True)
        else:
            written.append(path)
    if report in written:
        write_report(report, page_of_runs(results), overwrite=True)
    if table in written:
        _write_table(table, rows)
    if has_matplotlib():
        for name in dict.fromkeys(row.experiment for row in rows):
            figure = out / f"{file_name(name)}.png"
            _write_figure(figure, results, [row for row in rows if row.experiment == name])
            written.append(figure)
    else:
        typer.echo("no figure: matplotlib is missing (pip install 'isolatent[bench]')")
    typer.echo(f"wrote {', '.join(map(str, written))}")


def run_results(
    directory: Path, kind: str | None, target: Path | None, overwrite: bool = False
) -> None:
    """Print the table of a directory of results, or write the table or a .png figure of it."""
    from isolatent.report import read_results

    if kind is not None:
        check_one_of("--format", kind, FORMATS)
    elif target is not None and target.suffix not in EXPORT_FORMATS:
        raise ValueError(
            f"--export must end in {', '.join(EXPORT_FORMATS)} without --format, "
            f"got {str(target)!r}"
        )
    if target is None and kind == "parquet":
        raise ValueError("--export must be given with --format parquet")
    if target is not None:
        kind = kind or EXPORT_FORMATS[target.suffix]
        check_writable("--export", target, overwrite or (kind == "markdown" and _is_table(target)))
    results = read_results(directory)
    if not results:
        raise FileNotFoundError(f"DIRECTORY: {directory} holds no results of `isolatent reproduce`")
    rows = _rows(results)
    if target is None:
        sys.stdout.write(as_csv(rows) if kind == "csv" else as_markdown(rows))
    elif kind == "figure":
        _write_figure(target, results, rows)
    elif kind == "markdown":
        _write_table(target, rows)
    else:
        export(rows, target, kind)


def _rows(results: Sequence[Results]) -> list[Row]:
    return [row for experiment, records in results for row in rows_of(experiment, records)]


def _write_figure(target: Path, results: Sequence[Results], rows: Sequence[Row]) -> None:
    from isolatent.report.plots import marginal_distances, write_figure

    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for experiment, records in results:
        by_name.setdefault(str(experiment["name"]), []).extend(records)
    write_figure(rows, target, {name: marginal_distances(own) for name, own in by_name.items()})


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write a table that _is_table recognises."""
    write_text(path, f"{TABLE_MARK}\n\n{as_markdown(rows)}")


def _is_table(path: Path) -> bool:
    """Return whether a file was written by _write_table."""
    try:
        with path.open("rb") as file:
            return file.read(len(TABLE_MARK)) == TABLE_MARK.encode()
    except OSError:
        return False
