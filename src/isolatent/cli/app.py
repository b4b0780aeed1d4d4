"""The commands: each parses its arguments, calls one function and prints the outcome."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from isolatent import __version__
from isolatent.checks import IsolatentWarning, check_integer

__all__ = ["MAX_SEED", "main"]

MAX_SEED = 2**32 - 1  # the largest that NumPy accepts

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Recover the latent factors behind data by contrastive learning.",
)


def _check_seed(parameter: typer.CallbackParam, seed: int) -> int:
    return check_integer(parameter.opts[0], seed, at_least=0, at_most=MAX_SEED)


Model: TypeAlias = Annotated[Path, typer.Argument(help="Directory of a model saved by fit.")]
Session: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Column (array of an .npz) with session ids, which is not part of the observations."
    ),
]
RandomState: TypeAlias = Annotated[
    int,
    typer.Option(
        "--random-state",
        "--seed",
        callback=_check_seed,
        help="Random seed; the same seed gives the same result.",
    ),
]
Scores: TypeAlias = Annotated[
    Path | None, typer.Option("--json", help="Also write the scores to this JSON file.")
]
Overwrite: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", help="Replace existing output files.")
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", help="Print the result only.")]


@app.callback(invoke_without_command=True)
def isolatent(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Recover the latent factors behind data by contrastive learning."""
    if version:
        typer.echo(f"isolatent {__version__}")
        raise typer.Exit


@app.command()
def demo(
    random_state: RandomState = 0,
    max_steps: Annotated[int, typer.Option(help="Maximum number of training steps.")] = 2000,
    json: Scores = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="HTML file for the report.  [default: isolatent-demo.html, unless another file "
            "has that name]"
        ),
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Simulate data and recover their known factors."""
    from isolatent.cli.output import check_writable
    from isolatent.files import write_json

    check_integer("--max-steps", max_steps, at_least=1)
    for name, path in (("--json", json), ("--report", report)):
        if path is not None:
            check_writable(name, path, overwrite)
    with _interruptible():
        from isolatent.cli.demo import default_report, run_demo

        scores = run_demo(random_state, max_steps, quiet, report or default_report())
    if json is not None:
        write_json(json, scores, indent=2)


@app.command()
def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help="Observations, one per row: .npy, .npz (array x and, optionally, x_pos or "
            "session), .csv (with a header line) or .parquet."
        ),
    ],
    data_pos: Annotated[
        Path | None,
        typer.Argument(
            help="Positive samples, one for each row of DATA. Without them, DATA is a time series."
        ),
    ] = None,
    space: Annotated[
        str,
        typer.Option(help="Space of the factors: sphere, box, euclidean, cubegrid or hollowball."),
    ] = "sphere",
    marginal: Annotated[
        str | None,
        typer.Option(
            help="Marginal distribution of the factors: uniform, normal or unknown.  [default: "
            "normal if euclidean, else uniform]",
        ),
    ] = None,
    conditional: Annotated[
        str | None,
        typer.Option(
            help="Conditional distribution of a positive's factors: vmf, normal, laplace, gennorm "
            "or anisotropic.  [default: vmf on the sphere, else normal]"
        ),
    ] = None,
    p: Annotated[
        float | None, typer.Option(help="Exponent of the gennorm conditional, at least 1.")
    ] = None,
    n_components: Annotated[
        int | None,
        typer.Option(help="Number of factors.  [default: number of columns, at most 10]"),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="Contrastive loss: infonce, aninfonce, nce, scl or nwj.")
    ] = "infonce",
    random_state: RandomState = 0,
    out: Annotated[
        Path, typer.Option(help="Directory for the model, its checkpoints and its report.")
    ] = Path("model"),
    max_steps: Annotated[
        int | None, typer.Option(help="Maximum number of training steps.  [default: 50000]")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Number of pairs per step.  [default: 1024, less for small data]"),
    ] = None,
    lag: Annotated[
        int | None,
        typer.Option(help="Maximum lag of a positive in a time series, in rows.  [default: 1]"),
    ] = None,
    session: Session = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint in --out.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing model in --out.")
    ] = False,
    quiet: Quiet = False,
    devices: Annotated[
        int, typer.Option(help="Number of GPUs, or of processes on the CPU, per machine.")
    ] = 1,
    num_nodes: Annotated[int, typer.Option(help="Number of machines.")] = 1,
    accelerator: Annotated[str, typer.Option(help="Device type: auto, cpu or cuda.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="Floating-point precision of the encoder: 32 or bf16-mixed.")
    ] = "32",
    log: Annotated[
        str | None,
        typer.Option(help="Format of a log of all training steps: csv, to log.csv in --out."),
    ] = None,
) -> None:
    """Train a model on pairs or on a time series."""
    from isolatent.cli.fit import is_first_process, resume_advice, run_fit

    parameters = {
        "n_components": n_components,
        "space": space,
        "marginal": marginal,
        "conditional": conditional,
        "p": p,
        "loss": loss,
        "lag": lag,
        "random_state": random_state,
        "accelerator": accelerator,
        "devices": devices,
        "num_nodes": num_nodes,
        "precision": precision,
    }

    def advice() -> str | None:
        return resume_advice(out) if is_first_process(devices, num_nodes) else None

    with _interruptible(advice):
        run_fit(
            data,
            data_pos,
            parameters,
            out=out,
            max_steps=max_steps,
            batch_size=batch_size,
            session=session,
            resume=resume,
            overwrite=overwrite,
            quiet=quiet,
            log=log,
        )


@app.command()
def transform(
    model: Model,
    data: Annotated[Path, typer.Argument(help="Observations, in a file as for fit.")],
    out: Annotated[
        Path, typer.Option(help="File for the codes: .npy, .npz (array h), .csv or .parquet.")
    ] = Path("codes.npy"),
    session: Session = None,
    overwrite: Overwrite = False,
) -> None:
    """Encode observations: write the recovered factors."""
    from isolatent.cli.model import run_transform

    with _interruptible():
        run_transform(model, data, out, session, overwrite)


@app.command()
def evaluate(
    model: Model,
    truth: Annotated[
        Path,
        typer.Option(
            help="True factors, one row for each row of DATA: array z of an .npz, or a file as for "
            "fit."
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Observations, in a file as for fit.  [default: array x of the --truth file]"
        ),
    ] = None,
    session: Session = None,
    blocks: Annotated[
        str | None,
        typer.Option(
            help="Blocks of factors with equally wide conditionals, as indices such as 0,1,2/3,4."
        ),
    ] = None,
    random_state: RandomState = 0,
    json: Scores = None,
    overwrite: Overwrite = False,
) -> None:
    """Score codes against the true factors."""
    from isolatent.cli.model import run_evaluate

    with _interruptible():
        run_evaluate(model, data, truth, session, blocks, random_state, json, overwrite)


@app.command()
def info(model: Model) -> None:
    """Print the settings and the guarantee of a model."""
    from isolatent.cli.model import run_info

    run_info(model)


@app.command()
def report(
    directory: Annotated[
        Path, typer.Argument(help="Directory of a model saved by fit, or of results of reproduce.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file for the report.  [default: report.html in DIRECTORY]"),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Observations to encode with the model, as for fit.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="True factors of the observations, as for evaluate.")
    ] = None,
    session: Session = None,
    overwrite: Overwrite = False,
) -> None:
    """Write an HTML report about a model or about results."""
    from isolatent.cli.model import run_report

    with _interruptible():
        run_report(directory, out, data, truth, session, overwrite)


@app.command()
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="Name of an experiment (see --list), or a .toml file."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for each cell.")] = 5,
    first_seed: Annotated[int, typer.Option(callback=_check_seed, help="The first seed.")] = 0,
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
    show: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run or resume an experiment of the papers."""
    from isolatent.cli.experiments import print_experiments, run_reproduce

    if show:
        print_experiments()
        return
    if name is None:
        raise ValueError("NAME must be given; `isolatent reproduce --list` lists the experiments")
    check_integer("--seeds", seeds, at_least=1, at_most=MAX_SEED + 1 - first_seed)
    with _interruptible(lambda: "interrupted; run the same command again to continue"):
        status = run_reproduce(
            name,
            seeds=range(first_seed, first_seed + seeds),
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
) -> None:
    """Compare results with the published scores."""
    from isolatent.cli.experiments import run_results

    run_results(directory, format, export, overwrite)


def main() -> None:
    """Run the command line; user errors are printed as one line, without a traceback."""
    with warnings.catch_warnings():
        _show_warnings_as_lines()
        try:
            app()
        except (ValueError, OSError, FloatingPointError) as error:
            typer.echo(f"isolatent: {error}", err=True)
            sys.exit(2)


@contextmanager
def _interruptible(advice: Callable[[], str | None] = lambda: "interrupted") -> Iterator[None]:
    """On Ctrl-C, print a line of advice and exit with status 130."""
    try:
        yield
    except KeyboardInterrupt:
        if line := advice():
            typer.echo(line, err=True)
        raise typer.Exit(130) from None


def _show_warnings_as_lines() -> None:
    default = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: object) -> None:
        if issubclass(category, IsolatentWarning):
            typer.echo(f"isolatent: warning: {message}", err=True)
        else:
            default(message, category, *where)  # type: ignore[arg-type]

    warnings.showwarning = show  # type: ignore[assignment]
