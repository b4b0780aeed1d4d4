"""All disentanglement metrics of one model on one world, with intervals."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from isolatent.checks import IsolatentWarning, check_integer, check_one_of, check_real
from isolatent.evaluation.assignment import Indices
from isolatent.evaluation.disentanglement.batches import draw_groups, draw_pairs
from isolatent.evaluation.disentanglement.betavae_factorvae import beta_vae_of, factor_vae_of
from isolatent.evaluation.disentanglement.boosting import BOOSTERS
from isolatent.evaluation.disentanglement.dci import dci_of
from isolatent.evaluation.disentanglement.explicitness import explicitness_of
from isolatent.evaluation.disentanglement.grid import EncodedGrid, GridWorld
from isolatent.evaluation.disentanglement.mig import mig_of
from isolatent.evaluation.disentanglement.modularity import modularity_of
from isolatent.evaluation.disentanglement.mutual_information import information
from isolatent.evaluation.disentanglement.samples import Sample, Split
from isolatent.evaluation.disentanglement.sap import sap_of
from isolatent.evaluation.intervals import (
    Interval,
    Resampled,
    percentile_interval,
    resampled,
)
from isolatent.evaluation.scores import mcc
from isolatent.theory.guarantee import Guarantee
from isolatent.theory.invariances import objection

__all__ = ["Disentanglement", "evaluate_disentanglement"]

METRICS = {  # as on the table; the name of its invariances
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
    """Every metric with its interval, and how they were computed.

    Attributes:
        beta_vae: :func:`beta_vae_score`.
        factor_vae: :func:`factor_vae_score`.
        mig: :func:`mig`.
        disentanglement: D of :func:`dci`.
        completeness: C of :func:`dci`.
        informativeness: I of :func:`dci`.
        modularity: :func:`modularity`.
        explicitness: :func:`explicitness`.
        sap: :func:`sap`, every factor taken as classes.
        mcc: :func:`mcc` of ranks.
        booster: Which booster DCI used.
        train: Points or examples that were fitted.
        held_out: Points or examples that were scored.
        encoded: Points of the grid that were encoded.
        seed: The seed of all draws.
        warnings: What speaks against some of the metrics here.
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
    train: int
    held_out: int
    encoded: int
    seed: int
    warnings: tuple[str, ...] = ()

    @property
    def scores(self) -> dict[str, Interval]:
        """The metrics by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name in METRICS}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"warnings": list(self.warnings)}

    def __str__(self) -> str:
        rows = [f"{METRICS[name][0]:<20}  {score}" for name, score in self.scores.items()]
        rows.append(
            f"booster {self.booster!r}, {self.train} points fitted, {self.held_out} held out, "
            f"{self.encoded} encoded, seed {self.seed}"
        )
        return "\n".join([*rows, *(f"warning: {text}" for text in self.warnings)])


def evaluate_disentanglement(
    model: Any,
    world: GridWorld,
    seed: int = 0,
    *,
    booster: str = "presorted",
    train: int = 10_000,
    held_out: int = 5_000,
    batch: int = 64,
    bins: int = 20,
    threshold: float = 0.05,
    level: float = 0.95,
    resamples: int = 200,
    guarantee: Guarantee | None = None,
) -> Disentanglement:
    """Draw points from a world, encode each once, and compute every metric.

    The defaults are the constants of the published protocols. The points of BetaVAE and FactorVAE
    are drawn for them; the other metrics share one sample of ``train + held_out`` points, of which
    MIG, modularity and MCC use the first ``train``.

    Intervals are percentile intervals of the bootstrap, as in :func:`bootstrap`: the points that a
    metric is a mean over are resampled (held-out points or examples where something was fitted to
    others), and nothing is fitted anew. D and C of DCI are means over the fitted points.
    So they are about this fit and this sample, not about training the model or a booster again. A
    resample is less even than the sample, so where D or C is next to 0 their interval is above it.

    Args:
        model: Anything with ``transform(x)``, or a callable, from observations to codes (N, C).
        world: A world on a grid of factors, for example dSprites; see :class:`GridWorld`.
        seed: Seeds all draws.
        booster: ``"sklearn"``, the reference of DCI, or ``"presorted"``, the same algorithm many
            times faster; see :func:`dci`.
        train: Points or examples to fit.
        held_out: Points or examples to score.
        batch: Points in a batch of BetaVAE and FactorVAE.
        bins: Bins of a code for mutual information.
        threshold: Least standard deviation of a code that votes in FactorVAE.
        level: Confidence level of the intervals.
        resamples: Resamples of the bootstrap.
        guarantee: What is proven about the codes, by default the model's ``guarantee_`` if it has
            one. Metrics that change with what it leaves open are warned of.

    Example:
        >>> import torch
        >>> class Square:  # or a world of `isolatent.worlds`
        ...     names, sizes, categorical = ("row", "column"), (4, 4), (False, False)
        ...     def __len__(self): return 16
        ...     def sample_factors(self, count, generator):
        ...         return torch.randint(4, (count, 2), generator=generator)
        ...     def index_of(self, factors): return factors @ torch.tensor([4, 1])
        ...     def factors_at(self, index): return torch.stack([index // 4, index % 4], 1)
        ...     def observe(self, factors): return factors.float()
        >>> result = evaluate_disentanglement(
        ...     lambda x: 1 - 2 * x, Square(), train=300, held_out=150
        ... )
        >>> print(result.factor_vae, result.completeness, result.encoded)
        1.000 [1.000, 1.000] 1.000 [1.000, 1.000] 16
    """
    check_one_of("booster", booster, BOOSTERS)
    sizes = {"train": train, "held_out": held_out, "batch": batch, "resamples": resamples}
    for name, count in sizes.items():
        check_integer(name, count, at_least=2)
    check_integer("bins", bins, at_least=1)
    check_real("threshold", threshold, at_least=0)
    check_real("level", level, above=0, below=1)
    proven = getattr(model, "guarantee_", None) if guarantee is None else guarantee
    objections = tuple(_objections(proven))
    grid = EncodedGrid(model, world, seed)
    pairs = draw_pairs(grid, train, batch), draw_pairs(grid, held_out, batch)
    groups = draw_groups(grid, train, batch), draw_groups(grid, held_out, batch)
    index = grid.anywhere(train + held_out)
    drawn = [p.first for p in pairs] + [p.second for p in pairs] + [g.members for g in groups]
    grid.encode(index, *drawn)
    points = _split(grid, index, train)
    info = information(points.train, bins)
    dci, scores = dci_of(points, booster, seed)
    scores |= {
        "beta_vae": beta_vae_of(grid, *pairs),
        "factor_vae": factor_vae_of(grid, points.train.codes, *groups, threshold),
        "mig": mig_of(info),
        "modularity": modularity_of(info),
        "explicitness": explicitness_of(points),
        "sap": sap_of(points),
        "mcc": Resampled(
            *resampled(mcc, points.train.classes, points.train.codes, seed, {"method": "spearman"})
        ),
    }
    if objections:
        warnings.warn("\n".join(objections), IsolatentWarning, stacklevel=2)
    return Disentanglement(
        **{
            name: percentile_interval(scores[name], level=level, resamples=resamples, seed=seed)
            for name in METRICS
        },
        booster=dci.booster,
        train=train,
        held_out=held_out,
        encoded=grid.encoded,
        seed=seed,
        warnings=(*objections, *_remarks(world)),
    )


def _split(grid: EncodedGrid, index: Indices, train: int) -> Split:
    """Return the sample's points to fit and to score; the world's values are the classes."""
    sizes = tuple(grid.world.sizes)
    both = Sample(grid.factors_at(index), grid.codes_at(index), sizes)
    rows = np.arange(len(index))
    fitted = both.take(rows[:train])
    same = np.flatnonzero(fitted.classes.max(axis=0) == fitted.classes.min(axis=0))
    if len(same):
        raise ValueError(
            f"train must be large enough for every factor to vary, got {train} points in which "
            f"{grid.world.names[same[0]]!r} did not"
        )
    return Split(fitted, both.take(rows[train:]))


def _objections(proven: Guarantee | None) -> Iterator[str]:
    """What the guarantee has against the metrics."""
    if proven is not None:
        for metric in dict.fromkeys(of for _, of in METRICS.values()):
            if text := objection(metric, proven):
                yield text


def _remarks(world: GridWorld) -> Iterator[str]:
    """What else a reader of the figures should know."""
    unordered = [n for n, flag in zip(world.names, world.categorical, strict=True) if flag]
    if unordered:
        yield (
            f"mcc ranks the values of {', '.join(unordered)}, whose order means nothing; it is "
            "averaged over all factors as published"
        )
