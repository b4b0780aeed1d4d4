"""Controls: pairs against shuffled pairs, one run against another, and a decoder of the codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Generator, Tensor, nn

from isolatent.diagnosis.agreement import agreement
from isolatent.diagnosis.held_out import HeldOut, encode
from isolatent.diagnosis.verdict import (
    AGREEMENT,
    CANNOT_TELL,
    CONTRADICTED,
    LEAST_SCORE,
    NATS,
    SHARE,
    SUPPORTED,
    Check,
)
from isolatent.encoders import MLP, Anscombe
from isolatent.inference import encode_chunks
from isolatent.pairs import Batch
from isolatent.streams import layers_from_stream, random_stream
from isolatent.training.batch_losses import has_bound
from isolatent.training.decoder import DECODER_WIDTH, minimise_error
from isolatent.training.support import BATCH_SIZES, BATCHES, NO_INFORMATION, batch_values

__all__ = ["Decoder", "check_axes", "check_information", "check_optimum", "check_residuals"]

INFORMED = 4.0  # standard errors of information above chance
MOST_MISSED = 0.1  # nats: where pairs may share more all the same, it cannot be told
UNEXPLAINED = 0.1  # share of the observations that a decoder may miss by itself
SHARED, INDEPENDENT = 0.05, 0.05  # shares that count as further factors, or as noise
VISIBLE = 0.01  # share of noise in residuals that is more than a decoder's own error
ANSCOMBE = Anscombe()


def check_information(network: nn.Module, loss: nn.Module, pairs: HeldOut) -> Check:
    """Compare the loss of pairs with that of shuffled pairs, for codes that saw neither.

    The batches and the least information are those by which a fit is judged: at least twelve
    batches, so that their spread says something, and 0.01 nats. Less than that, but beyond its
    error, cannot be told.
    """
    testing = pairs.testing
    plain = has_bound(loss, testing) and testing.blocks is None and testing.unpaired is None
    if not plain:
        return Check("information", CANNOT_TELL, None, "no bound on information for this loss")
    h, h_pos = _shuffle(*encode(network, testing))
    least, most = BATCH_SIZES
    size = max(least, min(most, len(h) // BATCHES))
    related = batch_values(loss, Batch(h, h_pos), size)
    shuffled = batch_values(loss, Batch(h, h_pos.roll(size, 0)), size)  # of another batch
    count = len(related)
    information, control = float(related.mean()), float(shuffled.mean())
    error = float(related.std()) / math.sqrt(count)
    # An overfitted model is sure of pairs that it should not know: shuffled ones show that.
    found = information - max(0.0, control)
    p_value = float(stats.t.sf(found / error if error > 0 else 0.0, count - 1))
    words = f"{max(0.0, information):.3f} ± {error:.3f} nats"
    effect = f"held-out pairs share {words}, shuffled ones {max(0.0, control):.3f}"
    is_clear = found > INFORMED * error
    if is_clear and found > NO_INFORMATION:
        status, harm = SUPPORTED, None
    else:
        unsure = is_clear or found + 2 * error > MOST_MISSED
        status, harm = (CANNOT_TELL, None) if unsure else (CONTRADICTED, 1.0)
    return Check("information", status, information, effect, p_value, harm, error, control, NATS)


def _shuffle(h: Tensor, h_pos: Tensor) -> tuple[Tensor, Tensor]:
    order = torch.randperm(len(h), generator=Generator().manual_seed(0))
    return h[order], h_pos[order]


def check_optimum(codes: np.ndarray[Any, Any], others: np.ndarray[Any, Any], metric: str) -> Check:
    """Compare the codes of two runs on pairs that the second one did not see.

    If each run has a score s against the factors, and their errors are independent, they agree up
    to s²: so the root of their agreement estimates s.
    """
    agreed = agreement(codes, others, metric)
    score = math.sqrt(max(0.0, agreed))
    effect = f"a second run agrees with the codes up to {agreed:.3f} ({metric})"
    status = SUPPORTED if score >= LEAST_SCORE else CONTRADICTED
    return Check("optimum", status, agreed, effect, None, 1 - score, unit=AGREEMENT)


def check_axes(codes: np.ndarray[Any, Any], others: np.ndarray[Any, Any]) -> Check:
    """Tell whether another run finds the same axes in codes that agree up to a linear map."""
    linear, single = agreement(codes, others), agreement(codes, others, "mcc")
    effect = f"single codes of a second run agree up to {single:.3f} (mcc)"
    if linear < LEAST_SCORE**2:
        return Check("axes", CANNOT_TELL, single, effect, unit=AGREEMENT)
    score = math.sqrt(single)
    status = SUPPORTED if score >= LEAST_SCORE else CONTRADICTED
    return Check("axes", status, single, effect, None, 1 - score, unit=AGREEMENT)


@dataclass(frozen=True)
class Decoder:
    """A map from codes back to observations, and what it leaves unexplained.

    Attributes:
        network: Standardised codes to standardised observations.
        center: Mean of the codes.
        spread: Standard deviation of the codes.
        mean: Mean of the observations.
        scale: Standard deviation of the observations.
        residuals: Standardised residuals (N, m) of held-out anchors.
        residuals_pos: Those of their positives.
        unexplained: Share of the variance of the observations that the codes do not explain.
        dimensions: Dimensions d of the surface on which the codes lie.
        counts: Whether observations are counts: all of this is about their square roots then, see
            :class:`isolatent.encoders.Anscombe`, since noise is equally large everywhere in these.
    """

    network: nn.Module
    center: Tensor
    spread: Tensor
    mean: Tensor
    scale: Tensor
    residuals: Tensor
    residuals_pos: Tensor
    unexplained: float
    dimensions: int
    counts: bool = False

    @property
    def shows_noise(self) -> bool:
        """Whether there are more columns than dimensions, so that noise leaves the surface."""
        return len(self.mean) > self.dimensions

    @property
    def noise_factor(self) -> float:
        """How much larger noise of all directions is than the part that residuals show."""
        columns = len(self.mean)
        return math.sqrt(columns / (columns - self.dimensions)) if self.shows_noise else 1.0

    @classmethod
    def fit(
        cls, encoder: nn.Module, pairs: HeldOut, head: str, seed: int, *, counts: bool = False
    ) -> Decoder:
        """Fit a decoder to the codes of an encoder, whose head says where they live."""
        parts = (pairs.fitting, pairs.testing)
        fitting, testing = (
            [
                (codes.float(), observed.flatten(1).float())
                for codes, observed in zip(encode(encoder, part), (part.x, part.x_pos), strict=True)
            ]
            for part in parts
        )
        h, seen = (torch.cat(halves) for halves in zip(*fitting, strict=True))
        dimensions = h.shape[1] - (head == "sphere")
        return cls.fit_codes(h, seen, testing, dimensions, seed, counts=counts)

    @classmethod
    def fit_codes(
        cls,
        h: Tensor,
        seen: Tensor,
        testing: Sequence[tuple[Tensor, Tensor]],
        dimensions: int,
        seed: int,
        *,
        counts: bool = False,
    ) -> Decoder:
        """Fit a decoder to codes (N, n) of observations (N, m).

        Args:
            h: The codes.
            seen: The observations.
            testing: Codes and observations of held-out anchors, and of their positives.
            dimensions: Dimensions of the surface on which the codes lie.
            seed: Seed of the training.
            counts: Whether observations are counts.
        """
        if counts:
            seen = ANSCOMBE(seen)
            testing = [(codes, ANSCOMBE(observed)) for codes, observed in testing]
        center, spread = h.mean(0), h.std(0).clamp(min=1e-9)
        mean, scale = seen.mean(0), seen.std(0).clamp(min=1e-9)
        with random_stream(Generator().manual_seed(seed)), layers_from_stream():
            network = MLP(h.shape[1], seen.shape[1], (DECODER_WIDTH, DECODER_WIDTH))
            minimise_error(network, (h - center) / spread, (seen - mean) / scale, seed)
        r, r_pos = (
            (observed - mean) / scale - encode_chunks(network, (codes - center) / spread)
            for codes, observed in testing
        )
        missed = torch.cat([r, r_pos]).square().mean() / _variance(testing[0][1], mean, scale)
        return cls(
            *(network, center, spread, mean, scale, r, r_pos, float(missed), dimensions),
            counts=counts,
        )

    def observe(self, codes: Tensor, generator: Generator, noise: bool) -> Tensor:
        """Return observations (N, m) of codes (N, n).

        Args:
            codes: The codes.
            generator: Source of randomness.
            noise: Whether to add residuals, drawn at random.
        """
        x = encode_chunks(self.network, (codes.float() - self.center) / self.spread)
        if noise:
            rows = torch.randint(len(self.residuals), (len(x),), generator=generator)
            x = x + self.noise_factor * self.residuals[rows]
        x = self.mean + self.scale * x
        return ANSCOMBE.inverse(x) if self.counts else x


def _variance(x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    return ((x - mean) / scale).square().mean()


def check_residuals(decoder: Decoder) -> list[Check]:
    """Tell further factors, which pairs share, from noise, which they do not.

    Only the part of the noise that leaves the surface of the codes shows in residuals, so noise is
    taken to be as large along the surface. With as many columns as dimensions none shows. That the
    mixing is injective cannot be told: codes are functions of the observations, so a decoder
    explains those of a fold as well.

    Returns:
        Checks of ``n_components``, ``injective`` and ``noise``.
    """
    r, r_pos = decoder.residuals.double(), decoder.residuals_pos.double()
    products = (r * r_pos).mean(1)
    total = float(torch.cat([r, r_pos]).square().mean())
    correlation = float(products.mean()) / total if total > 0 else 0.0
    error = float(products.std()) / math.sqrt(len(products)) / max(total, 1e-12)
    missed = decoder.unexplained
    shared, alone = missed * max(0.0, correlation), missed * min(1.0, 1 - correlation)
    p_value = float(stats.norm.sf(correlation / error)) if error > 0 else None
    explained = f"codes explain {1 - missed:.1%} of the observations"
    folded = f"{explained}, as they would if different factors showed the same"
    checks = [Check("injective", CANNOT_TELL, missed, folded, unit=SHARE)]
    if missed > UNEXPLAINED and shared > SHARED and correlation > INFORMED * error:
        many = f"{explained}; pairs share {shared / missed:.0%} of the rest"
        unsure = Check("noise", CANNOT_TELL, alone, "further factors hide it", unit=SHARE)
        checks.insert(
            0, Check("n_components", CONTRADICTED, shared, many, p_value, shared, unit=SHARE)
        )
        return [*checks, unsure]
    checks.insert(0, Check("n_components", SUPPORTED, shared, explained, unit=SHARE))
    noise = alone * decoder.noise_factor**2
    effect = f"about {noise:.1%} of the variance of the observations is noise"
    if alone > VISIBLE and noise > INDEPENDENT:
        return [*checks, Check("noise", CONTRADICTED, noise, effect, unit=SHARE)]
    if not decoder.shows_noise:
        effect = "as many columns as dimensions of the codes: noise looks like steps"
        return [*checks, Check("noise", CANNOT_TELL, noise, effect, unit=SHARE)]
    return [*checks, Check("noise", SUPPORTED, noise, effect, unit=SHARE)]
