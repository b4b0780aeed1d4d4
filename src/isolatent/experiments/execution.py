"""Execute one run: train and score a cell with a seed, and return a record for JSON."""

from __future__ import annotations

import platform
import shlex
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor, nn

from isolatent import __version__
from isolatent.baselines import SupervisedEncoder
from isolatent.checks import IsolatentWarning
from isolatent.evaluation import (
    align_codes,
    block_mcc,
    block_r2,
    correlation_matrix,
    linear_r2,
    mcc,
)
from isolatent.experiments.augmentation_cells import AugmentationCell
from isolatent.experiments.augmentation_execution import execute_augmentation_cell
from isolatent.experiments.cells import Cell
from isolatent.experiments.experiment import Run
from isolatent.experiments.frame_cells import FrameCell
from isolatent.experiments.frame_execution import execute_frame_cell
from isolatent.experiments.image_cells import ImageCell
from isolatent.experiments.image_execution import execute_image_cell
from isolatent.experiments.latent_traversal import rendered_traversal
from isolatent.experiments.measures import (
    axes_found,
    codes_of_loss,
    gradient_noise,
    scales,
    thin_curve,
    total_variation,
)
from isolatent.experiments.objectives import objective_of_model
from isolatent.experiments.program import program_digest
from isolatent.pairs import WorldPairs
from isolatent.training import Recipe

__all__ = ["execute", "new_record"]

RECORD_FORMAT = 1
TEST_POINTS = 8192
TEST_SEED = 1_000_003  # test points have another seed than training
SCATTER_POINTS = 200
ONE_BY_ONE = ("mcc", "block_mcc")
QUALITY_POINTS = 2048
IDENTITY_SIZE = 16  # pixels of a side, to which images are averaged for identity scores
SUPERVISED_STEPS = 5000  # at most; regression needs fewer than contrastive training


def execute(run: Run, threads: int = 1) -> dict[str, Any]:
    """Execute a run and return its record; an error is recorded, never raised.

    ``status`` is ``"done"``; ``"diverged"`` if the loss became infinite or NaN, which is a result,
    too; or ``"failed"``, with the error and its traceback.

    Args:
        run: The cell and the seed.
        threads: Number of threads of torch and Numba.
    """
    start, cpu = time.perf_counter(), time.process_time()
    record = new_record(run, threads)
    try:
        with _threads(threads), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", IsolatentWarning)
            if isinstance(run.cell, ImageCell):
                record |= execute_image_cell(run.cell, run.seed)
            elif isinstance(run.cell, FrameCell):
                record |= execute_frame_cell(run.cell, run.seed)
            elif isinstance(run.cell, AugmentationCell):
                record |= execute_augmentation_cell(run.cell, run.seed)
            else:
                _measure(run.cell, run.seed, record)
        record["warnings"] = [
            str(w.message) for w in caught if issubclass(w.category, IsolatentWarning)
        ]
    except FloatingPointError as error:
        record |= {"status": "diverged", "error": str(error)}
    except Exception as error:
        record |= {"status": "failed", "error": f"{type(error).__name__}: {error}"}
        record["traceback"] = traceback.format_exc(limit=-5)
    record["seconds"]["total"] = round(time.perf_counter() - start, 2)
    # Processor time hardly depends on the load of the machine.
    record["seconds"]["cpu"] = round(time.process_time() - cpu, 2)
    return record


def new_record(run: Run, threads: int) -> dict[str, Any]:
    """Return the record of a run before its results: how it is made and how to repeat it."""
    return {
        "format": RECORD_FORMAT,
        "experiment": run.experiment,
        "cell": run.cell.name,
        "seed": run.seed,
        "hash": run.hash,
        "program": program_digest(),
        "status": "done",
        "error": None,
        "spec": run.cell.to_dict(),
        "scores": {},
        "seconds": {},
        "command": _command(run),
        "versions": _versions(),
        "threads": threads,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _measure(cell: Cell, seed: int, record: dict[str, Any]) -> None:
    """Fill a record piece by piece, so that a run that diverges keeps what came before."""
    pairs = cell.world.build(seed)
    world = pairs.world
    z, x = cell.world.test_set(world, seed + TEST_SEED, TEST_POINTS)
    scores, seconds = record["scores"], record["seconds"]
    measures: dict[str, Any] = {}
    record["measures"] = measures
    record["guarantee"] = cell.guarantee().to_dict()
    if "total_variation" in cell.measure:
        measures["total_variation"] = total_variation(world)
    if "identity" in cell.approaches:
        scores["identity"] = _scores(z.numpy(), _as_codes(x), cell)
    if "supervised" in cell.approaches:
        clock = time.perf_counter()
        supervised = SupervisedEncoder(
            cell.world.n,
            space=cell.model.beliefs.space,
            encoder=cell.model.encoder,
            max_steps=min(int(cell.recipe.get("max_steps", SUPERVISED_STEPS)), SUPERVISED_STEPS),
            random_state=seed,
            accelerator="cpu",
            **_supervised_options(cell, x),
        ).fit(world if isinstance(pairs, WorldPairs) else pairs)
        seconds["supervised"] = round(time.perf_counter() - clock, 2)
        scores["supervised"] = _scores(z.numpy(), supervised.transform(x), cell)
    if "unsupervised" in cell.approaches:
        clock = time.perf_counter()
        model = cell.estimator(seed)
        quality_points = QUALITY_POINTS if x.ndim == 2 else QUALITY_POINTS // 2

        def quality(encoder: nn.Module) -> float:
            with torch.no_grad():
                return linear_r2(z[:quality_points], encoder(x[:quality_points]))

        model.fit(pairs, quality=quality)
        seconds["unsupervised"] = round(time.perf_counter() - clock, 2)
        h = model.transform(x)
        scores["unsupervised"] = _scores(z.numpy(), h, cell)
        if "gradient_noise" in cell.measure:
            recipe = model.recipe or Recipe()
            measures["gradient_noise"] = gradient_noise(model, pairs, recipe.batch_size, seed)
        record |= _beside_factors(z.numpy(), h, one_by_one=cell.metrics[0] in ONE_BY_ONE)
        # A row for each factor, of the code that is matched with it.
        matched = align_codes(z.numpy(), h, one_by_one=True)[1]
        if (strips := rendered_traversal(world, z.numpy(), matched)) is not None:
            record["strips"] = strips
        record |= {
            "objective": objective_of_model(cell.to_dict(), model),
            "curve": thin_curve(model.history_),
            "scale": scales(cell, model.loss_, z.numpy(), codes_of_loss(model, x, h)),
            **axes_found(model),
        }


def _as_codes(x: Tensor) -> Any:
    """Return observations as codes (N, C); images are averaged to few pixels."""
    if x.ndim > 2:
        x = nn.functional.adaptive_avg_pool2d(x, IDENTITY_SIZE).flatten(1)
    return x.numpy()


def _supervised_options(cell: Cell, x: Tensor) -> dict[str, Any]:
    """Return the batch size of the supervised encoder, which images have in common with others."""
    if x.ndim == 2 or "batch_size" not in cell.recipe:
        return {}
    return {"batch_size": int(cell.recipe["batch_size"])}


def _beside_factors(z: Any, h: Any, *, one_by_one: bool) -> dict[str, Any]:
    """Return correlations and a sample of factors and codes, aligned as the first metric does."""
    factors, codes = align_codes(z, h, one_by_one=one_by_one)
    return {
        "alignment": "assignment" if one_by_one else "linear",
        "correlation": np.round(correlation_matrix(factors, codes), 4).tolist(),
        "scatter": {
            name: np.round(values[:SCATTER_POINTS], 4).tolist()
            for name, values in (("true", factors), ("recovered", codes))
        },
    }


def _scores(z: Any, h: Any, cell: Cell) -> dict[str, Any]:
    r2s, mccs = linear_r2(z, h, per_factor=True), mcc(z, h, per_factor=True)
    scores: dict[str, Any] = {"linear_r2": float(r2s.mean()), "mcc": float(mccs.mean())}
    if cell.blocks is not None:
        scores["block_r2"] = block_r2(z, h, cell.blocks)
        scores["block_mcc"] = block_mcc(z, h, cell.blocks)
        for k, block in enumerate(cell.blocks):
            scores[f"linear_r2_block{k + 1}"] = float(r2s[block].mean())
    scores["linear_r2_per_factor"] = np.round(r2s, 5).tolist()
    scores["mcc_per_factor"] = np.round(mccs, 5).tolist()
    return scores


def _command(run: Run) -> str:
    """Return the command that repeats this run."""
    words = ["isolatent", "reproduce", run.source, "--cells", run.cell.name]
    return shlex.join([*words, "--first-seed", str(run.seed), "--seeds", "1"])


def _versions() -> dict[str, str]:
    names = ("torch", "numpy", "numba", "scikit-learn")
    return {"isolatent": __version__, "python": platform.python_version()} | {
        name: version(name) for name in names
    }


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Set the number of threads of torch and Numba, and restore it afterwards."""
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(count)
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])
