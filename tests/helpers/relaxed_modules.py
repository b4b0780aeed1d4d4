"""Learned parts of a score, away from their start, where they would change nothing."""

import torch

from isolatent.contrast import (
    AnchorScale,
    FactorScale,
    LinearDynamics,
    NetworkDynamics,
    NetworkPotential,
    Pairing,
)

FRESH = {
    "pairing": lambda n: {"pairing": Pairing()},
    "anchor_scale": lambda n: {"anchor_scale": AnchorScale(n, 3)},
    "factor_scale": lambda n: {"factor_scale": FactorScale(n)},
    "linear dynamics": lambda n: {"dynamics": LinearDynamics(n)},
    "network dynamics": lambda n: {"dynamics": NetworkDynamics(n, 3)},
    "potentials": lambda n: {
        "potential": NetworkPotential(n, 3),
        "potential_pos": NetworkPotential(n, 3),
    },
}
FRESH["all"] = lambda n: {
    option: module for name in FRESH if name != "all" for option, module in FRESH[name](n).items()
}


def away_from_start(module, generator, std=0.5):
    """Set the parameters and the tracked statistics of a module at random; return the module."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator))
        for part in module.modules():
            if hasattr(part, "tracked"):
                part.track(1 + 2 * torch.randn(8, len(part.mean), generator=generator))
    return module


def relaxed(name, n, generator):
    """Options of a loss with the relaxations of a name, all away from their start."""
    return {option: away_from_start(module, generator) for option, module in FRESH[name](n).items()}
