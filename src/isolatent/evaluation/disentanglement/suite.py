"""Compute all disentanglement metrics of a model on a world, with confidence intervals."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isolatent.checks import IsolatentWarning, check_integer, check_one_of, check_real
from isolatent.evaluation.columns import Indices
from isolatent.evaluation.disentanglement.betavae_factorvae import (
    beta_vae_statistic,
    factor_vae_statistic,
    sample_examples,
)
from isolatent.evaluation.disentanglement.boosting import BOOSTERS
from isolatent.evaluation.disentanglement.dci import dci_statistics
from isolatent.evaluation.disentanglement.explicitness import explicitness_statistic
from isolatent.evaluation.disentanglement.grid import EncodedGrid, GridWorld
from isolatent.evaluation.disentanglement.mig import mig_statistic, mutual_information
from isolatent.evaluation.disentanglement.modularity import modularity_statistic
from isolatent.evaluation.disentanglement.samples import Sample, Split
from isolatent.evaluation.disentanglement.sap import SOLVERS, sap_statistic
from isolatent.evaluation.intervals import Interval, percentile_interval, score_statistic
from isolatent.evaluation.mcc import mcc
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import objection

__all__ = ["Disentanglement", "evaluate_disentanglement"]

METRICS = {  # field: its title in the printed table, its name in INVARIANCES
    "beta_vae": ("BetaVAE", "beta_vae"),
    "factor_vae": ("FactorVAE", "factor_vae"),
    "mig": ("MIG", "mig"),
    "disentanglement": ("DCI disentanglement", "dci"),
    "completeness": ("DCI completeness", "dci"),
    "informativeness": ("DCI informativeness", "dci"),
    "modularity": ("Modularity", "modularity"),
    "explicitness": ("Explicitness", "explicitness"),
    "sap": ("SAP", "sap"),
    "mcc": ("MCC (Spearman)", "mcc_spearman"),
}


@dataclass(frozen=True)
class Disentanglement:
    """All metrics with their intervals, and the settings they were computed with.

    Attributes:
        beta_vae: :func:`beta_vae_score`.
        factor_vae: :func:`factor_vae_score`.
        mig: :func:`mig`.
        disentanglement: D of :func:`dci`.
        completeness: C of :func:`dci`.
        informativeness: I of :func:`dci`.
        modularity: :func:`modularity`.
        explicitness: :func:`explicitness`.
        sap: :func:`sap`, with every factor read as classes.
        mcc: :func:`mcc` of ranks.
        booster: Booster of DCI.
        solver: Solver of SAP.
        n_train: Number of points or examples that were fitted.
        n_test: Number of points or examples that were scored.
        n_encoded: Number of grid points that were encoded.
        random_state: Seed of all draws.
        warnings: Reasons not to rely on some of the metrics here.
    """

    beta_vae: Interval
    factor_vae: Interval
    mig: Interval
    disentanglement: Interval
    completeness: Interval
    informativeness: Interval
    modularity: Interval
    explicitness: Interval
    sap: Interval
    mcc: Interval
    booster: str
    solver: str
    n_train: int
    n_test: int
    n_encoded: int
    random_state: int
    warnings: tuple[str, ...] = ()

    @property
    def scores(self) -> dict[str, Interval]:
        """The metrics by name."""
        return {name: getattr(self, name) for name in METRICS}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"warnings": list(self.warnings)}

    def __str__(self) -> str:
        rows = [f"{METRICS[name][0]:<20}  {score}" for name, score in self.scores.items()]
        rows.append(
            f"booster {self.booster!r}, solver {self.solver!r}, {self.n_train} training points, "
            f"{self.n_test} test points, {self.n_encoded} encoded, random_state "
            f"{self.random_state}"
        )
        return "\n".join([*rows, *(f"warning: {text}" for text in self.warnings)])


def evaluate_disentanglement(
    model: Any,
    world: GridWorld,
    *,
    booster: str = "presorted",
    solver: str = "exact",
    n_train: int = 10_000,
    n_test: int = 5_000,
    batch_size: int = 64,
    n_bins: int = 20,
    threshold: float = 0.05,
    confidence_level: float = 0.95,
    n_resamples: int = 200,
    random_state: int = 0,
    guarantee: Guarantee | None = None,
) -> Disentanglement:
    """Draw points from a world, encode each once, and compute every metric.

    The defaults are the constants of the published protocols. BetaVAE and FactorVAE draw their own
    points; the other metrics share one sample of ``n_train + n_test`` points, of which MIG,
    modularity and MCC use the first ``n_train``.

    Intervals are percentile intervals of the bootstrap, as in :func:`bootstrap`: the points that a
    metric averages over are resampled (test points or examples if a classifier was fitted), and no
    classifier is fitted again. D and C of DCI are averages over training points. So the intervals
    are for this fit and this sample, not for training the model or a booster again. A resample is
    less even than the sample, so if D or C is close to 0 its interval is above it.

    Args:
        model: Anything with ``transform(x)``, or a callable, from observations to codes (N, C).
        world: A world on a grid of factors, for example dSprites; see :class:`GridWorld`.
        booster: Booster of DCI: ``"sklearn"``, the reference, or ``"presorted"``, the same
            algorithm many times faster; see :func:`dci`.
        solver: Solver of SAP: ``"sklearn"``, the reference, or ``"exact"``, the exact minimum of
            the same objective, many times faster; see :func:`sap`.
        n_train: Number of points or examples to fit.
        n_test: Number of points or examples to score.
        batch_size: Number of pairs or points in an example of BetaVAE and FactorVAE.
        n_bins: Number of bins of a code for mutual information.
        threshold: Minimum standard deviation of a code that votes in FactorVAE.
        confidence_level: Confidence level of the intervals, in (0, 1).
        n_resamples: Number of resamples of the bootstrap.
        random_state: Seed of all draws, an integer >= 0.
        guarantee: The guarantee proven for the codes, by default the model's ``guarantee_`` if it
            has one; warn of metrics that are not invariant to what it leaves open.

    Example:
        >>> import torch
        >>> class Square:  # or a world of `isolatent.datasets`
        ...     names, sizes, categorical = ("row", "column"), (4, 4), (False, False)
        ...     def __len__(self): return 16
        ...     def sample_factors(self, count, generator):
        ...         return torch.randint(4, (count, 2), generator=generator)
        ...     def index_of(self, factors): return factors @ torch.tensor([4, 1])
        ...     def factors_at(self, index): return torch.stack([index // 4, index % 4], 1)
        ...     def observe(self, factors): return factors.float()
        >>> result = evaluate_disentanglement(
        ...     lambda x: 1 - 2 * x, Square(), n_train=300, n_test=150
        ... )
        >>> print(result.factor_vae, result.completeness, result.n_encoded)
        1.000 [1.000, 1.000] 1.000 [1.000, 1.000] 16
    """
    check_one_of("booster", booster, BOOSTERS)
    check_one_of("solver", solver, SOLVERS)
    for name, count in (
        ("n_train", n_train),
        ("n_test", n_test),
        ("batch_size", batch_size),
        ("n_resamples", n_resamples),
    ):
        check_integer(name, count, at_least=2)
    check_integer("n_bins", n_bins, at_least=1)
    check_real("threshold", threshold, at_least=0)
    check_real("confidence_level", confidence_level, above=0, below=1)
    proven = getattr(model, "guarantee_", None) if guarantee is None else guarantee
    objections = tuple(_objections(proven))
    grid = EncodedGrid(model, world, random_state)
    pairs, batches = (
        [sample_examples(grid, n, batch_size, pairs=kind) for n in (n_train, n_test)]
        for kind in (True, False)
    )
    index = grid.sample_points(n_train + n_test)
    grid.encode(index, *(examples.points for examples in (*pairs, *batches)))
    points = _split(grid, index, n_train)
    info = mutual_information(points.train, n_bins)
    train = points.train
    statistics = dci_statistics(points, booster, random_state)[1] | {
        "beta_vae": beta_vae_statistic(grid, *pairs),
        "factor_vae": factor_vae_statistic(grid, train.codes, *batches, threshold=threshold),
        "mig": mig_statistic(info),
        "modularity": modularity_statistic(info),
        "explicitness": explicitness_statistic(points),
        "sap": sap_statistic(points, solver),
        "mcc": score_statistic(
            mcc, train.classes, train.codes, random_state, {"method": "spearman"}
        ),
    }
    if objections:
        warnings.warn("\n".join(objections), IsolatentWarning, stacklevel=2)
    return Disentanglement(
        **{
            name: percentile_interval(
                statistics[name],
                confidence_level=confidence_level,
                n_resamples=n_resamples,
                random_state=random_state,
            )
            for name in METRICS
        },
        booster=booster,
        solver=solver,
        n_train=n_train,
        n_test=n_test,
        n_encoded=grid.n_encoded,
        random_state=random_state,
        warnings=(*objections, *_remarks(world)),
    )


def _split(grid: EncodedGrid, index: Indices, n_train: int) -> Split:
    """Return the points to fit and the points to score, with the world's values as classes."""
    both = Sample(grid.factors_at(index), grid.codes_at(index), tuple(grid.world.sizes))
    train = both.take(slice(n_train))
    constant = np.flatnonzero(train.classes.max(axis=0) == train.classes.min(axis=0))
    if len(constant):
        raise ValueError(
            f"n_train must be large enough for every factor to vary, got {n_train} points in "
            f"which {grid.world.names[constant[0]]!r} is constant"
        )
    return Split(train, both.take(slice(n_train, None)))


def _objections(guarantee: Guarantee | None) -> Iterator[str]:
    """Yield a warning for each metric that is not invariant to what the guarantee leaves open."""
    if guarantee is not None:
        for metric in dict.fromkeys(name for _, name in METRICS.values()):
            if text := objection(metric, guarantee):
                yield text


def _remarks(world: GridWorld) -> Iterator[str]:
    """Yield caveats that depend on the world."""
    unordered = [n for n, flag in zip(world.names, world.categorical, strict=True) if flag]
    if unordered:
        yield (
            f"mcc ranks the values of {', '.join(unordered)}, which have no order; it is averaged "
            "over all factors as published"
        )
