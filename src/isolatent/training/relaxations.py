"""Relax assumptions about the pairs: attach learned parts to a loss, and compare them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from isolatent.checks import check_one_of
from isolatent.contrast import (
    AnchorScale,
    ConstantPotential,
    ContrastiveLoss,
    FactorScale,
    LinearDynamics,
    NetworkPotential,
    Pairing,
)
from isolatent.streams import layers_from_stream, random_stream
from isolatent.theory import NAMED_RELAXATIONS, RELAXATIONS

__all__ = [
    "AUTO",
    "PROBE_STEPS",
    "Gain",
    "attach",
    "check_relax",
    "check_relaxable",
    "compare_losses",
    "compare_relaxations",
    "detach",
    "needs_potentials",
    "place_of",
    "relatedness",
    "relaxations_of",
]

AUTO = "auto"
BUILDERS: dict[str, Callable[[int], nn.Module]] = {
    "pairing": lambda n: Pairing(),
    "anchor_scale": AnchorScale,
    "factor_scale": FactorScale,
    "dynamics": LinearDynamics,
}
NEED_POTENTIALS = ("anchor_scale", "marginal", "dynamics")
PROBE_BATCH_SIZE, PROBE_STEPS = 512, 100
PROBE_RATE, PROBE_LOG_RATE = 0.02, 0.1  # of networks, and of logarithms
# Held-out batches, over which gains are compared; of few pairs smaller ones, since two values have
# no useful standard error.
GAIN_BATCH_SIZE, MIN_GAIN_BATCHES = 256, 8
STANDARD_ERRORS, MIN_GAIN = 4.0, 0.012  # that a gain must exceed, the latter in nats


def check_relax(relax: Any) -> tuple[str, ...] | None:
    """Return the relaxations in their usual order; None for ``"auto"``.

    Args:
        relax: ``"auto"``, the name of a relaxation, or several names.

    Example:
        >>> check_relax(["marginal", "pairing"])
        ('pairing', 'marginal')
    """
    if isinstance(relax, str) and relax == AUTO:
        return None
    known = ", ".join(map(repr, NAMED_RELAXATIONS))
    if not isinstance(relax, Iterable):
        raise ValueError(
            f"relax must be 'auto', a name or a tuple of names from {known}, got {relax!r}"
        )
    names = [relax] if isinstance(relax, str) else list(relax)
    for name in names:
        if name not in NAMED_RELAXATIONS:
            raise ValueError(f"relax must be 'auto' or names from {known}, got {name!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"relax must not name a relaxation twice, got {names}")
    return tuple(name for name in NAMED_RELAXATIONS if name in names)


def check_relaxable(names: Sequence[str], loss: nn.Module) -> None:
    """Raise an error if a loss cannot take one of the relaxations, or has it already."""
    for name in names:
        slot = "potential" if name == "marginal" else name
        if name == "noise" or not isinstance(loss, ContrastiveLoss) or slot in loss.undefined:
            raise ValueError(
                f"relax must not contain {name!r}: {type(loss).__name__} cannot take it"
            )
        if name != "marginal" and getattr(loss, slot) is not None:
            raise ValueError(f"relax must not contain {name!r}: the given loss already has it")


def needs_potentials(names: Sequence[str]) -> bool:
    """Return whether one of the relaxations needs learned potentials.

    Where steps are narrower, or around another centre, positives are not distributed as anchors.
    """
    return any(name in NEED_POTENTIALS for name in names)


def attach(
    loss: ContrastiveLoss, names: Sequence[str], n: int, dtype: torch.dtype | None = None
) -> list[nn.Module]:
    """Attach relaxations to a loss, at values that change nothing, and return the new modules.

    Args:
        loss: The loss, changed in place.
        names: Names of relaxations.
        n: Number of codes.
        dtype: That of the codes; by default that of the loss.
    """
    new: list[nn.Module] = []
    with layers_from_stream():
        for name in names:
            if name in BUILDERS and getattr(loss, name) is None:
                new.append(BUILDERS[name](n))
                setattr(loss, name, new[-1])
        if needs_potentials(names):
            for slot in ("potential", "potential_pos"):
                old = getattr(loss, slot)
                if old is None or isinstance(old, ConstantPotential):
                    new.append(NetworkPotential(n))
                    setattr(loss, slot, new[-1])
    device, own = place_of(loss)
    return [module.to(device=device, dtype=dtype or own) for module in new]


@torch.no_grad()
def detach(loss: ContrastiveLoss, name: str, h: Tensor) -> None:
    """Take the scale of the anchors out of a loss, which keeps its mean logarithm.

    Args:
        loss: The loss, changed in place.
        name: ``"anchor_scale"``.
        h: Codes (N, n) of anchors.
    """
    check_one_of("name", name, ("anchor_scale",))
    similarity: Any = loss.similarity
    scale: Any = loss.anchor_scale
    log = similarity.log_scale if loss.exponent is None else similarity.log_weights
    log += scale(h.to(log)).log().mean()
    loss.anchor_scale = None


def place_of(loss: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Return the device and the precision of a loss."""
    tensors = [*loss.parameters(), *loss.buffers()]
    return (
        (tensors[0].device, tensors[0].dtype) if tensors else (torch.device("cpu"), torch.float32)
    )


def relaxations_of(loss: nn.Module) -> tuple[str, ...]:
    """Return the relaxations that a loss has, in their usual order; potentials do not count."""
    return tuple(name for name in RELAXATIONS if getattr(loss, name, None) is not None)


class Gain(NamedTuple):
    """The held-out gain of a relaxation, in nats, and its standard error."""

    mean: float
    error: float

    @property
    def is_significant(self) -> bool:
        """Whether the gain is surely positive, and large enough to matter."""
        return self.mean > MIN_GAIN and self.mean > STANDARD_ERRORS * self.error


def compare_relaxations(
    loss: ContrastiveLoss,
    candidates: Sequence[str],
    codes: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    head: str,
    provisional: Sequence[str] = (),
    steps: int = PROBE_STEPS,
) -> tuple[dict[str, Gain], dict[str, ContrastiveLoss]]:
    """Compare relaxations by their held-out gains, for the codes of a network.

    The network stays as it is. The parameters of the loss are fitted without and with each
    relaxation, and with them a linear map of the codes before their head: codes of a model without
    the relaxation have been stretched or turned to make up for it, and a network can undo that.

    Args:
        loss: The loss; left unchanged.
        candidates: Relaxations to try, each by itself.
        codes: Codes (N, n) of anchors and positives to fit with.
        held_out: Codes of held-out pairs to compare with.
        head: Where codes live: ``"sphere"``, ``"box"`` or ``"free"``.
        provisional: Relaxations that the loss has already; their gain is over a loss without them.
        steps: Steps of each fit.

    Returns:
        The gain of each relaxation, and the fitted loss with it.
    """
    held_out = _shuffled(*held_out)
    with random_stream(Generator().manual_seed(0)):
        before = _fit(loss, None, codes, held_out, head, steps)[1]
        fits = {name: _fit(loss, name, codes, held_out, head, steps) for name in candidates}
        without = {}
        for name in provisional:
            less = deepcopy(loss)
            detach(less, name, codes[0])
            without[name] = _fit(less, None, codes, held_out, head, steps)[1]
    gains = {name: _gain(before, after) for name, (_, after) in fits.items()}
    gains |= {name: _gain(other, before) for name, other in without.items()}
    return gains, {name: fitted for name, (fitted, _) in fits.items()}


def _fit(
    loss: ContrastiveLoss,
    name: str | None,
    codes: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    head: str,
    steps: int,
) -> tuple[ContrastiveLoss, Tensor]:
    """Return a loss with a relaxation, fitted to codes, and its values on held-out batches."""
    n = codes[0].shape[1]
    relaxed = deepcopy(loss)
    relaxed.gather = False
    attach(relaxed, [] if name is None else [name], n, codes[0].dtype)
    adapt = _LinearAdaptation(n, head).to(codes[0])
    if name == "factor_scale" and head == "sphere":
        adapt.turn_to_axes(*codes)
    if name == "dynamics":
        relaxed.dynamics.start(*codes)  # type: ignore[union-attr, operator]
    if name == "pairing":
        with torch.no_grad():
            scores = relaxed.scores(codes[0], codes[1].roll(1, 0))
        relaxed.pairing.start(scores)  # type: ignore[union-attr, operator]
    _minimise(relaxed, adapt, codes, steps)
    with torch.no_grad():
        return relaxed, _values(relaxed, *(adapt(part) for part in held_out))


def compare_losses(
    before: tuple[nn.Module, Tensor, Tensor], after: tuple[nn.Module, Tensor, Tensor]
) -> Gain:
    """Return the gain of one trained model over another, on the same held-out pairs.

    Args:
        before: A loss, and the codes (N, n) of anchors and positives that belong to it.
        after: Those of the other model.
    """
    values = []
    for loss, *codes in (before, after):
        alone: Any = deepcopy(loss).eval()
        alone.gather = False
        values.append(_values(alone, *_shuffled(*codes)))
    return _gain(*values)


def _shuffled(h: Tensor, h_pos: Tensor) -> tuple[Tensor, Tensor]:
    """Return pairs in random order: neighbours in a file are alike, and no negatives."""
    order = torch.randperm(len(h), generator=Generator().manual_seed(0)).to(h.device)
    return h[order], h_pos[order]


@torch.no_grad()
def _values(loss: nn.Module, h: Tensor, h_pos: Tensor) -> Tensor:
    """Return the values of a loss on batches of codes."""
    count = max(len(h) // GAIN_BATCH_SIZE, min(MIN_GAIN_BATCHES, len(h) // 2))
    parts = zip(h.tensor_split(count), h_pos.tensor_split(count), strict=True)
    return torch.stack([loss(a, b) for a, b in parts]).double()


def _minimise(
    loss: ContrastiveLoss, adapt: nn.Module, codes: tuple[Tensor, Tensor], steps: int
) -> None:
    """Minimise a loss over its parameters and those of the adaptation, on random batches."""
    named = [*loss.named_parameters(), *adapt.named_parameters()]
    logs = [p for key, p in named if key.rpartition(".")[2].startswith("log_")]
    rest = [p for key, p in named if not key.rpartition(".")[2].startswith("log_")]
    groups = [{"params": rest, "lr": PROBE_RATE}, {"params": logs, "lr": PROBE_LOG_RATE}]
    optimiser = torch.optim.Adam([group for group in groups if group["params"]], fused=True)
    rates = [group["lr"] for group in optimiser.param_groups]
    generator = Generator().manual_seed(0)
    loss.train()
    for step in range(steps):
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        rows = torch.randint(len(codes[0]), (PROBE_BATCH_SIZE,), generator=generator)
        rows = rows.to(codes[0].device)
        optimiser.zero_grad()
        loss(*adapt(torch.cat([part[rows] for part in codes])).chunk(2)).backward()
        optimiser.step()
    loss.eval()


class _LinearAdaptation(nn.Module):
    """A linear map of codes before their head: what a network can do with its last layer."""

    def __init__(self, n: int, head: str) -> None:
        super().__init__()
        self.head = head
        self.matrix = nn.Parameter(torch.eye(n))
        self.shift = nn.Parameter(torch.zeros(n))

    @torch.no_grad()
    def turn_to_axes(self, h: Tensor, h_pos: Tensor) -> None:
        """Start from the principal axes of differences within pairs."""
        differences = (h_pos - h).double()
        self.matrix.copy_(torch.linalg.eigh(differences.mT @ differences)[1].mT)

    def forward(self, h: Tensor) -> Tensor:
        if self.head == "box":
            h = torch.logit(h, eps=1e-4)
        h = h @ self.matrix.mT + self.shift
        if self.head == "sphere":
            return nn.functional.normalize(h)
        return torch.sigmoid(h) if self.head == "box" else h


def _gain(before: Tensor, after: Tensor) -> Gain:
    gains = before - after
    error = float(gains.std()) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
    return Gain(float(gains.mean()), error)


def relatedness(loss: nn.Module, h: Tensor, h_pos: Tensor) -> Tensor:
    """Return the probability (N,) that each pair of codes is related."""
    any_loss: Any = loss
    with torch.no_grad():
        place, dtype = place_of(loss)
        scores = any_loss.scores(*(part.to(place, dtype) for part in (h, h_pos)))
        related: Tensor = torch.sigmoid(scores - any_loss.pairing().to(scores))
    return related.cpu()
