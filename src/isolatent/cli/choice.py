"""Choose beliefs that the data support, before a fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isolatent.checks import check_integer
from isolatent.cli.app import (
    REPORT_FILE,
    JsonOutput,
    Overwrite,
    Quiet,
    RandomState,
    app,
    check_json,
    check_writable,
    command_line,
    interruptible,
    printer,
    write_result,
)
from isolatent.cli.data_options import (
    ArrayName,
    Columns,
    Drop,
    MaxGap,
    MaxMemory,
    PositiveSuffix,
    Session,
    Time,
    Transpose,
    Window,
    data_selection,
    notes_are_said,
    read_data,
    recording_options,
)

__all__ = ["choose"]


@app.command()
def choose(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="Pairs or a recording, in a file as for fit.")],
    data_pos: Annotated[
        Path | None, typer.Argument(help="Positives of DATA, row by row, in a second file.")
    ] = None,
    n_components: Annotated[
        str, typer.Option(help="Number of codes, or auto to choose it, too.")
    ] = "auto",
    spaces: Annotated[
        str, typer.Option(help="Spaces to compare, separated by commas.")
    ] = "sphere,box,euclidean",
    conditionals: Annotated[
        str,
        typer.Option(help="Conditionals to compare, of vmf, normal, laplace and anisotropic."),
    ] = "vmf,normal,laplace",
    lags: Annotated[
        str | None,
        typer.Option(help="For a time series: lags to compare, such as 1,3,10.  [default: 1]"),
    ] = None,
    counts: Annotated[
        bool, typer.Option("--counts", help="The data are counts, such as spikes.")
    ] = False,
    steps: Annotated[int, typer.Option(help="Training steps of the first runs.")] = 200,
    diagnosed: Annotated[
        bool,
        typer.Option("--diagnose/--no-diagnose", help="Whether to fit and diagnose the best."),
    ] = True,
    out: Annotated[
        Path,
        typer.Option(
            help="Directory for what has been run, where the same command continues, and for "
            "report.html."
        ),
    ] = Path("choice"),
    columns: Columns = None,
    drop: Drop = None,
    array: ArrayName = None,
    transpose: Transpose = False,
    positive_suffix: PositiveSuffix = None,
    time: Time = None,
    max_gap: MaxGap = 0,
    window: Window = 1,
    session: Session = None,
    max_memory: MaxMemory = None,
    random_state: RandomState = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    quiet: Quiet = False,
    json: JsonOutput = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare beliefs: which do the data support?"""
    with interruptible(lambda: f"interrupted; continue with: {command_line()}"):
        number = _parse_number(n_components)
        numbers = None if lags is None else [_parse_lag(part) for part in lags.split(",")]
        check_json(json, overwrite)
        page = out / REPORT_FILE
        if page.is_file():
            from isolatent.report import is_report  # its package takes a second to import

            check_writable("--out", page, overwrite=is_report(page))
        from isolatent import diagnosis
        from isolatent.report import page_of_choice, write_report
        from isolatent.training import ContrastiveICA

        say = printer(json)
        selection = data_selection(context.params)
        observed = read_data(data, data_pos, selection, say if not quiet else lambda line: None)
        if observed.x_pos is not None and numbers is not None:
            raise ValueError("--lags is for a time series in one file; these are pairs")

        def show(line: str) -> None:
            if not quiet:
                typer.echo(line, err=True)

        with notes_are_said():
            found = diagnosis.choose(
                *(observed.x, observed.x_pos),
                **recording_options(observed, max_gap),
                n_components=number,
                spaces=_parse_names(spaces),
                conditionals=_parse_names(conditionals),
                lags=numbers,
                model=ContrastiveICA(counts=counts, window=window),
                steps=steps,
                diagnose=diagnosed,
                directory=out,
                on_trial=show,
                random_state=random_state,
                n_jobs=jobs,
            )
        say(str(found))
        out.mkdir(parents=True, exist_ok=True)
        content = page_of_choice(found, title=f"Choice for {data.name}", command=command_line())
        write_report(page, content, overwrite=True)  # checked before
        say(f"report: {page}")
        write_result(json, found.to_dict() | {"report": str(page)})


def _parse_number(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal():
        raise ValueError(f"--n-components must be auto or a positive integer, got {text!r}")
    return check_integer("--n-components", int(text), at_least=1)


def _parse_lag(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"--lags must be numbers of rows, separated by commas, got {text!r}")
    return check_integer("--lags", int(text), at_least=1)


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))
