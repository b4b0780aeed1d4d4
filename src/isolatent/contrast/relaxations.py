r"""Learned parts of a score that take the place of assumptions about the pairs.

With all of them, the score of an anchor u and a candidate v for its positive is

.. math:: s(u, v) = -\lambda(u) \sum_k w_k |\varphi(u)_k - v_k|^p - \alpha(u) - \tilde\alpha(v)

and the density ratio of pairs is modelled as :math:`e^s + e^b`. Each part starts where it changes
nothing: ``Pairing`` is b, ``AnchorScale`` is λ, ``FactorScale`` is w, ``LinearDynamics`` and
``NetworkDynamics`` are φ. α and α̃ are the potentials of :mod:`isolatent.contrast.similarities`. Any
module with the same shapes may be used instead.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer, check_real

__all__ = [
    "AnchorScale",
    "FactorScale",
    "LinearDynamics",
    "NetworkDynamics",
    "Pairing",
    "Standardization",
]

MOMENTUM = 0.05  # of the running mean and variance of codes
MAX_LOG_SCALE = 5.0  # bound of log λ, so that no anchor can dominate a batch


class Standardization(nn.Module):
    """Subtract the mean and divide by the standard deviation of the codes seen in training.

    Codes without a bound can be of any size, on which a network should not depend. The statistics
    are buffers that :meth:`track` updates, so that the result of a row does not depend on the other
    rows of its batch.

    Args:
        n: Number of codes.

    Example:
        >>> standardize = Standardization(1)
        >>> standardize.track(torch.tensor([[4.0], [6.0]]))
        >>> standardize(torch.tensor([[5.0], [7.0]]))
        tensor([[0.],
                [2.]])
    """

    mean: Tensor
    variance: Tensor
    tracked: Tensor

    def __init__(self, n: int) -> None:
        super().__init__()
        check_integer("n", n, at_least=1)
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("variance", torch.ones(n))
        self.register_buffer("tracked", torch.tensor(False))

    @torch.no_grad()
    def track(self, h: Tensor) -> None:
        """Update the running statistics with codes (B, n); the first codes replace them."""
        if len(h) < 2:
            return
        share = torch.where(self.tracked, MOMENTUM, 1.0).to(self.mean)
        mean = h.mean(0)
        variance = (h - mean).square().mean(0)  # var(0) is five times slower for few columns
        self.mean.lerp_(mean.to(self.mean), share)
        self.variance.lerp_(variance.to(self.variance), share)
        self.tracked.fill_(True)

    def forward(self, h: Tensor) -> Tensor:
        """Return standardized codes (B, n)."""
        return (h - self.mean.to(h)) * self.variance.to(h).clamp(min=1e-12).rsqrt()


class Pairing(nn.Module):
    r"""The term :math:`e^b` of a density ratio, for pairs that are not related at all.

    If a share ε of the positives is drawn from the marginal, independently of the anchor, the
    density ratio is :math:`(1 - \varepsilon) r_1 + \varepsilon`, with :math:`r_1` that of related
    pairs. A pair of score s is related with probability :math:`e^s / (e^s + e^b)`.

    Args:
        init: The initial b. By default small: all pairs count as related.

    Example:
        >>> Pairing(init=0.0).relatedness(torch.tensor([0.0, 10.0]))
        tensor([0.5000, 1.0000], grad_fn=<SigmoidBackward0>)
    """

    def __init__(self, init: float = -5.0) -> None:
        super().__init__()
        self.log_unrelated = nn.Parameter(torch.tensor(check_real("init", init)))

    def forward(self) -> Tensor:
        """Return b."""
        return self.log_unrelated

    @torch.no_grad()
    def start(self, scores: Tensor, share: float = 0.05) -> None:
        """Set b so that about a share of all pairs would count as unrelated.

        Args:
            scores: Scores of pairs that are unrelated, such as those of shuffled positives.
            share: The share ε.
        """
        mean = scores.logsumexp(0) - math.log(len(scores))
        self.log_unrelated.copy_(mean + math.log(share / (1 - share)))

    def relatedness(self, scores: Tensor) -> Tensor:
        """Return the probability that a pair is related, for pairs of these scores."""
        return torch.sigmoid(scores - self.log_unrelated.to(scores))


class AnchorScale(nn.Module):
    r"""A multiplier λ(u) > 0 of the distance that depends on the anchor: a perceptron, 1 at first.

    It models steps that are wider in some places than in others. Positives gather where steps are
    narrow, so they are not distributed as the anchors are: use potentials as well.

    Args:
        n: Number of codes.
        hidden: Width of the hidden layer.

    Example:
        >>> AnchorScale(2)(torch.zeros(3, 2))
        tensor([1., 1., 1.], grad_fn=<ExpBackward0>)
    """

    def __init__(self, n: int, hidden: int = 64) -> None:
        super().__init__()
        self.standardize = Standardization(n)
        self.hidden = nn.Linear(n, check_integer("hidden", hidden, at_least=1))
        self.out = nn.Linear(hidden, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def track(self, h: Tensor) -> None:
        """Update the statistics by which codes are standardized."""
        self.standardize.track(h)

    def forward(self, h: Tensor) -> Tensor:
        """Return the multiplier (B,) of each anchor h (B, n)."""
        log = _perceptron(self.hidden, self.out, self.standardize(h)).squeeze(-1)
        return torch.exp(MAX_LOG_SCALE * torch.tanh(log / MAX_LOG_SCALE))


class FactorScale(nn.Module):
    """Relative weights of the codes in a distance; their geometric mean is 1.

    Args:
        n: Number of codes.

    Example:
        >>> FactorScale(2)()
        tensor([1., 1.], grad_fn=<ExpBackward0>)
    """

    def __init__(self, n: int) -> None:
        super().__init__()
        self.log_weights = nn.Parameter(torch.zeros(check_integer("n", n, at_least=1)))

    def forward(self) -> Tensor:
        """Return the weights (n,)."""
        return torch.exp(self.log_weights - self.log_weights.mean())


class LinearDynamics(nn.Module):
    """The map of an anchor to the centre of its positives: affine, the identity at first.

    Args:
        n: Number of codes.

    Example:
        >>> LinearDynamics(2)(torch.tensor([[1.0, 2.0]])).detach()
        tensor([[1., 2.]])
    """

    def __init__(self, n: int) -> None:
        super().__init__()
        check_integer("n", n, at_least=1)
        self.change = nn.Parameter(torch.zeros(n, n))
        self.shift = nn.Parameter(torch.zeros(n))

    @property
    def matrix(self) -> Tensor:
        """The matrix (n, n) that maps anchors, as columns, to the centres of their positives."""
        return torch.eye(len(self.change)).to(self.change) + self.change

    @torch.no_grad()
    def start(self, h: Tensor, h_pos: Tensor) -> None:
        """Start from the linear regression of positives on anchors (N, n), instead of the identity.

        From the identity, training can settle where factors are lost whose positives lie elsewhere.
        """
        h, h_pos = h.detach().cpu().double(), h_pos.detach().cpu().double()
        centre, centre_pos = h.mean(0), h_pos.mean(0)
        slope = torch.linalg.lstsq(h - centre, h_pos - centre_pos, driver="gelsd").solution
        self.change.copy_(slope.mT - torch.eye(len(slope), dtype=torch.float64))
        self.shift.copy_(centre_pos - centre @ slope)

    def forward(self, h: Tensor) -> Tensor:
        """Return the centres (B, n) for anchors h (B, n)."""
        return h + h @ self.change.mT.to(h) + self.shift.to(h)


class NetworkDynamics(nn.Module):
    """The map of an anchor to the centre of its positives: a residual perceptron.

    It is the identity at first. The guarantees for linear dynamics do not extend to it.

    Args:
        n: Number of codes.
        hidden: Width of the hidden layer.

    Example:
        >>> NetworkDynamics(2)(torch.tensor([[1.0, 2.0]])).detach()
        tensor([[1., 2.]])
    """

    def __init__(self, n: int, hidden: int = 64) -> None:
        super().__init__()
        self.standardize = Standardization(n)
        self.hidden = nn.Linear(n, check_integer("hidden", hidden, at_least=1))
        self.out = nn.Linear(hidden, n)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def track(self, h: Tensor) -> None:
        """Update the statistics by which codes are standardized."""
        self.standardize.track(h)

    def forward(self, h: Tensor) -> Tensor:
        """Return the centres (B, n) for anchors h (B, n)."""
        return h + _perceptron(self.hidden, self.out, self.standardize(h))


def _perceptron(hidden: nn.Linear, out: nn.Linear, h: Tensor) -> Tensor:
    """Return ``out(silu(hidden(h)))`` (B, m) of codes (B, n).

    All matrices are transposed: a product with few columns takes four times as long on a CPU as one
    with few rows, and gradients pass through three of them.
    """
    inner = torch.addmm(hidden.bias[:, None], hidden.weight, h.mT.contiguous())
    return torch.addmm(out.bias[:, None], out.weight, nn.functional.silu(inner)).mT
