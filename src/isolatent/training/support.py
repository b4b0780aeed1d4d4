"""Whether held-out pairs support a fit: information against chance, training pairs, a linear code.

The measurements need no training, and take a small part of the time of a fit.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import torch
from scipy import stats
from torch import Generator, Tensor, nn

from isolatent.contrast import ContrastiveLoss, PosteriorInfoNCE
from isolatent.pairs import Batch
from isolatent.training.batch_losses import encode_batch, encode_parts, has_bound, loss_of

__all__ = [
    "BATCHES",
    "BATCH_SIZES",
    "FEWEST_HELD_OUT",
    "MOST_SUPPORT_PAIRS",
    "NO_INFORMATION",
    "Support",
    "batch_values",
    "measure_support",
]

FEWEST_HELD_OUT = 20  # pairs, that say anything about the information which pairs share
FEW_HELD_OUT = 100  # with fewer, batches are too few for a t-test
PERMUTATIONS = 999
MOST_SUPPORT_PAIRS = 4096  # that are encoded
BATCH_SIZES, BATCHES = (8, 256), 12  # smallest and largest batch, and the fewest batches
NO_INFORMATION = 0.01  # nats; pairs that share less are treated as unrelated
CHANCE_LEVEL = 2e-3  # of the test against chance
# Nats, a share of what the linear code knows, and standard errors that a linear code must be ahead.
AHEAD, AHEAD_SHARE, AHEAD_ERRORS = 0.1, 0.06, 4.0
LITTLE_GAIN = 0.02  # nats over a linear code
OVERFITTED_SHARE = 0.75  # share of the information on training pairs that held-out pairs must have
SMALL_EXCESS = 0.3  # nats by which training pairs may know more all the same
MOST_LINEAR_COLUMNS = 1024  # of observations that get a linear code
MOST_DIRECTIONS, PAIRS_PER_DIRECTION = 256, 8  # of its input
SHRINKAGE = 1e-3
SHARPNESSES = (0.25, 0.5, 1.0)  # multiples of the Gaussian score; heavy tails need less than 1


class Support(NamedTuple):
    """What held-out pairs say about a fit, in nats for batches of ``batch_size`` pairs.

    Attributes:
        information: Bound on the information that held-out pairs share: log B - loss. For a loss
            without a bound, by how much shuffled pairs have a larger loss.
        error: Its standard error.
        chance: The same for shuffled pairs, and 0 for a loss without a bound.
        above_chance: By how much shuffled pairs have a larger loss.
        above_chance_error: Its standard error; of fewer than 100 pairs, the spread of shuffled
            pairs.
        training: The same for training pairs.
        linear: The same for canonical correlations, as many as there are codes; None where they
            were not computed.
        linear_lead: Nats by which the linear code is ahead of the codes.
        linear_error: Standard error of this difference.
        batch_size: Pairs of a batch.
        batches: Number of batches.
        p_value: Probability of so large a difference to shuffled pairs if pairs are unrelated: by a
            t-test over batches, and by permutations of fewer than 100 pairs.
    """

    information: float
    error: float
    chance: float
    above_chance: float
    above_chance_error: float
    training: float
    linear: float | None
    linear_lead: float
    linear_error: float
    batch_size: int
    batches: int
    p_value: float | None = None  # None in models that were saved without it

    @property
    def is_null(self) -> bool:
        """Whether pairs share no more than chance allows."""
        p_value = self.p_value
        if p_value is None:
            p_value = _t_test(self.above_chance, self.above_chance_error, self.batches)
        # Also where they are NaN.
        return not (self.above_chance > NO_INFORMATION and p_value <= CHANCE_LEVEL)

    @property
    def reason(self) -> str:
        """Why the claim of a fit is not supported; "" if nothing speaks against it."""
        if self.is_null:
            return (
                f"pairs were found to share only {self.information:.3f} ± {self.error:.3f} nats, "
                f"shuffled ones {max(0.0, self.chance):.3f}: nothing to find. Either they are "
                "unrelated, or the encoder did not learn what they share; do not trust the codes"
            )
        if self.information < NO_INFORMATION:
            return (
                f"pairs were found to share only {self.information:.3f} ± {self.error:.3f} nats, "
                "though shuffled ones have a larger loss: the encoder is not trained, or overfitted"
            )
        ahead = max(AHEAD, AHEAD_ERRORS * self.linear_error)
        if self.linear is not None and self.linear_lead > max(ahead, AHEAD_SHARE * self.linear):
            return (
                f"a linear code of as many columns tells {self.linear:.2f} nats about held-out "
                f"pairs, and the codes {self.information:.2f} ± {self.error:.2f}: what is declared "
                "(space, number of codes, dynamics) or the training kept the encoder from what "
                "a linear map finds"
            )
        excess = self.training - self.information
        if excess > SMALL_EXCESS and self.information < OVERFITTED_SHARE * self.training:
            return (
                f"the encoder overfitted: training pairs share {self.training:.2f} nats, held-out "
                f"pairs {self.information:.2f} ± {self.error:.2f}; give more pairs"
            )
        return ""

    @property
    def _is_behind(self) -> bool:
        return self.linear_lead > max(LITTLE_GAIN, 2 * self.linear_error)

    def __str__(self) -> str:
        linear = "" if self.linear is None else f", a linear code {self.linear:.2f}"
        if self.linear is not None and self.linear_lead > -LITTLE_GAIN - 2 * self.linear_error:
            found = "is behind it" if self._is_behind else "gains next to nothing over it"
            linear += f", so the network {found}"
        return (
            f"held-out pairs share {self.information:.2f} ± {self.error:.2f} nats, shuffled ones "
            f"{max(0.0, self.chance):.2f}, training pairs {self.training:.2f}{linear} (batches of "
            f"{self.batch_size})"
        )


def measure_support(
    network: nn.Module,
    loss: nn.Module,
    held_out: Batch,
    fitting: Batch,
    n_components: int,
) -> Support | None:
    """Return what held-out pairs say about a fit; None if there are too few to say anything.

    Args:
        network: The network whose outputs the loss takes.
        loss: The trained loss.
        held_out: Pairs that were not trained with.
        fitting: Pairs that were trained with.
        n_components: Number of codes.

    Example:
        >>> from isolatent.contrast import InfoNCE, Lp
        >>> x = torch.randn(2, 1024, 2, generator=Generator().manual_seed(0))
        >>> loss, encoder = InfoNCE(Lp(p=2, weights=1.0)), nn.Linear(2, 2)
        >>> measure_support(encoder, loss, Batch(*x), Batch(*x), 2).is_null
        True
        >>> pairs = Batch(x[0], x[0] + 0.5 * x[1])
        >>> support = measure_support(encoder, loss, pairs, pairs, 2)
        >>> support.is_null, support.linear > 0.5
        (False, True)
    """
    if len(held_out) < FEWEST_HELD_OUT:
        return None
    held_out, fitting = (
        _shuffled(pairs.rows(slice(MOST_SUPPORT_PAIRS))) for pairs in (held_out, fitting)
    )
    low, high = BATCH_SIZES
    size = max(low, min(high, len(held_out) // BATCHES))
    bounded = has_bound(loss, held_out)
    codes = encode_batch(partial(encode_parts, network), held_out)
    values = batch_values(loss, codes, size)
    seen = batch_values(loss, encode_batch(partial(encode_parts, network), fitting), size)
    shuffled = None
    if codes.blocks is None:  # else the rows of a batch belong to several recordings
        shuffled = batch_values(loss, _with_positives(codes, codes.x_pos.roll(1, 0)), size)
    if shuffled is None and not bounded:
        return None
    known, error = _mean_and_error(values)
    chance, above, above_error = 0.0, known, error
    if shuffled is not None:
        chance = float(shuffled.mean())
        above, above_error = _mean_and_error(values - shuffled)
    p_value = _t_test(above, above_error, len(values))
    if shuffled is not None and len(codes) < FEW_HELD_OUT:
        above, above_error, p_value = _permutation_test(loss, codes)
    trained = float(seen.mean())
    if not bounded:
        assert shuffled is not None
        known, error, chance, trained = above, above_error, 0.0, above + trained - known
    linear, lead, lead_error = None, 0.0, 0.0
    if bounded and _is_plain(held_out, loss):
        symmetric = getattr(loss, "symmetric", True)
        found = _linear_values(fitting, held_out, n_components, size, symmetric)
        if found is not None:
            linear = float(found.mean())
            lead, lead_error = _mean_and_error(found - values)
    return Support(
        *(known, error, chance, above, above_error, trained, linear, lead, lead_error),
        *(size, len(values), p_value),
    )


def _t_test(mean: float, error: float, batches: int) -> float:
    """Return the probability of so large a mean over batches if the expected one is zero."""
    ratio = mean / error if error > 0 else math.copysign(math.inf, mean)
    return float(stats.t.sf(ratio, max(1, batches - 1)))


def _permutation_test(loss: nn.Module, codes: Batch) -> tuple[float, float, float]:
    """Compare the loss of pairs with that of the same pairs, shuffled in many ways.

    Unrelated pairs are exchangeable, so the test is exact for any number of them.

    Returns:
        By how much the loss is less than that of shuffled pairs, their spread, and the probability
        of so low a loss among unrelated pairs.
    """
    generator = Generator().manual_seed(0)
    value = float(batch_values(loss, codes, len(codes)))
    shuffled = torch.empty(PERMUTATIONS, dtype=torch.float64)
    for k in range(PERMUTATIONS):
        order = torch.randperm(len(codes), generator=generator)
        shuffled[k] = batch_values(loss, _with_positives(codes, codes.x_pos[order]), len(codes))
    as_high = int((shuffled >= value).sum())
    p_value = (1 + as_high) / (1 + PERMUTATIONS)
    return value - float(shuffled.mean()), float(shuffled.std()), p_value


def _with_positives(codes: Batch, positives: Tensor) -> Batch:
    return Batch(codes.x, positives, codes.negatives, codes.tags, codes.unpaired)


def _is_plain(pairs: Batch, loss: nn.Module) -> bool:
    """Return whether pairs are of one kind of rows, and the loss compares them with each other."""
    extra = (pairs.negatives, pairs.tags, pairs.unpaired, pairs.blocks)
    plain = all(part is None for part in extra)
    return plain and isinstance(loss, ContrastiveLoss) and not isinstance(loss, PosteriorInfoNCE)


def _shuffled(pairs: Batch) -> Batch:
    """Return pairs in random order: neighbours in a recording are alike, and no negatives."""
    return pairs.rows(torch.randperm(len(pairs), generator=Generator().manual_seed(0)))


def _mean_and_error(values: Tensor) -> tuple[float, float]:
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return float(values.mean()), error


@torch.no_grad()
def batch_values(loss: nn.Module, codes: Batch, size: int) -> Tensor:
    """Return log B - loss of each whole batch, or -loss where that is no bound."""
    values = []
    for start in range(0, max(1, len(codes) - size + 1), size):
        part = codes.rows(slice(start, start + size))
        offset = math.log(part.n_candidates) if has_bound(loss, part) else 0.0
        values.append(offset - float(loss_of(loss, part)))
    return torch.tensor(values, dtype=torch.float64)


@torch.no_grad()
def _linear_values(
    fitting: Batch, held_out: Batch, n: int, size: int, symmetric: bool
) -> Tensor | None:
    """Return log B - InfoNCE of canonical correlations, on each batch of held-out pairs.

    Scores are the logarithm of the ratio of densities of jointly Gaussian pairs, made less sharp if
    that gains on the pairs to fit with. Anchors and positives have a projection each, so that
    linear dynamics count as found.
    """
    x, x_pos = (part.flatten(1).double() for part in (fitting.x, fitting.x_pos))
    most = min(x.shape[1], MOST_DIRECTIONS, len(x) // PAIRS_PER_DIRECTION)
    if most < 1 or x.shape[1] > MOST_LINEAR_COLUMNS:
        return None
    mean = torch.cat([x, x_pos]).mean(0)
    scale = torch.cat([x, x_pos]).std(0).clamp(min=1e-12)
    x, x_pos = (x - mean) / scale, (x_pos - mean) / scale
    basis = torch.eye(most, dtype=torch.float64)
    if most < x.shape[1]:
        basis = torch.linalg.eigh(x.T @ x + x_pos.T @ x_pos)[1][:, -most:]  # principal directions
    x, x_pos = x @ basis, x_pos @ basis
    center, center_pos = x.mean(0), x_pos.mean(0)
    x, x_pos = x - center, x_pos - center_pos
    first, second = _whitening(x), _whitening(x_pos)
    u, correlations, v = torch.linalg.svd(first @ (x.T @ x_pos / len(x)) @ second)
    count = min(n, most)
    rho = correlations[:count].clamp(max=1 - 1e-6)
    project, project_pos = first @ u[:, :count], second @ v[:count].T

    def codes(pairs: Batch) -> tuple[Tensor, Tensor]:
        parts = (pairs.x, pairs.x_pos)
        a, b = (((part.flatten(1).double() - mean) / scale) @ basis for part in parts)
        return (a - center) @ project, (b - center_pos) @ project_pos

    known = codes(fitting)
    sharpness = max(
        SHARPNESSES,
        key=lambda sharp: float(_gaussian_values(*known, rho, size, sharp, symmetric).mean()),
    )
    return _gaussian_values(*codes(held_out), rho, size, sharpness, symmetric)


def _whitening(x: Tensor) -> Tensor:
    """Return the inverse square root of a covariance matrix."""
    values, vectors = torch.linalg.eigh(x.T @ x / len(x))
    values = values.clamp(min=SHRINKAGE * float(values[-1]))
    return (vectors * values.rsqrt()) @ vectors.T


def _gaussian_values(
    h: Tensor, h_pos: Tensor, rho: Tensor, size: int, sharpness: float, symmetric: bool
) -> Tensor:
    values = []
    for start in range(0, max(1, len(h) - size + 1), size):
        a, b = h[start : start + size], h_pos[start : start + size]
        spread = 1 - rho**2
        # log p(b | a) - log p(b), up to a constant, for each anchor (row) and positive (column).
        scores = -(((rho * a)[:, None] - b[None]).square() / spread - b.square()[None]).sum(2) * (
            0.5 * sharpness
        )
        value = scores.diagonal() - scores.logsumexp(1)
        if symmetric:
            value = 0.5 * (value + scores.diagonal() - scores.logsumexp(0))
        values.append(math.log(len(a)) + float(value.mean()))
    return torch.tensor(values, dtype=torch.float64)
