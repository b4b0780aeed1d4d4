"""The demonstration: simulate a world and recover its factors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from isolatent.checks import check_integer
from isolatent.cli.app import (
    STDOUT,
    JsonOutput,
    Overwrite,
    Quiet,
    RandomState,
    app,
    check_json,
    check_writable,
    command_line,
    interruptible,
    write_result,
)

__all__ = ["DEFAULT_REPORT", "default_report", "demo"]

FACTORS = 10
KAPPA = 10.0
TEST_PAIRS = 8192
DEFAULT_REPORT = Path("isolatent-demo.html")


@app.command()
@interruptible()
def demo(
    random_state: RandomState = 0,
    max_steps: Annotated[int, typer.Option(help="Maximum number of training steps.")] = 2000,
    json: JsonOutput = None,
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
    check_integer("--max-steps", max_steps, at_least=1)
    check_json(json, overwrite)
    check_writable("--report", report, overwrite)
    report = report or default_report()

    import torch
    from rich.console import Console
    from rich.table import Table

    from isolatent.evaluation import bootstrap, linear_r2, mcc
    from isolatent.report import page_of_fit, write_report
    from isolatent.training import ContrastiveICA, ProgressDisplay, Recipe
    from isolatent.worlds import InvertibleMLP, Sphere, Uniform, VonMisesFisher, World

    # The matrices are small: a second thread gains little on an idle machine and slows every step
    # down severalfold on a busy one.
    torch.set_num_threads(1)
    console = Console(highlight=False, quiet=json == STDOUT)
    started = time.perf_counter()
    world = World(
        Sphere(FACTORS),
        Uniform(),
        VonMisesFisher(KAPPA),
        InvertibleMLP(layers=3),
        seed=random_state,
    )
    generator = torch.Generator().manual_seed(random_state + 1_000_003)
    z, _ = world.sample_latents(TEST_PAIRS, generator)
    x = world.observe(z)
    scores = {"identity_r2": bootstrap(linear_r2, z, x), "identity_mcc": bootstrap(mcc, z, x)}
    described = f"A world with {FACTORS} latent factors on a sphere and a 3-layer nonlinear mixing."
    if not quiet:
        console.print(
            f"{described}\nA linear fit to the raw observations recovers the factors with R² "
            f"{scores['identity_r2']}.\n"
            "Training an encoder on pairs of observations, without access to the factors."
        )

    def quality(encoder: torch.nn.Module) -> float:
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
    scores |= {"recovered_r2": bootstrap(linear_r2, z, h), "recovered_mcc": bootstrap(mcc, z, h)}
    seconds = time.perf_counter() - started

    table = Table("", "R² (linear)", "MCC")
    for label, name in (("raw observations", "identity"), ("recovered", "recovered")):
        table.add_row(label, str(scores[f"{name}_r2"]), str(scores[f"{name}_mcc"]))
    console.print(table)
    console.print(
        f"{seconds:.1f} s wall time, seed {random_state}, 95 % intervals on {TEST_PAIRS} new "
        "observations"
    )
    console.print(f"guarantee: {model.guarantee_}")
    if report is not None:
        trained = "The encoder was trained on pairs of observations, without access to the factors."
        page = page_of_fit(
            model,
            x,
            z,
            command=command_line(),
            truth=[KAPPA],
            title="isolatent demo",
            summary=[f"{described} {trained}", f"{seconds:.1f} s wall time, seed {random_state}."],
            quality="R² (linear)",
        )
        write_report(report, page, overwrite=True)  # checked before
        console.print(f"report: {report}", soft_wrap=True, markup=False, emoji=False)
    content = {
        **{name: score.value for name, score in scores.items()},
        "intervals": {name: [score.low, score.high] for name, score in scores.items()},
        "seconds": seconds,
        "seed": random_state,
        "world": world.to_dict(),
    }
    write_result(json, content)


def default_report() -> Path | None:
    """Return the default path of the report; None if another file has that name.

    The report of an earlier demonstration is replaced.
    """
    from isolatent.report import is_report

    try:
        check_writable("--report", DEFAULT_REPORT, overwrite=is_report(DEFAULT_REPORT))
    except OSError as error:
        reason = str(error).removesuffix("; pass --overwrite to replace it")
        typer.echo(f"isolatent: no report is written; {reason}", err=True)
        return None
    return DEFAULT_REPORT
