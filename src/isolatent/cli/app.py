"""The command ``isolatent``, and the options and checks that its subcommands share."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from isolatent import __version__
from isolatent.checks import IsolatentWarning, check_integer

__all__ = [
    "MAX_SEED",
    "REPORT_FILE",
    "Model",
    "Overwrite",
    "Quiet",
    "RandomState",
    "Scores",
    "Session",
    "app",
    "check_seed",
    "check_writable",
    "command_line",
    "interruptible",
    "main",
]

MAX_SEED = 2**32 - 1  # the largest that NumPy accepts
REPORT_FILE = "report.html"  # in the directory of a model or of results

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Recover the latent factors behind data by contrastive learning.",
)


def check_seed(parameter: typer.CallbackParam, seed: int) -> int:
    """Return a seed that NumPy accepts; the callback of an option."""
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
        callback=check_seed,
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


def main() -> None:
    """Run the command line; user errors are printed as one line, without a traceback."""
    with warnings.catch_warnings():
        _show_warnings_as_lines()
        try:
            app()
        except (ValueError, OSError, FloatingPointError) as error:
            typer.echo(f"isolatent: {error}", err=True)
            sys.exit(2)


def _show_warnings_as_lines() -> None:
    default = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: object) -> None:
        if issubclass(category, IsolatentWarning):
            typer.echo(f"isolatent: warning: {message}", err=True)
        else:
            default(message, category, *where)  # type: ignore[arg-type]

    warnings.showwarning = show  # type: ignore[assignment]


def check_writable(name: str, path: Path | None, overwrite: bool) -> None:
    """Raise an error if an output file is requested that cannot or must not be written."""
    if path is None:
        return
    if path.is_dir():
        raise IsADirectoryError(f"{name} must be a file, but {path} is a directory")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{name}: the directory {path.parent} does not exist")
    if path.is_file() and path.stat().st_size and not overwrite:
        raise FileExistsError(f"{name}: {path} exists; pass --overwrite to replace it")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"{name}: no permission to write {path}")


def command_line() -> str:
    """Return the running command without --overwrite and --resume."""
    words = [word for word in sys.argv[1:] if word not in ("--overwrite", "--resume")]
    return f"isolatent {shlex.join(words)}"


@contextmanager
def interruptible(advice: Callable[[], str | None] = lambda: "interrupted") -> Iterator[None]:
    """On Ctrl-C, print a line of advice and exit with status 130."""
    try:
        yield
    except KeyboardInterrupt:
        if line := advice():
            typer.echo(line, err=True)
        raise typer.Exit(130) from None
