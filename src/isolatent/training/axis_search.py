"""Find axes of trained codes, by the independence of the factors or by their dynamics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import linalg
from scipy.optimize import linear_sum_assignment
from torch import Generator, Tensor, nn

from isolatent.encoders import Axes, Dynamics, LinearAxes, find_dynamic_axes, find_independent_axes
from isolatent.encoders.linear_axes import has_enough_rows, whiten
from isolatent.pairs import Batch, FinitePairSource, PairSource, SeriesPairs
from isolatent.theory.axis_claims import AXIS_METHODS
from isolatent.training.relaxations import relatedness

__all__ = ["AXES", "AxesError", "append_axes", "find_axes", "without_axes"]

AXES = ("auto", *AXIS_METHODS)
MAX_PAIRS, MAX_ROWS = 50_000, 200_000  # from which axes are estimated
RESOLUTION = 1e-6  # least standard deviation of a code, relative to its size, in float32
MIN_INNOVATION = 1e-8  # least share of innovations in the variance of any direction
METHOD_NAMES = {
    "dynamics": "dynamics",
    "independence": "the independence of codes",
    "innovations": "the independence of innovations",
}


class AxesError(ValueError):
    """Codes do not admit axes: they are degenerate, or no pairs are left to find axes from."""


def find_axes(
    axes: str, loss: nn.Module, source: PairSource, encode: Callable[[Tensor], Tensor]
) -> Axes:
    """Return axes of the codes; raise an :class:`AxesError` if the codes are degenerate.

    Independence is that of the codes, or of their innovations where pairs have an order. Dynamics
    are those of recordings; of pairs, only where they are asked for. The method is taken that tells
    the most blocks of codes apart, and of those that tell equally many apart, the one whose least
    stable axis is the most stable.

    Args:
        axes: One of ``AXES``.
        loss: The trained loss; with pairing, pairs that look unrelated are left out.
        source: Source of the pairs; ordered ones for ``"dynamics"``.
        encode: Maps observations to codes.
    """
    found: dict[str, Axes | None] = {}
    if isinstance(source, SeriesPairs) and _has_runs(source):
        rows, session = source.rows(MAX_ROWS)
        h, lag = encode(rows), source.shortest
        _check_varying(h)
        if axes != "dynamics":
            found["independence"] = find_independent_axes(h)
        if axes != "ica":
            interval, unit = source.recording.spacing
            found["dynamics"] = find_dynamic_axes(
                h, lag=lag, groups=session, interval=interval, unit=unit
            )
        if axes != "dynamics":
            within = torch.from_numpy(session[lag:] == session[:-lag])
            found["innovations"] = _innovation_axes(h[:-lag][within], h[lag:][within])
    else:
        h, h_pos = _pairs(loss, source, encode)
        _check_varying(h)
        _check_varying(h_pos)
        ordered = getattr(source, "ordered", True)
        if axes == "dynamics":  # only where asked for: two views of a thing have no time scales
            found["dynamics"] = find_dynamic_axes(h, h_pos=h_pos)
        else:
            found["independence"] = find_independent_axes(h, h_pos)
            if ordered:
                found["innovations"] = _innovation_axes(h, h_pos)
    candidates = {name: one for name, one in found.items() if one is not None}
    taken = max(candidates, key=lambda name: _rank(candidates[name]))
    best = candidates[taken]
    dynamic = candidates.get("dynamics")
    if best.dynamics is None and dynamic is not None and dynamic.dynamics is not None:
        best = replace(best, dynamics=_turn(dynamic.dynamics, dynamic, best))
    reason = f"{best.method}: {best.reason}"
    return replace(best, reason=reason, choice=_describe_choice(taken, candidates))


def _has_runs(source: SeriesPairs) -> bool:
    """Return whether some rows follow one another for longer than the lag, none left out."""
    _, session = source.rows(MAX_ROWS)
    return bool((session[source.shortest :] == session[: -source.shortest]).any())


def _rank(axes: Axes) -> tuple[int, float]:
    return len(axes.blocks), round(min(axes.stability), 2)  # of equals the first one is taken


def _describe_choice(taken: str, candidates: Mapping[str, Axes]) -> str:
    """Return which method was taken and why, in words."""
    best = candidates[taken]
    if len(best.stability) == 1:
        return "one code is one axis"
    if not best.separates:
        return f"no codes told apart by {' or '.join(METHOD_NAMES[name] for name in candidates)}"
    text = f"found by {METHOD_NAMES[taken]}"
    others = {name: len(one.blocks) for name, one in candidates.items() if name != taken}
    if not others:
        return f"{text}, the only method that applies or was asked for"
    counts = ", ".join(f"{count} by {METHOD_NAMES[name]}" for name, count in others.items())
    text += f", which tells {len(best.blocks)} blocks of codes apart ({counts})"
    return text + ("; its axes are the most stable" * (len(best.blocks) in others.values()))


def _check_varying(h: Tensor) -> None:
    """Raise an error if codes are too few, not finite, constant or linearly dependent."""
    codes = h.detach().cpu().double().numpy()
    if len(codes) < 2:
        raise AxesError(f"only {len(codes)} related pairs are left to find axes from")
    if not np.isfinite(codes).all():
        raise AxesError("codes are degenerate: some are not finite")
    constant = np.flatnonzero(codes.std(0) <= RESOLUTION * np.abs(codes).max(0))
    if len(constant):
        names = ", ".join(map(str, constant))
        which = f"code {names} is" if len(constant) == 1 else f"codes {names} are"
        raise AxesError(f"codes are degenerate: {which} constant")
    if has_enough_rows(codes):
        try:
            whiten(codes)
        except ValueError:
            raise AxesError("codes are degenerate: they are linearly dependent") from None


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


def _innovation_axes(h: Tensor, h_pos: Tensor) -> Axes | None:
    """Return independent axes of what is new in the positives; None where nothing is.

    Factors with linear dynamics of their own have innovations h' - A h that are mixed as the
    factors are. A sum of many innovations is nearly normal; they themselves need not be. What is
    left of deterministic dynamics are rounding errors, which are independent along any axes.
    """
    h, h_pos = (part.detach().cpu().double() for part in (h, h_pos))
    if len(h) < 2:
        return None
    centred, target = h - h.mean(0), h_pos - h_pos.mean(0)
    slope = torch.linalg.lstsq(centred, target, driver="gelsd").solution
    innovations = target - centred @ slope
    if has_enough_rows(h.numpy()):
        new, whole = (np.atleast_2d(np.cov(part.numpy().T)) for part in (innovations, target))
        if linalg.eigh(new, whole, eigvals_only=True)[0] < MIN_INNOVATION:
            return None
    elif bool((innovations.std(0) <= RESOLUTION * target.abs().amax(0)).any()):
        return None
    axes = find_independent_axes(innovations)
    spread = (centred @ axes.matrix.mT).std(0)
    return replace(
        axes,
        method="innovations",
        matrix=axes.matrix / spread[:, None],
        shift=h.mean(0),
    )


def _turn(dynamics: Dynamics, old: Axes, new: Axes) -> Dynamics:
    """Return dynamics of codes in old axes in the coordinates of new ones.

    Eigenvalues do not depend on the coordinates; each is assigned to the code that has the largest
    share of its eigenvector.
    """
    change = (new.matrix @ torch.linalg.inv(old.matrix)).numpy()
    matrix = change @ np.array(dynamics.matrix) @ np.linalg.inv(change)
    values, left = np.linalg.eig(matrix.T)
    known = np.array(dynamics.moduli) * np.exp(1j * np.array(dynamics.angles))
    upper = np.abs(values) * np.exp(1j * np.abs(np.angle(values)))  # of conjugates, the upper one
    place = linear_sum_assignment(np.abs(upper[:, None] - known))[1]
    shares = np.abs(left) ** 2 / np.sum(np.abs(left) ** 2, axis=0)  # (codes, eigenvalues)
    order = place[linear_sum_assignment(-shares)[1]]
    names = ("moduli", "moduli_intervals", "angles", "angles_intervals")
    turned: dict[str, Any] = {
        name: tuple(getattr(dynamics, name)[k] for k in order) for name in names
    }
    return replace(dynamics, matrix=tuple(map(tuple, matrix.tolist())), **turned)


def append_axes(encoder: nn.Module, layer: LinearAxes) -> nn.Sequential:
    """Return an encoder that ends in a linear map."""
    parameter = next(encoder.parameters(), layer.matrix)
    layer.to(dtype=parameter.dtype)
    if not layer.matrix.is_meta:  # a model that is loaded is first built without memory
        layer.to(parameter.device)
    layers = [*encoder] if isinstance(encoder, nn.Sequential) else [encoder]
    return nn.Sequential(*layers, layer).train(encoder.training)


def without_axes(encoder: nn.Module) -> nn.Module:
    """Return the encoder of the codes that the loss was trained with."""
    if isinstance(encoder, nn.Sequential) and isinstance(encoder[-1], LinearAxes):
        return encoder[:-1]
    return encoder
