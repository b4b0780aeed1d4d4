"""Find axes of trained codes, by the independence of the factors or by their dynamics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from isolatent.encoders import Axes, LinearAxes, find_dynamic_axes, find_independent_axes
from isolatent.pairs import Batch, FinitePairSource, PairSource, SeriesPairs
from isolatent.theory.axis_claims import AXIS_METHODS
from isolatent.training.relaxations import relatedness

__all__ = ["AXES", "append_axes", "find_axes", "without_axes"]

AXES = ("auto", *AXIS_METHODS)
MAX_PAIRS, MAX_ROWS = 50_000, 200_000  # from which axes are estimated


def find_axes(
    axes: str, loss: nn.Module, source: PairSource, encode: Callable[[Tensor], Tensor]
) -> Axes | None:
    """Return axes of the codes; None where they are degenerate.

    Independence is that of the codes, or of their innovations where pairs have an order. The
    method is taken that tells the most blocks of codes apart, and of those that tell equally many
    apart, the one whose least stable axis is the most stable.

    Args:
        axes: One of ``AXES``.
        loss: The trained loss; with pairing, pairs that look unrelated are left out.
        source: Source of the pairs.
        encode: Maps observations to codes.
    """
    found: list[Axes] = []
    rows = source.rows(MAX_ROWS) if isinstance(source, SeriesPairs) else None
    try:
        if rows is not None:
            h = encode(rows[0])
            if axes != "ica":
                found.append(find_dynamic_axes(h, lag=source.shortest, groups=rows[1]))  # type: ignore[attr-defined]
            if axes != "dynamics":
                found.append(find_independent_axes(h))
                lag, session = source.shortest, rows[1]  # type: ignore[attr-defined]
                within = torch.from_numpy(session[lag:] == session[:-lag])
                found.append(_innovation_axes(h[:-lag][within], h[lag:][within]))
        else:
            h, h_pos = _pairs(loss, source, encode)
            if axes != "ica" and getattr(source, "ordered", True):
                found.append(find_dynamic_axes(h, h_pos=h_pos))
            if axes != "dynamics":
                found.append(find_independent_axes(h, h_pos))
                if getattr(source, "ordered", True):
                    found.append(_innovation_axes(h, h_pos))
    except ValueError:  # codes that are constant or linearly dependent: the fit has failed
        return None
    if not found:
        return None
    best = max(found, key=lambda one: (len(one.blocks), min(one.stability)))
    if best.dynamics is None and found[0].dynamics is not None:
        best = _with_dynamics(best, found[0])
    return replace(best, reason=f"{best.method}: {best.reason}")


def _pairs(
    loss: nn.Module, source: PairSource, encode: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return codes of distinct pairs, related ones as far as the loss can tell."""
    count = MAX_PAIRS
    if isinstance(source, FinitePairSource):
        count = min(count, len(source))
    pairs = Batch.of(source.sample(count, Generator().manual_seed(0)))
    h, h_pos = encode(pairs.x), encode(pairs.x_pos)
    if getattr(loss, "pairing", None) is None:
        return h, h_pos
    related = relatedness(loss, h, h_pos).to(h.device) > 0.5
    return h[related], h_pos[related]


def _innovation_axes(h: Tensor, h_pos: Tensor) -> Axes:
    """Return independent axes of what is new in the positives.

    Factors with linear dynamics of their own have innovations h' - A h that are mixed as the
    factors are. A sum of many innovations is nearly normal; they themselves need not be.
    """
    h, h_pos = (part.detach().cpu().double() for part in (h, h_pos))
    centred, target = h - h.mean(0), h_pos - h_pos.mean(0)
    slope = torch.linalg.lstsq(centred, target, driver="gelsd").solution
    axes = find_independent_axes(target - centred @ slope)
    spread = (centred @ axes.matrix.mT).std(0)
    return replace(
        axes,
        matrix=axes.matrix / spread[:, None],
        shift=h.mean(0),
        reason=f"of innovations: {axes.reason}",
    )


def _with_dynamics(axes: Axes, other: Axes) -> Axes:
    """Return axes with the dynamics that belong to others, in the coordinates of these."""
    assert other.dynamics is not None
    change = axes.matrix @ torch.linalg.inv(other.matrix)
    matrix = torch.tensor(other.dynamics.matrix, dtype=torch.float64)
    turned: Any = (change @ matrix @ torch.linalg.inv(change)).tolist()
    dynamics = replace(other.dynamics, matrix=tuple(map(tuple, turned)))
    return replace(axes, dynamics=dynamics)


def append_axes(encoder: nn.Module, layer: LinearAxes) -> nn.Sequential:
    """Return an encoder that ends in a linear map."""
    parameter = next(encoder.parameters(), layer.matrix)
    layer.to(parameter.device, parameter.dtype)
    layers = [*encoder] if isinstance(encoder, nn.Sequential) else [encoder]
    return nn.Sequential(*layers, layer).train(encoder.training)


def without_axes(encoder: nn.Module) -> nn.Module:
    """Return the encoder of the codes that the loss was trained with."""
    if isinstance(encoder, nn.Sequential) and isinstance(encoder[-1], LinearAxes):
        return encoder[:-1]
    return encoder
