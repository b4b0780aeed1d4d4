"""AdamW in which the weights of some layers take orthogonalised steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isolatent.encoders import MLP
from isolatent.streams import Dropout

__all__ = ["MANY_CODES", "OrthogonalAdamW", "matrices_of_many_codes", "orthogonalize"]

MANY_CODES = 20  # from which on orthogonalised steps are far ahead
SMOOTHING = 0.95
STEP_SIZE = 0.2  # root mean square of the entries of a step at rate 1, about that of AdamW
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the polynomial of one iteration


class OrthogonalAdamW(torch.optim.AdamW):
    r"""AdamW, except for groups of parameters with ``orthogonal=True``, all of them matrices.

    The step of such a matrix is its momentum :math:`M = U \Sigma V^\top` with all singular values
    set to about one, :math:`U V^\top`. Directions in which gradients are small, as those of most
    factors are where there are many, are then learned as fast as the others.

    Its entries are scaled to the size that those of AdamW have, so that one learning rate serves
    both.

    ``torch.optim.Muon`` is missing from the older versions of torch that are supported, and takes
    matrices alone: a run would have two optimisers to resume.

    References:
        | Muon: An optimizer for hidden layers in neural networks (Jordan et al. 2024)

    Example:
        >>> weight = nn.Parameter(torch.eye(2))
        >>> group = {"params": [weight], "orthogonal": True, "weight_decay": 0.0}
        >>> optimiser = OrthogonalAdamW([group], lr=0.1)
        >>> weight.square().sum().backward()
        >>> optimiser.step()
        >>> bool(weight.trace() < 2)
        True
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Do one step; gradients of the matrices are taken."""
        for group in self.param_groups:
            if group.get("orthogonal", False):
                for weight in group["params"]:
                    self._turn(weight, group["lr"], group["weight_decay"])
        return super().step(closure)

    def _turn(self, weight: Tensor, rate: float, decay: float) -> None:
        gradient, weight.grad = weight.grad, None  # so that AdamW leaves it as it is
        if gradient is None:
            return
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros(())  # AdamW expects it of every state
            state["momentum"] = torch.zeros_like(weight)
        state["step"] += 1
        momentum = state["momentum"].lerp_(gradient, 1 - SMOOTHING)
        direction = orthogonalize(gradient.lerp(momentum, SMOOTHING))
        weight.mul_(1 - rate * decay)
        weight.add_(direction, alpha=-rate * STEP_SIZE * max(weight.shape) ** 0.5)


def orthogonalize(matrix: Tensor) -> Tensor:
    r"""Return a matrix with the same singular vectors and singular values of about one.

    The iteration :math:`X \to a X + b X X^\top X + c (X X^\top)^2 X` maps singular values in (0, 1]
    to between 0.7 and 1.2, unless they are tiny.

    Args:
        matrix: A matrix (k, m).

    Example:
        >>> found = orthogonalize(torch.diag(torch.tensor([5.0, 0.5])))
        >>> bool(((found.diagonal() - 1).abs() < 0.35).all())
        True
    """
    a, b, c = COEFFICIENTS
    x = matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp_min(torch.finfo(x.dtype).tiny)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if matrix.shape[0] > matrix.shape[1] else x


def matrices_of_many_codes(network: nn.Module) -> list[Tensor]:
    """Return the weights of the layers of default perceptrons that have many codes.

    Dropout adds noise of its own, for which AdamW was found to be good enough.
    """
    found: list[Tensor] = []
    for module in network.modules():
        if type(module) is not MLP:  # the papers' one is trained as published
            continue
        last = module.network[-1]
        assert isinstance(last, nn.Linear)
        parts = [*module.modules()]
        if last.out_features >= MANY_CODES and not any(isinstance(x, Dropout) for x in parts):
            found += [part.weight for part in parts if isinstance(part, nn.Linear)]
    return found
