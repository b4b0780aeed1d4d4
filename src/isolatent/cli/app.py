"""The commands, thin: parse, call, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from isolatent import __version__
from isolatent.checks import check_integer

__all__ = ["main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Recover the true factors behind data by contrastive learning.",
)


LARGEST_SEED = 2**32 - 1  # what NumPy takes


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
    seed: Annotated[int, typer.Option(help="Seed of the world and of the training.")] = 0,
    steps: Annotated[int | None, typer.Option(help="Training steps.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the figures to this file.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace the --json file if it exists.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print the result only.")] = False,
) -> None:
    """Make a world with known factors, recover them, and compare with the truth."""
    from isolatent.cli.demo import run_demo
    from isolatent.cli.output import check_writable, write_json

    if check_integer("--seed", seed, at_least=0) > LARGEST_SEED:
        raise ValueError(f"--seed must be at most {LARGEST_SEED}, got {seed}")
    if steps is not None:
        check_integer("--steps", steps, at_least=1)
    if json is not None:
        check_writable("--json", json, overwrite)
    try:
        figures = run_demo(seed=seed, steps=steps, quiet=quiet)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(130) from None
    if json is not None:
        write_json(json, figures)


def main() -> None:
    """Run the command line; errors a person can act on are one line, without a traceback."""
    try:
        app()
    except (ValueError, OSError, FloatingPointError) as error:
        typer.echo(f"isolatent: {error}", err=True)
        sys.exit(2)
