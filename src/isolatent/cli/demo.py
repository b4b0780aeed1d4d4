"""The demonstration: simulate a world and recover its factors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Generator, nn

from isolatent.cli.fit import command_line
from isolatent.cli.output import check_writable
from isolatent.evaluation import Interval, bootstrap, linear_r2, mcc
from isolatent.report import is_report, page_of_fit, write_report
from isolatent.training import ContrastiveICA, ProgressDisplay, Recipe
from isolatent.worlds import InvertibleMLP, Sphere, Uniform, VonMisesFisher, World

__all__ = ["DEFAULT_REPORT", "default_report", "run_demo"]

FACTORS = 10
KAPPA = 10.0
TEST_PAIRS = 8192
DEFAULT_REPORT = Path("isolatent-demo.html")


def default_report() -> Path | None:
    """Return the default path of the report; None if another file has that name.

    The report of an earlier demonstration is replaced.
    """
    try:
        check_writable("--report", DEFAULT_REPORT, overwrite=is_report(DEFAULT_REPORT))
    except OSError as error:
        reason = str(error).removesuffix("; pass --overwrite to replace it")
        typer.echo(f"isolatent: no report is written; {reason}", err=True)
        return None
    return DEFAULT_REPORT


def run_demo(random_state: int, max_steps: int, quiet: bool, report: Path | None) -> dict[str, Any]:
    """Run the demonstration, print its scores, write its report, and return the scores."""
    # The matrices are small: a second thread gains little on an idle machine and slows every step
    # down severalfold on a busy one.
    torch.set_num_threads(1)
    console = Console(highlight=False)
    started = time.perf_counter()
    world = World(
        Sphere(FACTORS),
        Uniform(),
        VonMisesFisher(KAPPA),
        InvertibleMLP(layers=3),
        seed=random_state,
    )
    z, _ = world.sample_latents(TEST_PAIRS, Generator().manual_seed(random_state + 1_000_003))
    x = world.observe(z)
    identity_r2, identity_mcc = bootstrap(linear_r2, z, x), bootstrap(mcc, z, x)
    if not quiet:
        console.print(
            f"A world with {FACTORS} latent factors on a sphere and a 3-layer nonlinear mixing.\n"
            f"A linear fit to the raw observations recovers the factors with R² {identity_r2}.\n"
            "Training an encoder on pairs of observations, without access to the factors."
        )

    def quality(encoder: nn.Module) -> float:
        with torch.no_grad():
            return linear_r2(z[:2048], encoder(x[:2048]))

    model = ContrastiveICA(
        FACTORS,
        space="sphere",
        conditional="vmf",
        recipe=Recipe(max_steps=max_steps),
        random_state=random_state,
    )
    with ProgressDisplay(quiet=quiet, quality_name="R²") as display:
        model.fit(world, on_step=display, quality=None if quiet else quality)
    h = model.transform(x)
    recovered_r2, recovered_mcc = bootstrap(linear_r2, z, h), bootstrap(mcc, z, h)
    seconds = time.perf_counter() - started

    table = Table("", "R² (linear)", "MCC")
    table.add_row("raw observations", str(identity_r2), str(identity_mcc))
    table.add_row("recovered", str(recovered_r2), str(recovered_mcc))
    console.print(table)
    console.print(
        f"{seconds:.1f} s, seed {random_state}, 95 % intervals on {TEST_PAIRS} new observations"
    )
    console.print(f"guarantee: {model.guarantee_}")
    if report is not None:
        page = page_of_fit(
            model,
            x,
            z,
            command=command_line(),
            truth=[KAPPA],
            title="isolatent demo",
            summary=[
                f"A world with {FACTORS} latent factors on a sphere and a 3-layer nonlinear "
                "mixing. The encoder was trained on pairs of observations, without access to the "
                "factors.",
                f"{seconds:.1f} s, seed {random_state}.",
            ],
            quality="R² (linear)",
        )
        write_report(report, page, overwrite=True)  # checked before
        console.print(f"report: {report}", soft_wrap=True, markup=False, emoji=False)
    return {
        "identity_r2": identity_r2.value,
        "identity_mcc": identity_mcc.value,
        "recovered_r2": recovered_r2.value,
        "recovered_mcc": recovered_mcc.value,
        "intervals": {
            name: _bounds(interval)
            for name, interval in (
                ("identity_r2", identity_r2),
                ("identity_mcc", identity_mcc),
                ("recovered_r2", recovered_r2),
                ("recovered_mcc", recovered_mcc),
            )
        },
        "seconds": seconds,
        "seed": random_state,
        "world": world.to_dict(),
    }


def _bounds(interval: Interval) -> list[float]:
    return [interval.low, interval.high]
