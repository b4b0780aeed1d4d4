"""Rehearse a fit: sample the declared world with the fitted parameters, and train on it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from isolatent.diagnosis.agreement import metric_for
from isolatent.diagnosis.controls import Decoder
from isolatent.diagnosis.held_out import HeldOut, encode, refit
from isolatent.diagnosis.verdict import ExpectedScore
from isolatent.evaluation import linear_r2, mcc
from isolatent.inference import encode_chunks
from isolatent.pairs import ArrayPairs, SeriesPairs
from isolatent.theory import Beliefs
from isolatent.training import ContrastiveICA
from isolatent.worlds import Box, GeneralizedNormal, Sphere, Uniform, VonMisesFisher

__all__ = ["Latents", "latents_of", "rehearse"]

NOISY = 0.02  # unexplained share from which on residuals are added
NOISY_MARGIN = 3.0  # times as far down
LEAST_MARGIN = 0.01  # of the interval around the score of one rehearsal
RANGE = (0.001, 0.999)  # quantiles of codes that are taken for the ends of a box
LARGEST_CONCENTRATION = 1e4
SCORED = 4096
MOST_ROWS = 100_000  # of a recording


@dataclass(frozen=True)
class Latents:
    """The latents of a rehearsal: those of the declared world, or the codes of real pairs.

    Attributes:
        parts: Space, marginal and conditional; None where codes are drawn.
        codes: Codes of anchors and of positives.
        low: Lower end of the box in the coordinates of the codes.
        side: Its side.
        related: Share of pairs that are related.
    """

    parts: tuple[Any, Any, Any] | None
    codes: tuple[Tensor, Tensor]
    low: float = 0.0
    side: float = 1.0
    related: float = 1.0

    def sample(self, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw pairs of latents, in the coordinates of the codes."""
        if self.parts is None:
            rows = torch.randint(len(self.codes[0]), (count,), generator=generator)
            if count <= len(self.codes[0]):
                rows = torch.randperm(len(self.codes[0]), generator=generator)[:count]
            return self.codes[0][rows].float(), self.codes[1][rows].float()
        space, marginal, conditional = self.parts
        z = marginal.sample(space, space.center().float().expand(count, space.n), generator)
        z_pos = conditional.sample(space, z, generator)
        if self.related < 1:
            rows = (torch.rand(count, generator=generator) >= self.related).nonzero().squeeze(1)
            z_pos[rows] = z_pos[rows[torch.randperm(len(rows), generator=generator)]]
        return self.low + self.side * z, self.low + self.side * z_pos


def latents_of(model: ContrastiveICA, pairs: HeldOut) -> Latents:
    """Return the latents of the declared world, with the parameters that fit the codes.

    Without a declared space, with a marginal that is not uniform, and where steps are relaxed, the
    codes of the pairs themselves are drawn; of a recording they keep their order.
    """
    parts = [encode(model.encoder_, part) for part in (pairs.fitting, pairs.testing)]
    h, h_pos = (torch.cat(halves).cpu() for halves in zip(*parts, strict=True))
    beliefs: Beliefs = model.beliefs_
    plain = beliefs.marginal == "uniform" and not {*model.relaxed_} - {"pairing"}
    plain = plain and model.axes_ is None
    related = float(model.learned_.get("pairing", {}).get("related_share", 1.0))
    n, weights = h.shape[1], torch.ones(len(h), dtype=torch.float64)
    if plain and related < 1:
        with torch.no_grad():
            scores: Any = model.loss_
            ratio = scores.scores(h, h_pos) - scores.pairing()
            weights = torch.sigmoid(ratio).double()
    weights = weights / weights.sum()
    if plain and beliefs.space == "sphere" and beliefs.conditional == "vmf":
        cosine = float((weights * (h * h_pos).sum(1).double()).sum())
        cosine = min(max(cosine, 1e-3), 1 - 1e-6)
        kappa = min(cosine * (n - cosine**2) / (1 - cosine**2), LARGEST_CONCENTRATION)
        world = (Sphere(n), Uniform(), VonMisesFisher(kappa))
        return Latents(world, (h, h_pos), related=related)
    if plain and beliefs.space == "box" and beliefs.exponent is not None:
        if beliefs.conditional == "anisotropic":
            return Latents(None, (h, h_pos))
        ends = torch.quantile(h.double()[: 2**14], torch.tensor(RANGE, dtype=torch.float64), dim=0)
        low, high = float(ends[0].mean()), float(ends[1].mean())
        side, p = high - low, beliefs.exponent
        step = (weights[:, None] * ((h_pos - h).double().abs() / side) ** p).sum(0).mean()
        width = float((p * step) ** (1 / p))
        box = (Box(n), Uniform(), GeneralizedNormal(p, width))
        return Latents(box, (h, h_pos), low, side, related)
    return Latents(None, (h, h_pos))


class _RehearsedPairs:
    """Endless pairs of observations of a rehearsal."""

    def __init__(self, latents: Latents, decoder: Decoder, noise: bool) -> None:
        self.latents, self.decoder, self.noise = latents, decoder, noise
        self.ordered = True

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        parts = self.latents.sample(batch_size, generator)
        x, x_pos = (self.decoder.observe(z, generator, self.noise) for z in parts)
        return x, x_pos


def rehearse(model: ContrastiveICA, pairs: HeldOut, decoder: Decoder, seed: int) -> ExpectedScore:
    """Return the score of the same training on a world that is as declared.

    One rehearsal shows no spread, so its interval follows from a rule: half of what is missing to
    a perfect score on either side, and at least .01; with noise three times as far down, since a
    decoder of noisy codes is smoother than the true mixing.

    Args:
        model: The fitted model.
        pairs: Its pairs.
        decoder: Maps its codes to observations.
        seed: Seed of the rehearsal.
    """
    latents = latents_of(model, pairs)
    noise = decoder.unexplained > NOISY
    source: Any = _RehearsedPairs(latents, decoder, noise)
    generator = Generator().manual_seed(seed)
    z = latents.sample(SCORED, generator)[0]
    x = decoder.observe(z, generator, noise)
    if latents.parts is None and isinstance(pairs.whole, SeriesPairs):
        source = _rehearse_recording(model, pairs.whole, decoder, generator, noise)
    elif pairs.n_pairs is not None:
        parts = source.sample(pairs.n_pairs, generator)
        source = ArrayPairs(*(part.numpy() for part in parts))
        source.ordered = getattr(pairs.source, "ordered", True)
    rehearsed = refit(model, source, seed)
    codes = encode_chunks(rehearsed.encoder_, x).numpy()
    metric = metric_for(model.guarantee_.metric)
    score = _score(z.numpy(), codes, metric)
    margin = max(LEAST_MARGIN, (1 - score) / 2)
    below = (NOISY_MARGIN if noise else 1.0) * margin
    return ExpectedScore(score, max(0.0, score - below), min(1.0, score + margin), metric)


def _rehearse_recording(
    model: ContrastiveICA,
    recording: SeriesPairs,
    decoder: Decoder,
    generator: Generator,
    noise: bool,
) -> SeriesPairs:
    """Return a recording whose factors are the codes of another one, row by row.

    Pairs drawn from it one by one would have neither its time scales nor their axes.
    """
    rows, session = recording.rows(MOST_ROWS)
    codes = encode_chunks(model.encoder_, rows).cpu()
    x = decoder.observe(codes, generator, noise)
    lags = (recording.shortest, recording.longest)
    return SeriesPairs(x.numpy(), lag=lags, groups=session)


def _score(z: np.ndarray[Any, Any], codes: np.ndarray[Any, Any], metric: str) -> float:
    return float(mcc(z, codes) if metric == "mcc" else linear_r2(z, codes))
