"""Codes with their uncertainty: encoders of posteriors, and what their spread means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from scipy import optimize
from torch import Generator, Tensor, nn

from isolatent.checks import check_real
from isolatent.contrast import NetworkPotential, PosteriorHead, PosteriorInfoNCE
from isolatent.contrast.posteriors import GEOMETRIES, posterior_size, posterior_std
from isolatent.contrast.vmf import concentration
from isolatent.encoders import Whitening
from isolatent.theory import Beliefs
from isolatent.training.assembly import build_encoder, build_loss
from isolatent.training.capacity import default_capacity
from isolatent.training.recipe import Recipe

__all__ = [
    "NOISE_RECIPE",
    "FirstCodes",
    "PosteriorSpread",
    "build_noisy_encoder",
    "build_objective",
    "calibrate_noise",
    "check_noise",
    "check_noise_share",
    "wrap_encoder",
]

CALIBRATION_BATCH_SIZE = 256  # of the calibration
# Without a recipe: a step takes time with the square of the batch, and noisy weights blur spreads.
NOISE_RECIPE = Recipe(batch_size=256, learning_rate=3e-3)
LOG_FACTOR_BOUND = 2.0  # of the calibration, as powers of e
SEARCH = {"maxiter": 20, "xatol": 0.01}
FACTOR_PENALTY = 1e-3  # nats; keeps a factor that the data do not determine near one


def check_noise(
    relaxed: Sequence[str],
    beliefs: Beliefs,
    loss: str | nn.Module,
    potentials: str | None,
    processes: int,
) -> None:
    """Raise an error if noise is relaxed with what its model does not cover.

    Args:
        relaxed: Relaxations, ``"noise"`` among them or not.
        beliefs: What is believed about the world.
        loss: The loss.
        potentials: The potentials that were asked for, if any.
        processes: Number of processes.
    """
    if "noise" not in relaxed:
        return
    if others := [name for name in relaxed if name not in ("noise", "marginal")]:
        raise ValueError(
            f"relax must not contain {', '.join(map(repr, others))} besides 'noise': what pairs "
            "identify then is not known; 'marginal' may be relaxed with it"
        )
    covered = (("sphere", "vmf"), ("euclidean", "normal"))
    if (beliefs.space, beliefs.conditional) not in covered:
        raise ValueError(
            "relax must not contain 'noise' unless space='sphere' with conditional='vmf', or "
            f"space='euclidean' with conditional='normal'; got {beliefs}: posteriors have no "
            "closed form there"
        )
    if loss != "infonce":
        got = loss if isinstance(loss, str) else type(loss).__name__
        raise ValueError(f"loss must be 'infonce' with relax=('noise',), got {got!r}")
    if potentials is not None:
        raise ValueError(
            f"potentials must be None with relax=('noise',), got {potentials!r}: they follow from "
            "the marginal"
        )
    if processes > 1:
        raise ValueError(
            f"devices and num_nodes must be 1 with relax=('noise',), got {processes} processes"
        )


def check_noise_share(share: Any, relaxed: Sequence[str]) -> float | None:
    """Return the share of noise as a number, None where it is not given."""
    if share is None:
        return None
    if "noise" not in relaxed:
        raise ValueError(f"noise_share must be None without relax=('noise',), got {share!r}")
    value = check_real("noise_share", share, at_least=0)
    if value > 1:
        raise ValueError(f"noise_share must be at most 1, got {value:g}")
    return value


def build_noisy_encoder(
    encoder: str | nn.Module,
    shape: tuple[int, ...],
    beliefs: Beliefs,
    n_components: int,
    *,
    whitening: Whitening | None = None,
    counts: bool = False,
) -> nn.Sequential:
    """Return an encoder that maps observations to posteriors.

    Args:
        encoder: Name of an encoder, or a module that maps observations to as many numbers as a
            posterior has.
        shape: Shape of an observation.
        beliefs: What is believed about the world.
        n_components: Number of codes.
        whitening: First layer of ``"mlp"``.
        counts: Whether observations are counts.
    """
    head = PosteriorHead(n_components, beliefs.head)
    if isinstance(encoder, nn.Module):
        return nn.Sequential(deepcopy(encoder), head)
    network = build_encoder(
        *(encoder, shape, Beliefs("euclidean"), head.n_inputs),
        whitening=whitening,
        counts=counts,
        capacity=default_capacity(n_components),
    )
    assert isinstance(network, nn.Sequential)
    return network.append(head)


def build_objective(
    name: str,
    beliefs: Beliefs,
    n_components: int,
    potentials: str | None = None,
    relaxed: Sequence[str] = (),
) -> nn.Module:
    """Return the loss of a name: that of posteriors if noise is relaxed."""
    if "noise" not in relaxed or beliefs.head not in GEOMETRIES:
        names = [one for one in relaxed if one != "noise"]
        return build_loss(name, beliefs, n_components, potentials, names)
    modules: list[nn.Module | None] = [None, None]
    if beliefs.marginal != "uniform" or "marginal" in relaxed:
        size = posterior_size(n_components, beliefs.head)
        modules = [NetworkPotential(size), NetworkPotential(size)]
    return PosteriorInfoNCE(
        n_components, beliefs.head, potential=modules[0], potential_pos=modules[1]
    )


class FirstCodes(nn.Module):
    """The codes (N, n) of posteriors: the last layer of a fitted encoder.

    Args:
        n: Number of codes.
    """

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def forward(self, h: Tensor) -> Tensor:
        """Leave the spread of posteriors out."""
        return h[:, : self.n]


class PosteriorSpread(nn.Module):
    """The spread of the posteriors of an encoder, in units that people use: (N, n).

    Args:
        network: Maps observations to posteriors; ends in a :class:`PosteriorHead`.
        concentrations: Whether to return concentrations κ, in every column, for a sphere, instead
            of the standard deviation of each code.
    """

    def __init__(self, network: nn.Sequential, concentrations: bool = False) -> None:
        super().__init__()
        self.network, self.concentrations = network, concentrations

    def forward(self, x: Tensor) -> Tensor:
        """Return the spread for observations."""
        head: Any = self.network[-1]
        posterior = self.network(x)
        if self.concentrations:
            return concentration(posterior[:, head.n :], head.n).expand(-1, head.n)
        return posterior_std(posterior, head.n, head.geometry)


def wrap_encoder(
    function: Callable[[nn.Module], float] | None, n: int
) -> Callable[[nn.Module], float] | None:
    """Return a function of encoders of codes as a function of encoders of posteriors."""
    if function is None:
        return None
    return lambda network: function(nn.Sequential(network, FirstCodes(n)))


def calibrate_noise(
    loss: PosteriorInfoNCE, head: PosteriorHead, h: Tensor, h_pos: Tensor, share: float
) -> dict[str, Any]:
    """Set the spread of posteriors by held-out pairs, and by the share that is noise.

    First all spreads get one factor, the one that minimises the loss of these pairs: a network that
    has learned its training pairs too well is too sure of its codes.
    Then the share is set, which the loss cannot tell.

    Args:
        loss: The trained loss, changed in place.
        head: The head of the encoder, changed in place.
        h: Posteriors (N, n_inputs) of held-out anchors.
        h_pos: Those of their positives.
        share: The share of the spread within pairs that is noise.

    Returns:
        The measured figures, as plain data.
    """
    n = loss.n
    factor = _fit_factor(loss, h, h_pos)
    with torch.no_grad():
        head.factor *= factor
        loss.step *= factor
    h, h_pos = (torch.cat([part[:, :n], factor * part[:, n:]], dim=1) for part in (h, h_pos))
    before = head.shift.clone()
    found, least = loss.set_noise_share(head, h, h_pos, share)
    spread = (torch.cat([h, h_pos])[:, n:] + (head.shift - before).to(h)).clamp(min=1e-6)
    codes = torch.cat([h, h_pos])[:, :n]
    std = posterior_std(torch.cat([codes, spread], dim=1), n, loss.geometry)
    return {
        "median_std": float(std.median()),
        "share": found,
        "least_share": least,
        "asked_share": share,
        "factor": factor,
    }


def _fit_factor(loss: PosteriorInfoNCE, h: Tensor, h_pos: Tensor) -> float:
    """Return the factor of all spreads that minimises the loss of pairs."""
    count = max(1, len(h) // CALIBRATION_BATCH_SIZE)
    order = torch.randperm(len(h), generator=Generator().manual_seed(0)).to(h.device)
    parts = (posteriors[order].tensor_split(count) for posteriors in (h, h_pos))
    batches = [*zip(*parts, strict=True)]
    trial = deepcopy(loss).eval()

    @torch.no_grad()
    def value(log: float) -> float:
        factor = math.exp(log)
        trial.step.copy_(factor * loss.step)
        scaled = (
            [torch.cat([x[:, : loss.n], factor * x[:, loss.n :]], dim=1) for x in batch]
            for batch in batches
        )
        total = sum(float(trial(*batch)) * len(batch[0]) for batch in scaled)
        return total / len(h) + FACTOR_PENALTY * log**2

    bounds = (-LOG_FACTOR_BOUND, LOG_FACTOR_BOUND)
    found = optimize.minimize_scalar(value, bounds=bounds, method="bounded", options=SEARCH)
    return math.exp(found.x)
