"""The commands, thin: parse, call, print."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from isolatent import __version__
from isolatent.checks import IsolatentWarning, check_integer

__all__ = ["main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Recover the true factors behind data by contrastive learning.",
)


Model: TypeAlias = Annotated[Path, typer.Argument(help="Directory of a model that fit wrote.")]
Session: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Column (of an .npz: array) that tells sessions apart; no observation."),
]


def _seed(help: str) -> Any:  # noqa: A002
    """Return the option ``--random-state``, which ``--seed`` abbreviates."""
    return typer.Option("--random-state", "--seed", help=help)


@app.callback(invoke_without_command=True)
def isolatent(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Recover the true factors behind data by contrastive learning."""
    if version:
        typer.echo(f"isolatent {__version__}")
        raise typer.Exit


@app.command()
def demo(
    random_state: Annotated[int, _seed("Seed of the world and of the training.")] = 0,
    max_steps: Annotated[int | None, typer.Option(help="Training steps at most.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the figures to this file.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="File for a page of HTML.  [default: isolatent-demo.html, unless a file of yours "
            "has that name]"
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option(help="Replace the --json and --report files if they exist.")
    ] = False,
    quiet: Annotated[bool, typer.Option(help="Print the result only.")] = False,
) -> None:
    """Make a world with known factors, recover them, and compare with the truth."""
    from isolatent.cli.output import LARGEST_SEED, check_writable
    from isolatent.cli.report import demo_page_path
    from isolatent.files import write_json

    check_integer("--random-state", random_state, at_least=0, at_most=LARGEST_SEED)
    if max_steps is not None:
        check_integer("--max-steps", max_steps, at_least=1)
    if json is not None:
        check_writable("--json", json, overwrite)
    if report is not None:
        check_writable("--report", report, overwrite)
    page = demo_page_path() if report is None else report
    with _interruptible():
        from isolatent.cli.demo import run_demo

        figures = run_demo(random_state=random_state, max_steps=max_steps, quiet=quiet, report=page)
    if json is not None:
        write_json(json, figures, indent=2)


@app.command()
def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help="Observations, rows by columns: .npy, .npz (arrays x and perhaps x_pos or "
            "session), .csv (with a header line) or .parquet."
        ),
    ],
    data_pos: Annotated[
        Path | None,
        typer.Argument(help="The positive of each row of DATA; without it DATA is a series."),
    ] = None,
    space: Annotated[
        str, typer.Option(help="Of the factors: sphere, box, euclidean, cubegrid or hollowball.")
    ] = "sphere",
    marginal: Annotated[
        str | None,
        typer.Option(
            help="Of the factors: uniform, normal or unknown.  [default: uniform; normal if "
            "euclidean]",
        ),
    ] = None,
    conditional: Annotated[
        str | None,
        typer.Option(
            help="Of a positive's factors: vmf, normal, laplace, gennorm or anisotropic.  "
            "[default: vmf on the sphere, else normal]"
        ),
    ] = None,
    p: Annotated[
        float | None, typer.Option(help="Exponent of the gennorm conditional, 1 or more.")
    ] = None,
    n_components: Annotated[
        int | None,
        typer.Option(help="Number of factors.  [default: one for each column, at most 10]"),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="What is minimised: infonce, aninfonce, nce, scl or nwj.")
    ] = "infonce",
    random_state: Annotated[int, _seed("Seed of the run; the same gives the same model.")] = 0,
    out: Annotated[Path, typer.Option(help="Directory for the model and its checkpoints.")] = Path(
        "model"
    ),
    max_steps: Annotated[
        int | None, typer.Option(help="Training steps at most.  [default: the recipe's]")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Pairs per step.  [default: the recipe's]")
    ] = None,
    lag: Annotated[
        int | None,
        typer.Option(help="Longest time from a row to its positive, in rows.  [default: 1]"),
    ] = None,
    session: Session = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model that is in --out.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the result only.")] = False,
    devices: Annotated[
        int, typer.Option(help="Number of GPUs, or processes on the CPU, per machine.")
    ] = 1,
    num_nodes: Annotated[int, typer.Option(help="Number of machines.")] = 1,
    accelerator: Annotated[str, typer.Option(help="Where to compute: auto, cpu or cuda.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="Bits of the encoder's arithmetic: 32 or bf16-mixed.")
    ] = "32",
    log: Annotated[
        str | None, typer.Option(help="Also log each step: csv, to log.csv in --out.")
    ] = None,
) -> None:
    """Train an encoder on pairs of observations, or on a series, and save the model."""
    from isolatent.cli.fit import Beliefs, Place, Run, resume_advice, run_fit

    run = Run(
        out,
        n_components,
        loss,
        random_state,
        max_steps,
        batch_size,
        lag,
        session,
        resume,
        overwrite,
        quiet,
        log,
    )
    place = Place(accelerator, devices, num_nodes, precision)
    with _interruptible(lambda: resume_advice(out) if place.is_first else None):
        beliefs = Beliefs.complete(space, marginal, conditional, p)
        run_fit(data, data_pos, beliefs, run, place)


@app.command()
def transform(
    model: Model,
    data: Annotated[Path, typer.Argument(help="Observations, in a file as for fit.")],
    out: Annotated[
        Path, typer.Option(help="File for the codes: .npy, .npz (array h), .csv or .parquet.")
    ] = Path("codes.npy"),
    session: Session = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the --out file if it exists.")
    ] = False,
) -> None:
    """Write the codes of observations: the factors as the model recovers them."""
    from isolatent.cli.model import run_transform

    with _interruptible():
        run_transform(model, data, out, session, overwrite)


@app.command()
def evaluate(
    model: Model,
    truth: Annotated[
        Path,
        typer.Option(help="True factors, one row for each of DATA; .npz: z (and x without DATA)."),
    ],
    data: Annotated[
        Path | None,
        typer.Argument(help="Observations, in a file as for fit; without it --truth holds them."),
    ] = None,
    session: Session = None,
    blocks: Annotated[
        str | None,
        typer.Option(help="Factors whose conditionals are equally wide, such as 0,1,2/3,4."),
    ] = None,
    random_state: Annotated[
        int, _seed("Seed of the split into halves for R² and of the bootstrap.")
    ] = 0,
    json: Annotated[Path | None, typer.Option(help="Also write the scores to this file.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the --json file if it exists.")
    ] = False,
) -> None:
    """Compare the codes of observations with their true factors."""
    from isolatent.cli.model import run_evaluate

    with _interruptible():
        run_evaluate(model, data, truth, session, blocks, random_state, json, overwrite)


@app.command()
def info(model: Model) -> None:
    """Print what a model is and what may be claimed about it."""
    from isolatent.cli.model import run_info

    run_info(model)


@app.command()
def report(
    directory: Annotated[
        Path, typer.Argument(help="A model that fit wrote, or a directory with runs.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="File for the page.  [default: report.html in DIRECTORY]")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Observations to encode with the model, as for fit.")
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(help="Their true factors; .npz: z (and x without --data)."),
    ] = None,
    session: Session = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the --out file if it exists.")
    ] = False,
) -> None:
    """Write a page of HTML about a model, or about the runs of an experiment."""
    from isolatent.cli.report import run_report

    with _interruptible():
        run_report(directory, out, data, truth, session, overwrite)


@app.command()
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="An experiment of --list, or a .toml file of your own."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds for each cell.")] = 5,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    cells: Annotated[
        str | None, typer.Option(help="Only cells whose names match, such as 'box_*'.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time.  [default: one for each core]")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="Where to run: local, or ray for an existing cluster.")
    ] = "local",
    budget: Annotated[
        float | None, typer.Option(help="Minutes after which no further run is started.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Directory for results; finished runs in it are skipped.")
    ] = Path("reproduction"),
    show: Annotated[bool, typer.Option("--list", help="List the experiments, and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the outcome only.")] = False,
) -> None:
    """Run an experiment of the papers, or one of your own; resumes where it was left."""
    from isolatent.cli.reproduce import print_experiments, run_reproduce

    if show:
        print_experiments()
        return
    if name is None:
        raise ValueError("NAME must be given; `isolatent reproduce --list` shows what there is")
    with _interruptible(lambda: "interrupted; the same command goes on with what is left"):
        status = run_reproduce(
            name,
            seeds=seeds,
            first_seed=first_seed,
            cells=cells,
            jobs=jobs,
            backend=backend,
            budget=budget,
            out=out,
            quiet=quiet,
        )
    raise typer.Exit(status)


@app.command()
def results(
    directory: Annotated[Path, typer.Argument(help="What reproduce --out wrote, or one above.")],
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(help="markdown, csv or parquet.  [default: by --export; markdown]"),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write to this file; .png for a figure.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the --export file if it exists.")
    ] = False,
) -> None:
    """Print results beside what was published, with a verdict for each score."""
    from isolatent.cli.reproduce import run_results

    run_results(directory, format, export, overwrite)


def main() -> None:
    """Run the command line; errors a person can act on are one line, without a traceback."""
    with warnings.catch_warnings():
        _show_warnings_as_lines()
        try:
            app()
        except (ValueError, OSError, FloatingPointError) as error:
            typer.echo(f"isolatent: {error}", err=True)
            sys.exit(2)


@contextmanager
def _interruptible(advice: Callable[[], str | None] = lambda: "interrupted") -> Iterator[None]:
    """Leave with status 130 and a line of advice when a person presses Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        if line := advice():
            typer.echo(line, err=True)
        raise typer.Exit(130) from None


def _show_warnings_as_lines() -> None:
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: object) -> None:
        if issubclass(category, IsolatentWarning):
            typer.echo(f"isolatent: warning: {message}", err=True)
        else:
            usual(message, category, *where)  # type: ignore[arg-type]

    warnings.showwarning = show  # type: ignore[assignment]
