"""Measure what was learned instead of assumed, with intervals.

Intervals are those of given codes: errors of training are not in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from isolatent.training.relaxations import place_of, relatedness, relaxations_of

__all__ = [
    "compare_steps",
    "describe_relaxations",
    "measure_relaxations",
    "share_interval",
    "weight_errors_of",
]

QUANTILE = 1.96  # of the standard normal, for intervals of 95 %
SHARE_OF_ANCHORS = 0.2  # whose steps are compared, at either end of the learned scale
RESAMPLES, MAX_GROUPS = 200, 400  # of pairs, for intervals of eigenvalues
ERROR_BATCH_SIZE, MAX_ERROR_BATCHES = 256, 64  # batches that errors of weights are estimated from
DIFFERENCE = 0.05  # of the logarithm of a weight, for finite differences of gradients
MIN_CURVATURE = 1e-4  # of the loss in any direction of the weights, relative to the largest


def measure_relaxations(loss: nn.Module, h: Tensor, h_pos: Tensor) -> dict[str, Any]:
    """Return what was learned instead of assumed, as plain data by the name of the relaxation.

    Args:
        loss: The trained loss.
        h: Codes (N, n) of anchors.
        h_pos: Codes of their positives.
    """
    measured: dict[str, Any] = {}
    any_loss: Any = loss
    names = relaxations_of(loss)
    related = torch.ones(len(h), dtype=torch.float64)
    if "pairing" in names:
        related = relatedness(loss, h, h_pos).double()
        interval = share_interval(related, _scaled_distances(loss, h, h_pos))
        measured["pairing"] = {"related_share": float(related.mean()), "interval": list(interval)}
    if "anchor_scale" in names:
        with torch.no_grad():
            place, dtype = place_of(loss)
            scales = any_loss.anchor_scale(h.to(place, dtype)).double().cpu()
        ratio, interval = compare_steps(
            scales, _distances(loss, h, h_pos), related, any_loss.exponent or 2.0
        )
        measured["anchor_scale"] = {"width_ratio": ratio, "interval": list(interval)}
    if "factor_scale" in names:
        measured["factor_scale"] = _measure_weights(any_loss, h, h_pos)
    if "dynamics" in names:
        measured["dynamics"] = _measure_dynamics(h, h_pos, related)
    return measured


def _distances(loss: Any, h: Tensor, h_pos: Tensor) -> Tensor:
    """Return the distances (N,) from predictions φ(h) to positives, without the anchors' scale."""
    place, dtype = place_of(loss)
    with torch.no_grad():
        h, h_pos = (part.to(place, dtype) for part in (h, h_pos))
        centres = h if loss.dynamics is None else loss.dynamics(h)
        if loss.similarity.p is None:  # only the direction: the rest is a scale of the anchor
            centres = normalize(centres)
        weights = loss.coordinate_weights(h.shape[1], like=h)
        differences = (centres - h_pos).abs() ** (loss.exponent or 2.0)
        return (weights * differences).sum(-1).double().cpu()


def _scaled_distances(loss: Any, h: Tensor, h_pos: Tensor) -> Tensor:
    distances = _distances(loss, h, h_pos)
    if loss.anchor_scale is None:
        return distances
    with torch.no_grad():
        scales: Tensor = loss.anchor_scale(h.to(*place_of(loss)))
    return scales.double().cpu() * distances


def share_interval(related: Tensor, distances: Tensor) -> tuple[float, float]:
    r"""Return the 95 % interval of the share of related pairs.

    With r the probability that a pair is related and π its mean, the score of the pair for π is
    :math:`u = r/\pi - (1 - r)/(1 - \pi)`, and that for the width of steps, which is learned as
    well, is :math:`v = r (\bar d - d)`, where d is the distance within the pair and
    :math:`\bar d` its mean over related pairs. The variance of π is the first entry of the inverse
    of the information :math:`\sum (u, v)^\top (u, v)`, so it grows without bound where related and
    unrelated pairs overlap. The interval is symmetric in :math:`\log(\pi / (1 - \pi))`.

    Args:
        related: Probabilities r (N,) that pairs are related.
        distances: Distances d (N,) within pairs, in any unit.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> d = torch.rand(1000, generator=generator, dtype=torch.float64)
        >>> low, high = share_interval(torch.full((1000,), 0.9), d)  # all alike, which says nothing
        >>> round(low, 2), round(high, 2)
        (0.0, 1.0)
    """
    r, d = related.double(), distances.double()
    share = float(r.mean())
    if not 0 < share < 1:  # all are surely related, or none: the rule of three
        return (1 - 3 / len(r), 1.0) if share >= 1 else (0.0, 3 / len(r))
    of_share = r / share - (1 - r) / (1 - share)
    of_width = r * ((r * d).sum() / r.sum() - d)
    information = of_share.square().sum()
    if bool(of_width.any()):  # what the width explains says nothing about the share
        explained = (of_share @ of_width).square() / of_width.square().sum()
        information = (information - explained).clamp(min=0)
    odds = math.log(share / (1 - share))
    error = QUANTILE / (share * (1 - share) * math.sqrt(max(float(information), 1e-300)))
    low, high = (torch.tensor(odds + e, dtype=torch.float64).sigmoid() for e in (-error, error))
    return float(low), float(high)


def compare_steps(
    scales: Tensor, distances: Tensor, related: Tensor, p: float
) -> tuple[float, tuple[float, float]]:
    r"""Return how many times wider steps are at some places than at others, and its interval.

    The places are the fifth of the anchors with the smallest learned scale λ, whose steps are
    wide, and that with the largest. Compared are the steps themselves, the p-th root of the mean of
    their p-th power, since λ overshoots where it changes fast. Their spread gives the interval, by
    the delta method for the logarithm of the ratio.

    Args:
        scales: The learned scale λ (N,) of each anchor.
        distances: p-th powers of the lengths of steps (N,).
        related: Probabilities (N,) that pairs are related.
        p: The exponent.
    """
    ends = scales.quantile(torch.tensor([SHARE_OF_ANCHORS, 1 - SHARE_OF_ANCHORS]).to(scales))
    log_ratio, variance = 0.0, 0.0
    for sign, chosen in ((1, scales <= ends[0]), (-1, scales >= ends[1])):
        weights, steps = related[chosen], distances[chosen]
        mean = (weights * steps).sum() / weights.sum()
        log_ratio += sign * math.log(mean) / p
        variance += float(((weights * (steps / mean - 1)).norm() / weights.sum()) ** 2) / p**2
    error = QUANTILE * math.sqrt(variance)
    ratio, low, high = (math.exp(log_ratio + e) for e in (0.0, -error, error))
    return ratio, (low, high)


def _measure_weights(loss: Any, h: Tensor, h_pos: Tensor) -> dict[str, Any]:
    """Return the weights of the codes, and the ratio of the widest to the narrowest steps."""
    weights = loss.coordinate_weights(h.shape[1]).detach().double().cpu()
    measured: dict[str, Any] = {"weights": weights.tolist()}
    power = 1 / (loss.exponent or 2.0)
    wide, narrow = int(weights.argmin()), int(weights.argmax())
    measured["width_ratio"] = ratio = float((weights[narrow] / weights[wide]) ** power)
    if hasattr(loss.factor_scale, "log_weights"):  # not of a module that is parametrised otherwise
        place, dtype = place_of(loss)
        errors = weight_errors_of(loss, *(part.to(place, dtype) for part in (h, h_pos)))
        wider = (QUANTILE * torch.tensor(errors, dtype=torch.float64)).exp()
        error = math.exp(QUANTILE * power * math.hypot(errors[wide], errors[narrow]))
        measured["weights_intervals"] = torch.stack([weights / wider, weights * wider], 1).tolist()
        measured["interval"] = [max(1.0, ratio / error), ratio * error]
    return measured


def weight_errors_of(loss: Any, h: Tensor, h_pos: Tensor) -> list[float]:
    r"""Return standard errors of the logarithms of the learned weights, for these codes.

    With :math:`g_b` the gradient of the loss on batch b of m, for the logarithms, and H the
    Hessian of its mean, the estimate has covariance :math:`H^{-1} \mathrm{Cov}(g_b) H^{-1} / m`
    (the sandwich estimator). It holds for given codes: errors of training are not in it.

    Args:
        loss: A loss whose similarity has one learned weight per code.
        h: Codes of anchors (N, n), a sample of some thousands.
        h_pos: Codes of their positives (N, n).
    """
    holder = loss.similarity if loss.factor_scale is None else loss.factor_scale
    parameter: nn.Parameter = holder.log_weights
    count = max(2, min(MAX_ERROR_BATCHES, len(h) // ERROR_BATCH_SIZE))
    parts = (codes.detach().tensor_split(count) for codes in (h, h_pos))
    batches = [*zip(*parts, strict=True)]

    def gradients() -> Tensor:
        return torch.stack(
            [torch.autograd.grad(loss(a, b), parameter)[0] for a, b in batches]
        ).double()

    at_weights = gradients()
    before = parameter.detach().clone()
    columns = []
    with torch.no_grad():
        for k in range(len(before)):
            parameter[k] += DIFFERENCE
            with torch.enable_grad():
                columns.append((gradients().mean(0) - at_weights.mean(0)) / DIFFERENCE)
            parameter.copy_(before)
    hessian = torch.stack(columns)
    # Weights of a geometric mean of 1 have no curvature along their mean, but rounding errors.
    inverse = torch.linalg.pinv(0.5 * (hessian + hessian.mT), hermitian=True, rtol=MIN_CURVATURE)
    covariance = inverse @ torch.cov(at_weights.mT) @ inverse / count
    errors: list[float] = covariance.diagonal().clamp(min=0).sqrt().tolist()
    return errors


def _measure_dynamics(h: Tensor, h_pos: Tensor, related: Tensor) -> dict[str, Any]:
    """Return the eigenvalues of the weighted regression of positives on anchors.

    An affine map of the codes leaves them as they are. Groups of pairs are resampled for intervals;
    each resampled matrix is read in the eigenbasis of the estimate, to first order.
    """
    share = (related / related.sum())[:, None]
    h, h_pos = (part.detach().cpu().double() for part in (h, h_pos))
    h, h_pos = (share.sqrt() * (part - (share * part).sum(0)) for part in (h, h_pos))
    matrix = torch.linalg.lstsq(h, h_pos).solution.numpy()
    values, vectors = np.linalg.eig(matrix)
    order = np.lexsort([values.imag, values.real, -np.abs(values).round(12)])
    values, vectors = values[order].astype(complex), vectors[:, order]
    deviations = _resample_regression(h, h_pos) - matrix
    try:
        changes = np.einsum("ki,bij,jk->bk", np.linalg.inv(vectors), deviations, vectors)
    except np.linalg.LinAlgError:  # equal eigenvalues that share an eigenvector
        changes = np.full((1, len(values)), np.nan)
    wide = QUANTILE * np.abs(values + changes).std(0)
    turned = QUANTILE * np.angle(1 + changes / np.where(values == 0, 1, values)).std(0)
    turned[values.imag == 0] = 0
    moduli, angles = np.abs(values), np.angle(values)
    return {
        "moduli": moduli.tolist(),
        "moduli_intervals": np.stack([np.maximum(moduli - wide, 0), moduli + wide], 1).tolist(),
        "angles": angles.tolist(),
        "angles_intervals": np.stack([angles - turned, angles + turned], 1).tolist(),
    }


def _resample_regression(h: Tensor, h_pos: Tensor) -> np.ndarray[Any, Any]:
    """Return matrices (resamples, n, n) of the regression over resampled groups of pairs."""
    groups = min(MAX_GROUPS, len(h))
    products = [
        torch.stack(
            [
                a.mT @ b
                for a, b in zip(h.tensor_split(groups), other.tensor_split(groups), strict=True)
            ]
        )
        for other in (h, h_pos)
    ]
    rng = np.random.default_rng(0)
    drawn = torch.from_numpy(rng.multinomial(groups, np.full(groups, 1 / groups), RESAMPLES))
    own, cross = (torch.tensordot(drawn.double(), part, 1) for part in products)
    found: np.ndarray[Any, Any] = (torch.linalg.pinv(own, hermitian=True) @ cross).numpy()
    return found


def describe_relaxations(measured: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each relaxation that was measured.

    Example:
        >>> describe_relaxations({"pairing": {"related_share": 0.62, "interval": [0.61, 0.63]}})
        ('62.0 % of the pairs are related (61.0 to 63.0 %)',)
    """
    sentences = []
    if (pairing := measured.get("pairing")) is not None:
        low, high = (100 * end for end in pairing["interval"])
        share = 100 * pairing["related_share"]
        sentences.append(f"{share:.1f} % of the pairs are related ({low:.1f} to {high:.1f} %)")
    if (anchor := measured.get("anchor_scale")) is not None:
        sentences.append(
            f"steps are about {_ratio_text(anchor)} wider at some places than at others "
            "(the fifth of the anchors with the widest steps against that with the narrowest)"
        )
    if (factor := measured.get("factor_scale")) is not None:
        sentences.append(f"steps are {_ratio_text(factor)} wider along one code than along another")
    if (dynamics := measured.get("dynamics")) is not None:
        sentences.append(_describe_dynamics(dynamics))
    if (noise := measured.get("noise")) is not None:
        rule = f"with {noise['share']:.0%} of the spread within pairs taken for noise"
        sentences.append(f"codes are uncertain by {noise['median_std']:.2g} (median std), {rule}")
    return tuple(sentences)


def _ratio_text(measured: Mapping[str, Any]) -> str:
    text = f"{measured['width_ratio']:.1f} times"
    if "interval" not in measured:  # of a model that an earlier version saved
        return text
    low, high = measured["interval"]
    return f"{text} ({low:.1f} to {high:.1f})"


def _describe_dynamics(measured: Mapping[str, Any]) -> str:
    """Return by what codes are multiplied, and which of them turn or change sign.

    Example:
        >>> _describe_dynamics({"moduli": [0.8], "angles": [math.pi]})
        'from anchor to positive, codes are multiplied by -0.80; 1 changes sign'
    """
    angles = measured["angles"]
    intervals = measured.get("angles_intervals", [None] * len(angles))
    flipped = [abs(abs(angle) - math.pi) < 1e-9 for angle in angles]  # real and negative
    moduli = ", ".join(
        f"{'-' if flips else ''}{modulus:.2f}"
        for modulus, flips in zip(measured["moduli"], flipped, strict=True)
    )
    turns = [
        f"{angle:.2f} rad" + ("" if interval is None else " ({:.2f} to {:.2f})".format(*interval))
        for angle, interval, flips in zip(angles, intervals, flipped, strict=True)
        if angle > 0.005 and not flips
    ]
    text = f"from anchor to positive, codes are multiplied by {moduli}"
    text += f", and turn by {', '.join(turns)}" if turns else ""
    count = sum(flipped)
    return text + (f"; {count} change{'s' * (count == 1)} sign" if count else "")
