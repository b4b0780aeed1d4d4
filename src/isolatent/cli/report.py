"""Pages about models and experiments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from isolatent.cli.output import check_writable

if TYPE_CHECKING:
    from isolatent.report import Page

__all__ = ["DEMO_PAGE", "REPORT", "demo_page_path", "run_report"]

REPORT = "report.html"
DEMO_PAGE = Path("isolatent-demo.html")


def run_report(
    directory: Path,
    out: Path | None,
    data: Path | None,
    truth: Path | None,
    session: str | None,
    overwrite: bool,
) -> None:
    """Write the page of a model, or of the runs in a directory."""
    if not directory.is_dir():
        raise FileNotFoundError(f"DIRECTORY: {directory} is not a directory")
    if out is None:
        from isolatent.report import is_report

        out = directory / REPORT
        overwrite = overwrite or is_report(out)  # an earlier one, nothing else
    check_writable("--out", out, overwrite)
    is_model = (directory / "model.json").is_file()
    if not is_model and (data is not None or truth is not None):
        raise ValueError(f"--data and --truth are for a model, but {directory} has no model.json")
    page = _page_of_model(directory, data, truth, session) if is_model else _page_of_runs(directory)
    from isolatent.report import write_report

    write_report(out, page, overwrite=True)  # it was asked before
    typer.echo(f"wrote {out}")


def demo_page_path() -> Path | None:
    """Where the demonstration's page goes if nothing is said; None if something is in the way.

    The page of an earlier demonstration is replaced, nothing else.
    """
    from isolatent.report import is_report

    try:
        check_writable("--report", DEMO_PAGE, overwrite=is_report(DEMO_PAGE))
    except OSError as error:
        told = str(error).removesuffix("; pass --overwrite to replace it")
        typer.echo(f"isolatent: no page is written; {told}", err=True)
        return None
    return DEMO_PAGE


def _page_of_runs(directory: Path) -> Page:
    from isolatent.report import page_of_runs, read_results

    results = read_results(directory)
    if not results:
        raise FileNotFoundError(
            f"DIRECTORY: {directory} holds neither a model (model.json) nor results that "
            "`isolatent reproduce` wrote"
        )
    return page_of_runs(results)


def _page_of_model(
    directory: Path, data: Path | None, truth: Path | None, session: str | None
) -> Page:
    from isolatent.cli.model import as_fitted, check_model, load, read_data_and_truth
    from isolatent.pairs.readers import read_observations
    from isolatent.report import page_of_fit

    check_model(directory)
    title = f"Model {directory.resolve().name}"
    if truth is not None:
        source, observed, z = read_data_and_truth(data, truth, session)
        model = load(directory)
        return page_of_fit(model, as_fitted(model, source, observed), z, title=title)
    if data is not None:
        observed = read_observations(data, session, varying=False)
        model = load(directory)
        return page_of_fit(model, as_fitted(model, data, observed), title=title)
    return page_of_fit(load(directory), title=title)
