"""Calibrate a trained encoder and its loss."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

import torch
from torch import Generator, Tensor, nn

from isolatent.contrast.saturated import fit_mixture
from isolatent.encoders import BoxHead, PrincipalAxes, SphereHead, Straightening
from isolatent.encoders.calibration import (
    box_share,
    fit_narrow_normal,
    implied_range,
    log_sphere_density,
)
from isolatent.pairs import Batch, FinitePairSource, PairSource
from isolatent.training.assembly import learned_weights
from isolatent.training.contrastive import ContrastiveTraining

__all__ = ["calibrate", "fit_loss", "set_scale"]

CLOSED_FORM_PAIRS = 65_536
LOSS_PAIRS = 6_144
MAX_BATCHES = 24
MAX_EVALUATIONS = 25  # of the loss on all pairs
SCALE_PAIRS, SCALE_SWEEPS = 16_384, 12  # pairs that a scale is estimated from, and iterations


def calibrate(
    training: ContrastiveTraining, encoder: nn.Module, loss: nn.Module, source: PairSource
) -> str:
    """Calibrate the codes where pairs support it, and estimate the scale of the loss.

    Coordinates are straightened or rotated to their axes if the encoder ends in the layer for it
    and held-out pairs confirm the step, see :meth:`Straightening.fit_if_supported` and
    :meth:`PrincipalAxes.fit_if_supported`. Otherwise codes stay as they were trained.

    Returns:
        What was applied, in words; empty if there is nothing to calibrate.
    """
    modules = [*encoder.modules()]
    saturated = training.saturated_at is not None
    turns = isinstance(modules[-1], PrincipalAxes) and can_turn(loss)
    mixture = getattr(loss, "pairing", None) is not None
    if not saturated and not turns and not mixture:
        return ""
    pairs = _distinct_pairs(source)
    h, h_pos = (training.encode(encoder, part) for part in (pairs.x, pairs.x_pos))
    steps = []
    if any(isinstance(module, BoxHead) for module in modules):
        steps.append(f"codes spanned {box_share(torch.cat([h, h_pos])):.0%} of their box's sides")
    if isinstance(modules[-1], Straightening | PrincipalAxes):
        if isinstance(modules[-1], Straightening):
            steps.append(modules[-1].fit_if_supported(h, h_pos))
        elif turns:
            steps.append(modules[-1].fit_if_supported(h, h_pos, narrow=training.is_narrow))
        h, h_pos = modules[-1](h), modules[-1](h_pos)
    if saturated:
        set_scale(loss, h, h_pos, _geometry(modules))
        weights = "weights" if learned_weights(loss, h.shape[1]) else "scale"
        steps.append(f"{weights} estimated from differences within pairs")
    else:
        fit_loss(loss, h, h_pos, training.recipe.batch_size)
        steps.append(f"{'scale' if mixture else 'weights'} of the loss fitted to the codes")
    return "; ".join(steps)


def can_turn(loss: nn.Module) -> bool:
    """Return whether codes may be rotated: each has a weight, and the loss no function of codes."""
    functions = ("potential", "potential_pos", "anchor_scale", "dynamics")
    fixed = any(getattr(loss, name, None) is not None for name in functions)
    similarity = getattr(loss, "similarity", None)
    per_code = getattr(loss, "factor_scale", None) is not None
    weights = getattr(similarity, "log_weights", None)
    return not fixed and (per_code or (weights is not None and weights.ndim == 1))


def _distinct_pairs(source: PairSource) -> Batch:
    """Draw pairs; from a finite source no more than it has, so that halves are independent."""
    generator = Generator().manual_seed(0)
    count = CLOSED_FORM_PAIRS
    if isinstance(source, FinitePairSource):
        count = min(count, len(source))  # a source draws distinct pairs as long as it has them
    return Batch.of(source.sample(count, generator))


def _geometry(modules: Sequence[nn.Module]) -> str:
    heads = {SphereHead: "sphere", BoxHead: "box"}
    return next((heads[type(module)] for module in modules if type(module) in heads), "free")


def set_scale(loss: nn.Module, h: Tensor, h_pos: Tensor, geometry: str) -> None:
    r"""Set the scale of a saturated loss to its maximum-likelihood value.

    A conditional :math:`\propto e^{-\lambda \sum_k |h'_k - h_k|^p}` that is narrow against its
    space has m = n dimensions, and m = n - 1 on a sphere, where also a vMF of concentration κ = 2λ
    is normal. Without walls the value is :math:`m / (p\, E\sum_k |h'_k - h_k|^p)`. In a box the
    conditional is truncated to the range that uniform codes have. A share of unrelated pairs is
    estimated as well, by expectation maximisation, so that these do not count. Weights of a
    similarity with one for each code, on a sphere, are those of
    :func:`isolatent.encoders.calibration.fit_narrow_normal`.

    Args:
        loss: The loss, with a learned scale.
        h: Codes (N, n) of anchors.
        h_pos: Codes of their positives.
        geometry: ``"sphere"`` of radius 1, ``"box"`` or ``"free"``.
    """
    similarity: Any = loss.similarity
    pairing: Any = getattr(loss, "pairing", None)
    p = similarity.p or 2.0
    h, h_pos = (part[:SCALE_PAIRS].detach().cpu().double() for part in (h, h_pos))
    if geometry == "sphere" and learned_weights(loss, h.shape[1]) is not None:
        _set_weights(loss, fit_narrow_normal(h, h_pos)[0])
        return
    relative = torch.zeros(h.shape[1], dtype=h.dtype)  # logarithms of weights
    if learned_weights(loss, h.shape[1]) is not None or _has_factor_scale(loss):
        relative, h, h_pos = _equalize(h, h_pos, p)
    many = pairing is not None  # unrelated pairs may be
    scale, log_odds = _conditional_scale(h, h_pos, p, geometry, many)
    with torch.no_grad():
        if similarity.p is None:
            similarity.log_scale.fill_(math.log(2 * scale))
        else:
            similarity.log_weights.fill_(math.log(scale))
        if _has_factor_scale(loss):
            loss.factor_scale.log_weights.copy_(relative)  # type: ignore[union-attr, operator]
        elif similarity.p is not None and similarity.log_weights.ndim:
            similarity.log_weights.add_(relative)
        if pairing is not None:  # such that s - b are the log-odds of being related
            scores = -scale * (h - h_pos).abs().pow(p).sum(1)
            scores = scores + (2 * scale if similarity.p is None else 0.0)
            pairing.log_unrelated.copy_((scores - log_odds).median())


def _has_factor_scale(loss: nn.Module) -> bool:
    return getattr(loss, "factor_scale", None) is not None


def _equalize(h: Tensor, h_pos: Tensor, p: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return logarithms of relative weights of codes, and codes for which all weights are one.

    By medians of distances, which unrelated pairs do not move by much.
    """
    log = -(h - h_pos).abs().pow(p).median(0).values.clamp(min=1e-30).log()
    log = log - log.mean()
    return log, h * (log / p).exp(), h_pos * (log / p).exp()


def _set_weights(loss: nn.Module, weights: Tensor) -> None:
    """Set the precisions (n,) of codes on a sphere."""
    any_loss: Any = loss
    log = weights.log()
    with torch.no_grad():
        if any_loss.factor_scale is None:
            any_loss.similarity.log_weights.copy_(log - math.log(2))
            return
        any_loss.factor_scale.log_weights.copy_(log - log.mean())
        if any_loss.similarity.p is None:
            any_loss.similarity.log_scale.fill_(float(log.mean()))
        else:
            any_loss.similarity.log_weights.fill_(float(log.mean()) - math.log(2))


def _conditional_scale(
    h: Tensor, h_pos: Tensor, p: float, geometry: str, many_unrelated: bool = False
) -> tuple[float, Tensor]:
    """Estimate λ of a narrow conditional from pairs, some of which may be unrelated.

    Returns:
        λ, and for each pair the log-odds (N,) of being related.
    """
    n = h.shape[1] - (geometry == "sphere")
    distance = (h - h_pos).abs().pow(p).sum(1)
    low, high = implied_range(torch.cat([h, h_pos]))
    walls = None
    if geometry == "box":
        walls = torch.stack([h - low, high - h]).clamp(min=0) ** p
    log_unrelated = torch.zeros(len(h), dtype=torch.float64)
    if geometry == "sphere":
        log_unrelated += log_sphere_density(h.shape[1])
    elif geometry == "box":
        log_unrelated -= (high - low).log().sum()
    else:
        everyone = torch.cat([h, h_pos])
        normal = torch.distributions.Normal(everyone.mean(0), everyone.std(0))
        log_unrelated = normal.log_prob(h_pos).sum(1)
    scale, share = n / (p * float(distance.median())), 0.05
    if many_unrelated:
        scale, share, *_ = fit_mixture(distance, p, n, float(log_unrelated.mean()))
    for _ in range(SCALE_SWEEPS):
        log_mass, dimensions = _truncation(scale, walls, p, n)
        log_constant = n * (math.log(scale) / p - math.log(2 * math.gamma(1 + 1 / p)))
        log_related = log_constant - scale * distance - log_mass
        log_odds = log_related - log_unrelated + math.log1p(-share) - math.log(share)
        related = torch.sigmoid(log_odds)
        most = 1 - 1e-6 if many_unrelated else 0.5
        share = min(max(1 - float(related.mean()), 1e-6), most)
        scale = float((related * dimensions).sum() / (p * (related @ distance)))
    if geometry == "sphere":  # a vMF need not be narrow
        mean = max(1e-6, 1 - float((related @ distance) / related.sum()) / 2)
        scale = mean * (n + 1 - mean**2) / (1 - mean**2) / 2
    return scale, log_odds


def _truncation(
    scale: float, walls: Tensor | None, p: float, n: int
) -> tuple[Tensor | float, Tensor | float]:
    r"""Return the logarithm of the mass of each conditional within its walls, and p λ E d.

    The second is the number of dimensions, less what the walls take. With the regularised
    incomplete gamma function, :math:`P(a + 1, x) = P(a, x) - x^a e^{-x} / \Gamma(a + 1)`.

    Args:
        scale: λ.
        walls: Distances to the two walls to the power p, (2, N, n), or None.
        p: Power of the distance.
        n: Number of dimensions.
    """
    if walls is None:
        return 0.0, float(n)
    x = scale * walls
    mass = torch.special.gammainc(torch.tensor(1 / p, dtype=x.dtype), x)
    beyond = x.pow(1 / p) * torch.exp(-x) / math.gamma(1 + 1 / p)
    total = mass.sum(0).clamp(min=1e-6)
    return (0.5 * total).log().sum(1), ((mass - beyond).sum(0) / total).sum(1)


def fit_loss(loss: nn.Module, h: Tensor, h_pos: Tensor, batch_size: int) -> None:
    """Minimise a loss over its scales, in batches of the size it was trained with.

    Scales, a matrix of weights and the share of unrelated pairs, which converge slowly in training,
    where their gradients are small; not networks and dynamics. In double precision, without which
    a line search along flat directions ends at once. They stay as they were if it diverges.
    """
    before, dtype = deepcopy(loss.state_dict()), h.dtype
    count = max(1, min(MAX_BATCHES, min(LOSS_PAIRS, len(h)) // batch_size))
    rows = slice(0, min(len(h), count * batch_size))
    parts = (part[rows].double().tensor_split(count) for part in (h, h_pos))
    batches = [*zip(*parts, strict=True)]
    named = loss.double().named_parameters()
    scales = [p for name, p in named if re.search(r"(^|\.)(log_\w+|below)$", name)]
    optimiser = torch.optim.LBFGS(
        scales,
        max_iter=MAX_EVALUATIONS,
        max_eval=MAX_EVALUATIONS,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = sum(loss(a, b) for a, b in batches) / count
        value.backward()
        return value

    with suppress(ValueError):  # weights that are not finite
        optimiser.step(closure)
    loss.to(dtype)
    if not all(bool(scale.isfinite().all()) for scale in scales):
        loss.load_state_dict(before)
