"""Measurements of a run beside its scores: curve, total variation, gradient noise, scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from isolatent.contrast import AnInfoNCE, Dot, Ensemble, Lp
from isolatent.evaluation.mcc import best_assignment, correlation_matrix
from isolatent.experiments.cells import Cell
from isolatent.inference import encode_chunks
from isolatent.pairs import Batch, PairSource
from isolatent.training import ContrastiveICA, Step
from isolatent.training.axis_search import without_axes
from isolatent.training.batch_losses import encode_batch, loss_of
from isolatent.worlds import World

__all__ = [
    "axes_found",
    "codes_of_loss",
    "gradient_noise",
    "scales",
    "thin_curve",
    "total_variation",
]

UNIFORM_POINTS = 200_000
NOISE_BATCHES = 16
CURVE_POINTS = 100


def axes_found(model: Any) -> dict[str, Any]:
    """Return the axes of a fitted model and its relaxations, where it looked for them.

    Codes of one of the ``blocks`` could not be told apart; ``stability`` is that of the axes, from
    0 to 1.
    """
    found: dict[str, Any] = {}
    if (axes := getattr(model, "axes_", None)) is not None:
        found["axes"] = {
            "method": axes.method,
            "blocks": [list(block) for block in axes.blocks],
            "stability": [round(value, 4) for value in axes.stability],
            "reason": axes.reason,
        }
    if getattr(model, "relaxed_", ()) or getattr(model, "gains_", {}):
        gains = {name: [round(v, 5) for v in gain] for name, gain in model.gains_.items()}
        found["relaxed"] = {"names": list(model.relaxed_), "gains": gains}
    return found


def codes_of_loss(
    model: ContrastiveICA, x: Tensor, h: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Return the codes that the loss was trained with; h are those of the model, on its axes."""
    encoder = without_axes(model.encoder_)
    return h if encoder is model.encoder_ else encode_chunks(encoder, x).numpy()


def thin_curve(history: list[Step]) -> list[dict[str, float]]:
    """Return at most ``CURVE_POINTS`` steps, always the last, of those that were validated."""
    measured = [step for step in history if step.held_out is not None] or history
    every = max(1, -(-len(measured) // CURVE_POINTS))
    kept = measured[::-1][::every][::-1]
    names = ("number", "loss", "information", "scale", "quality", "held_out")
    return [
        {n: float(f"{v:.6g}") for n in names if (v := getattr(step, n)) is not None}
        for step in kept
    ]


def total_variation(world: World) -> float | None:
    r"""Return the total variation :math:`\tfrac12\int|p(z) - u(z)|\,dz` of marginal and uniform.

    Estimated as :math:`E_u(1 - p/u)_+`, the mean of values between 0 and 1 over uniform points.
    None if the density is not normalised or the space is unbounded.
    """
    space, marginal = world.space, world.marginal
    if not space.bounded or not marginal.normalised(space):
        return None
    z = space.sample(UNIFORM_POINTS, Generator().manual_seed(0), torch.float64)
    center = space.center().double().expand_as(z)
    log_ratio = marginal.log_prob(space, z, center) + space.log_volume
    return round(abs(float(torch.expm1(log_ratio.clamp(max=0)).mean())), 4)


def gradient_noise(
    model: ContrastiveICA, source: PairSource, batch: int, seed: int
) -> dict[str, float | bool]:
    r"""Return the norm of the mean gradient and the deviation of batch gradients from it.

    With g the gradient with respect to the trained encoder's weights on one of 16 batches,
    ``signal`` is :math:`|E g|` and ``noise`` is :math:`\sqrt{E|g - E g|^2}`. ``largest_loss``
    shows heavy tails.
    """
    generator = Generator().manual_seed(seed + 1)
    encoder, loss = without_axes(model.encoder_), model.loss_
    parameters = [p for p in encoder.parameters() if p.requires_grad]
    dtype = parameters[0].dtype
    gradients, losses = [], []
    for _ in range(NOISE_BATCHES):
        pairs = Batch.of(source.sample(batch, generator))
        value = loss_of(
            loss, encode_batch(lambda parts: [encoder(x.to(dtype)) for x in parts], pairs)
        )
        parts = torch.autograd.grad(value, parameters, allow_unused=True)
        gradients.append(torch.cat([part.flatten() for part in parts if part is not None]))
        losses.append(float(value.detach()))
    stacked = torch.stack(gradients).double()
    mean = stacked.mean(0)
    return {
        "signal": float(mean.norm()),
        "noise": float((stacked - mean).square().sum(1).mean().sqrt()),
        "mean_loss": float(np.mean(losses)),
        "largest_loss": float(np.max(losses)),
        "finite": all(map(math.isfinite, losses)) and bool(stacked.isfinite().all()),
    }


def scales(
    cell: Cell, loss: nn.Module, z: np.ndarray[Any, Any], h: np.ndarray[Any, Any]
) -> dict[str, Any]:
    """Return the learned scale or weights, and the true ones if both have the same unit.

    ``learned`` is one number, or one for each factor: the weight of its code. ``name`` is
    ``"kappa"`` for the κ of a vMF density, ``"weight"`` for the λ of exp(-½ Σ λ d²) and ``"rate"``
    for the λ of exp(-λ Σ d^p). Outside the sphere the unit of the codes is arbitrary: weights are
    transformed to distances of factors by the linear fit of codes to factors, and a learned rate
    has no true rate to compare with.
    """
    if isinstance(loss, AnInfoNCE | Ensemble):
        weights = loss.weights.detach().double().numpy()
        if cell.model.space == "sphere":
            learned = weights[..., best_assignment(correlation_matrix(z, h))[1]]
        else:
            slopes = np.linalg.lstsq(z - z.mean(0), h - h.mean(0), rcond=None)[0]
            learned = weights @ (slopes**2).T
        return {"name": "weight", "learned": learned.tolist(), "true": _true_weights(cell)}
    similarity = getattr(loss, "similarity", None)
    way = cell.world.conditional[0]
    if isinstance(similarity, Dot):
        truth = way.get("kappa") if way["kind"] == "VonMisesFisher" else None
        if way["kind"] == "AnisotropicNormal" and not isinstance(way["weights"], list):
            truth = way["weights"]
        return {"name": "kappa", "learned": float(similarity.scale.detach()), "true": truth}
    if isinstance(similarity, Lp) and similarity.weights.ndim == 0:
        return {"name": "rate", "learned": float(similarity.weights.detach()), "true": None}
    return {}


def _true_weights(cell: Cell) -> Any:
    """Return Λ of each conditional minus Λ of the negatives; None if one of them has no Λ."""
    ways, negatives = cell.world.conditional, cell.world.negatives
    parts = ways if negatives is None else [*ways, negatives]
    if any(part["kind"] != "AnisotropicNormal" for part in parts):
        return None
    weights = np.stack([np.broadcast_to(part["weights"], cell.world.n) for part in parts])
    if negatives is not None:
        weights = weights[:-1] - weights[-1]
    return (weights if len(ways) > 1 else weights[0]).astype(np.float64).tolist()
