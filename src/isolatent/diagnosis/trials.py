"""Short runs with different beliefs on the same pairs, compared by held-out information."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from sklearn.base import clone
from torch import Generator

from isolatent.checks import IsolatentWarning
from isolatent.encoders import Whitening
from isolatent.pairs import ArrayPairs, Batch, FinitePairSource, PairSource
from isolatent.theory import Beliefs, derive_guarantee
from isolatent.training import ContrastiveICA, Recipe
from isolatent.training.axis_search import without_axes
from isolatent.training.batch_losses import encode_batch, encode_parts, has_bound
from isolatent.training.support import batch_values

__all__ = [
    "Candidate",
    "Lead",
    "Shared",
    "TrialRun",
    "describe",
    "lead_of",
    "prepare",
    "run_trial",
    "shuffled_rows",
    "train_trial",
    "values_of",
    "with_codes",
]

VALUE_BATCH = 512  # held-out pairs of one value
FEWEST_VALUES = 12  # batches, of fewer pairs if need be
MOST_PREPARED = 65_536  # pairs that are whitened once for all runs
TRIAL_BATCH = 512
TRIAL_BATCHES_PER_EPOCH = 8
WARMUP_SHARE = 0.15
# What a claim leaves open, the least first.
CLAIMS = (
    "signed permutation",
    "signed permutation and scaling",
    "block-orthogonal map",
    "orthogonal map",
    "affine map",
)


@dataclass(frozen=True)
class Candidate:
    """Beliefs to compare with others.

    Attributes:
        space: Space of the factors; None declares nothing.
        conditional: How positives lie around their anchors; None for the default of the space.
        n_components: Number of codes.
        p: Exponent of ``conditional="gennorm"``.
        marginal: Marginal of the factors; None for the default of the space.
        relax: Relaxations, as the estimator takes them.
        lag: Lag of a recording, the shortest and the longest; None for pairs.

    Example:
        >>> sphere = Candidate("sphere", "vmf", 4)
        >>> sphere.n_factors, sphere.equivalence, str(sphere)
        (3, 'orthogonal map', 'sphere, vmf, 4 codes (3 factors)')
    """

    space: str | None
    conditional: str | None
    n_components: int
    p: float | None = None
    marginal: str | None = None
    relax: str | tuple[str, ...] = ()
    lag: tuple[int, int] | None = None

    @property
    def n_factors(self) -> int:
        """Number of factors: on a sphere one less than there are codes."""
        return self.n_components - (self.space == "sphere")

    @property
    def beliefs(self) -> Beliefs:
        """The beliefs, complete."""
        if self.space is None:
            return Beliefs("euclidean", "unknown")
        return Beliefs(self.space, self.marginal, self.conditional, self.p)

    @property
    def equivalence(self) -> str | None:
        """What the theorem leaves open, without relaxations; None if there is none."""
        return derive_guarantee(self.beliefs, n_components=self.n_components).equivalence

    @property
    def preference(self) -> tuple[int, int, int, bool]:
        """Sort key among candidates that cannot be told apart.

        Fewer factors first, then a larger claim, then the space that says more of the factors.
        """
        claim = self.equivalence
        rank = CLAIMS.index(claim) if claim in CLAIMS else len(CLAIMS)
        place = ("sphere", "box").index(self.space) if self.space in ("sphere", "box") else 2
        return (self.n_factors, rank, place, self.relax != ())

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of :class:`isolatent.ContrastiveICA`."""
        known: dict[str, Any] = {"n_components": self.n_components}
        for name in ("space", "conditional", "p", "marginal", "lag"):
            if getattr(self, name) is not None:
                known[name] = getattr(self, name)
        return known | ({"relax": self.relax} if self.relax != () or self.space is None else {})

    def __str__(self) -> str:
        words = ["nothing declared"] if self.space is None else [self.space]
        if self.conditional is not None:
            exponent = "" if self.p is None else f" p={self.p:g}"
            words.append(f"{self.conditional}{exponent}")
        if self.marginal is not None:
            words.append(f"{self.marginal} marginal")
        codes = f"{self.n_components} codes" if self.n_components > 1 else "1 code"
        words.append(f"{codes} ({self.n_factors} factors)" if self.space == "sphere" else codes)
        if self.relax != ():
            relaxed = [self.relax] if isinstance(self.relax, str) else self.relax
            words.append(f"relax {' '.join(relaxed)}")
        if self.lag is not None:
            first, last = self.lag
            words.append(f"lag {last}" if first == last else f"lags {first} to {last}")
        return ", ".join(words)


@dataclass(frozen=True)
class Shared:
    """What all runs share: pairs to train with, and pairs to test with, both whitened once.

    Attributes:
        source: Source of the pairs to train with.
        testing: Pairs that no run is trained with.
        n_features: Columns before the whitening.
        template: An estimator with the parameters that all runs share.
    """

    source: PairSource
    testing: Batch
    n_features: int
    template: ContrastiveICA

    @property
    def batch_size(self) -> int:
        """Pairs of a batch of training."""
        if isinstance(self.source, FinitePairSource):
            return max(16, min(TRIAL_BATCH, len(self.source) // TRIAL_BATCHES_PER_EPOCH))
        return TRIAL_BATCH

    @property
    def value_batch(self) -> int:
        """Held-out pairs of one value of the loss, the same for all runs."""
        return max(8, min(VALUE_BATCH, len(self.testing) // FEWEST_VALUES))

    @property
    def most(self) -> float:
        """The largest information that a run can show, in nats."""
        return math.log(self.value_batch)


def prepare(
    template: ContrastiveICA, source: PairSource, testing: Batch, n_components: int, seed: int
) -> Shared:
    """Whiten pairs once for all runs, keeping the directions that pairs share.

    Images, endless sources, sources whose pairs carry more than two observations, and recordings
    with several lags are left as they are.

    Args:
        template: An estimator with the parameters that all runs share.
        source: Source of the pairs to train with.
        testing: Pairs that no run is trained with.
        n_components: Largest number of codes.
        seed: Seed of the choice of pairs, if there are very many.
    """
    columns = testing.x[:1].numel()
    extra = (testing.negatives, testing.tags, testing.unpaired, testing.blocks)
    plain = testing.x.ndim == 2 and all(part is None for part in extra)
    ordered = getattr(source, "ordered", True)
    shown = shuffled_rows(testing, seed)
    if not plain or not isinstance(source, FinitePairSource) or not ordered or template.counts:
        return Shared(source, shown, columns, template)
    if template.encoder != "mlp":
        return Shared(source, shown, columns, template)
    count = min(len(source), MOST_PREPARED)
    pairs = Batch.of(source.sample(count, Generator().manual_seed(seed)))
    whitening = Whitening(columns).to(pairs.x.dtype)
    if columns > n_components:
        half = len(pairs) // 2
        parts = [(pairs.rows(rows).x, pairs.rows(rows).x_pos) for rows in _halves(half)]
        whitening.fit_pairs([parts[0]], [parts[1]], n_components, len(pairs))
    else:
        whitening.fit([pairs.x])
    x, x_pos, tested, tested_pos = (
        whitening(part).float() for part in (pairs.x, pairs.x_pos, shown.x, shown.x_pos)
    )
    prepared = ArrayPairs(x.numpy(), x_pos.numpy())
    return Shared(prepared, Batch(tested, tested_pos), columns, template)


def _halves(half: int) -> tuple[slice, slice]:
    return slice(0, half), slice(half, None)


def shuffled_rows(pairs: Batch, seed: int) -> Batch:
    """Return pairs in random order: neighbours in a recording are alike, and no negatives."""
    order = np.random.default_rng(seed).permutation(len(pairs))
    return pairs.rows(torch.from_numpy(order))


class TrialRun(NamedTuple):
    """A run that has ended.

    Attributes:
        values: Information on each batch of held-out pairs, in nats.
        codes: Codes (N, n) of the held-out anchors.
    """

    values: list[float]
    codes: np.ndarray[Any, Any]


def run_trial(candidate: Candidate, shared: Shared, steps: int, seed: int) -> list[float] | None:
    """Train a candidate for some steps; return its information on each batch of held-out pairs.

    None if it diverged. The arguments are those of :func:`train_trial`.
    """
    run = train_trial(candidate, shared, steps, seed)
    return None if run is None else run.values


def train_trial(candidate: Candidate, shared: Shared, steps: int, seed: int) -> TrialRun | None:
    """Train a candidate for some steps, and measure it on held-out pairs; None if it diverged.

    InfoNCE is minimised as declared, without a saturated loss in its place, so that runs can be
    compared.

    Args:
        candidate: The beliefs.
        shared: The pairs.
        steps: Steps of the run.
        seed: Its seed.
    """
    model: ContrastiveICA = clone(shared.template)
    recipe = Recipe(
        max_steps=steps,
        batch_size=shared.batch_size,
        warmup=max(1, min(100, round(WARMUP_SHARE * steps))),
        saturation=0.0,
    )
    given = {name: value for name, value in candidate.parameters.items() if name != "lag"}
    model.set_params(
        **{"space": None, "conditional": None, "p": None, "marginal": None, "relax": "default"}
        | given,
        axes=None,
        window=1,  # windows are stacked already
        recipe=recipe,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsolatentWarning)
        try:
            model.fit(shared.source)
        except FloatingPointError:
            return None
    return values_of(model, shared.testing, shared.value_batch)


def values_of(model: ContrastiveICA, testing: Batch, size: int) -> TrialRun:
    """Return what a fitted model knows about held-out pairs.

    Args:
        model: The model, whose loss is an InfoNCE.
        testing: The pairs, in random order.
        size: Pairs of a batch.
    """
    network, loss = without_axes(model.encoder_), model.loss_
    assert has_bound(loss, testing)
    codes = encode_batch(partial(encode_parts, network), testing)
    values = [float(value) for value in batch_values(loss, codes, size)]
    return TrialRun(values, codes.x.cpu().numpy())


class Lead(NamedTuple):
    """By how much one run is ahead of another on the same held-out pairs, in nats."""

    mean: float
    error: float
    batches: int

    @property
    def p_value(self) -> float:
        """The one-sided p-value of a t-test over batches: whether the run is ahead at all."""
        return float(stats.t.sf(self.mean / self.error, self.batches - 1))

    def exceeds(self, least: float, errors: float) -> bool:
        """Return whether the lead is larger than some nats and some standard errors."""
        return self.mean > max(least, errors * self.error)


def lead_of(values: Sequence[float], others: Sequence[float]) -> Lead:
    """Return the lead of one run over another, batch by batch.

    Example:
        >>> lead_of([1.0, 1.2], [0.9, 0.9]).mean
        0.2
    """
    difference = np.asarray(values) - np.asarray(others)
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference))
    return Lead(round(float(difference.mean()), 12), error, len(difference))


def with_codes(candidate: Candidate, n_components: int) -> Candidate:
    """Return a candidate with another number of codes."""
    return replace(candidate, n_components=n_components)


def describe(parameters: Mapping[str, Any]) -> str:
    """Return parameters as arguments of the estimator.

    Example:
        >>> describe({"n_components": 3, "space": "sphere"})
        "ContrastiveICA(n_components=3, space='sphere')"
    """
    return f"ContrastiveICA({', '.join(f'{k}={v!r}' for k, v in parameters.items())})"
