"""Rehearse a fit: sample the declared world with the fitted parameters, and train on it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from isolatent.diagnosis.agreement import metric_for
from isolatent.diagnosis.code_statistics import FittedWorld, code_statistics, fitted_world
from isolatent.diagnosis.controls import Decoder
from isolatent.diagnosis.held_out import HeldOut, encode, refit
from isolatent.diagnosis.trials import shuffled_rows, values_of
from isolatent.diagnosis.verdict import ExpectedScore
from isolatent.evaluation import linear_r2, mcc
from isolatent.inference import encode_chunks
from isolatent.pairs import ArrayPairs, Batch, SeriesPairs
from isolatent.theory import Beliefs
from isolatent.training import ContrastiveICA
from isolatent.training.batch_losses import has_bound
from isolatent.training.support import BATCH_SIZES, BATCHES

__all__ = ["Latents", "Rehearsal", "expected_score", "latents_of", "rehearse", "statistics_of"]

NOISY = 0.02  # unexplained share from which on residuals are added
NOISY_MARGIN = 3.0  # times as far down
LEAST_MARGIN = 0.01  # of the interval around the score of one rehearsal
SPREADS = 2.0  # standard deviations of the scores of several rehearsals
SCORED = 4096
MOST_ROWS = 100_000  # of a recording
Statistics = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Latents:
    """The latents of a rehearsal: those of the declared world, or the codes of real pairs.

    Attributes:
        world: The declared world, fitted to the codes; None where codes are drawn.
        codes: Codes of anchors and of positives.
        related: Share of pairs that are related.
    """

    world: FittedWorld | None
    codes: tuple[Tensor, Tensor]
    related: float = 1.0

    def sample(self, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw pairs of latents, in the coordinates of the codes."""
        if self.world is None:
            rows = torch.randint(len(self.codes[0]), (count,), generator=generator)
            if count <= len(self.codes[0]):
                rows = torch.randperm(len(self.codes[0]), generator=generator)[:count]
            return self.codes[0][rows].float(), self.codes[1][rows].float()
        space, marginal, conditional, low, side = self.world
        z = marginal.sample(space, space.center().float().expand(count, space.n), generator)
        z_pos = conditional.sample(space, z, generator)
        if self.related < 1:
            rows = (torch.rand(count, generator=generator) >= self.related).nonzero().squeeze(1)
            z_pos[rows] = z_pos[rows[torch.randperm(len(rows), generator=generator)]]
        return low + side * z, low + side * z_pos


def latents_of(model: ContrastiveICA, pairs: HeldOut) -> Latents:
    """Return the latents of the declared world, with the parameters that fit the codes.

    Without a declared space, with a marginal that is not uniform, and where steps are relaxed, the
    codes of the pairs themselves are drawn; of a recording they keep their order.
    """
    parts = [encode(model.encoder_, part) for part in (pairs.fitting, pairs.testing)]
    h, h_pos = (torch.cat(halves).cpu() for halves in zip(*parts, strict=True))
    beliefs: Beliefs = model.beliefs_
    plain = beliefs.marginal == "uniform" and not {*model.relaxed_} - {"pairing"}
    related = float(model.learned_.get("pairing", {}).get("related_share", 1.0))
    weights = None
    if plain and related < 1:
        with torch.no_grad():
            scores: Any = model.loss_
            ratio = scores.scores(h, h_pos) - scores.pairing()
            weights = torch.sigmoid(ratio).double()
    fits = plain and model.axes_ is None
    world = fitted_world(h, h_pos, beliefs, weights) if fits else None
    return Latents(world, (h, h_pos), related if world else 1.0)


class _RehearsedPairs:
    """Endless pairs of observations of a rehearsal."""

    def __init__(self, latents: Latents, decoder: Decoder, noise: bool) -> None:
        self.latents, self.decoder, self.noise = latents, decoder, noise
        self.ordered = True

    def sample(self, batch_size: int, generator: Generator) -> tuple[Tensor, Tensor]:
        parts = self.latents.sample(batch_size, generator)
        x, x_pos = (self.decoder.observe(z, generator, self.noise) for z in parts)
        return x, x_pos


@dataclass(frozen=True)
class Rehearsal:
    """The same training on a world that is as declared.

    Attributes:
        score: Score of its codes against the known latents.
        metric: Name of the score.
        noise: Whether residuals were added to its observations.
        unexplained: Share of its observations that a decoder of its codes leaves out.
        statistics: What :func:`statistics_of` measures on held-out pairs of this world; None where
            the latents are codes of real pairs.
    """

    score: float
    metric: str
    noise: bool
    unexplained: float
    statistics: Statistics | None


def rehearse(model: ContrastiveICA, pairs: HeldOut, decoder: Decoder, seed: int) -> Rehearsal:
    """Train the same model on a world that is as declared, with the parameters of the fit.

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
    z, z_pos = latents.sample(max(SCORED, len(pairs.testing)), generator)
    x, x_pos = (decoder.observe(part, generator, noise) for part in (z, z_pos))
    if latents.world is None and isinstance(pairs.whole, SeriesPairs):
        source = _rehearse_recording(model, pairs.whole, decoder, generator, noise)
    elif pairs.n_pairs is not None:
        parts = source.sample(pairs.n_pairs, generator)
        source = ArrayPairs(*(part.numpy() for part in parts))
        source.ordered = getattr(pairs.source, "ordered", True)
    rehearsed = refit(model, source, seed)
    codes = encode_chunks(rehearsed.encoder_, x[:SCORED]).numpy()
    metric = metric_for(model.guarantee_.metric)
    score = _score(z[:SCORED].numpy(), codes, metric)
    seen = HeldOut(source, Batch(x, x_pos), Batch(x, x_pos), None, source)
    unexplained = Decoder.fit(rehearsed.encoder_, seen, model.head_, seed).unexplained
    statistics = None
    if latents.world is not None:
        count = len(pairs.testing)  # as many as those of the fit
        statistics = statistics_of(rehearsed, Batch(x[:count], x_pos[:count]))
    return Rehearsal(score, metric, noise, unexplained, statistics)


def statistics_of(model: ContrastiveICA, testing: Batch) -> Statistics | None:
    """Return what a fit and its rehearsals are compared by, on pairs that the model did not see.

    Args:
        model: A fitted model.
        testing: The pairs.

    Returns:
        The statistics of codes (:func:`isolatent.diagnosis.code_statistics.code_statistics`), and
        the ``information`` on each batch.
    """
    found = code_statistics(*encode(model.encoder_, testing), model.beliefs_)
    if found is None or not has_bound(model.loss_, testing):
        return None
    least, most = BATCH_SIZES
    size = max(least, min(most, len(testing) // BATCHES))
    information = values_of(model, shuffled_rows(testing, 0), size).values
    return found | {"information": np.array(information)}


def expected_score(rehearsals: Sequence[Rehearsal]) -> ExpectedScore:
    """Return the mean score of rehearsals, with an interval.

    One rehearsal shows no spread, so the interval follows from a rule: half of what is missing to
    a perfect score on either side, and at least .01; with noise three times as far down, since a
    decoder of noisy codes is smoother than the true mixing. With several it is no narrower than
    two standard deviations of their scores.
    """
    first = rehearsals[0]
    scores = [rehearsal.score for rehearsal in rehearsals]
    score = fmean(scores)
    spread = SPREADS * stdev(scores) if len(scores) > 1 else 0.0
    margin = max(LEAST_MARGIN, (1 - score) / 2, spread)
    below = (NOISY_MARGIN if first.noise else 1.0) * margin
    return ExpectedScore(score, max(0.0, score - below), min(1.0, score + margin), first.metric)


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
