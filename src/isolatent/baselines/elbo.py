r"""The losses of the VAE family, as functions of tensors.

A posterior is a diagonal normal :math:`q = N(\mu, e^{v})`, given as its means and log-variances
(B, n). Every function sums over pixels or dimensions, and what it returns (B,) has one number for
each observation or pair; the estimators take the mean over the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

__all__ = [
    "Posterior",
    "bernoulli_error",
    "entropy",
    "gaussian_error",
    "kl_to_standard_normal",
    "laplace_cross_entropy",
    "mean_posterior",
    "normal_cross_entropy",
    "product_posterior",
    "share",
    "shared_dimensions",
    "slow_divergence",
    "twice_kl",
]

LOG_2PI = math.log(2 * math.pi)


class Posterior(NamedTuple):
    """Means and log-variances (B, n)."""

    mean: Tensor
    log_variance: Tensor

    @property
    def variance(self) -> Tensor:
        """Variances (B, n)."""
        return self.log_variance.exp()

    def sample(self, noise: Tensor) -> Tensor:
        """Codes μ + σ ε for standard normal noise ε (B, n)."""
        return self.mean + (0.5 * self.log_variance).exp() * noise

    def halves(self) -> tuple[Posterior, Posterior]:
        """Those of the first and of the second observations of pairs, which lie one after another.

        Example:
            >>> first, second = Posterior(torch.zeros(6, 2), torch.zeros(6, 2)).halves()
            >>> len(first.mean), len(second.mean)
            (3, 3)
        """
        (a, b), (v, w) = (part.chunk(2) for part in self)
        return Posterior(a, v), Posterior(b, w)


def bernoulli_error(logits: Tensor, x: Tensor) -> Tensor:
    r""":math:`-\log p(x)` for pixels in [0, 1] that are Bernoulli with these logits: (B,)."""
    return binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1)


def gaussian_error(mean: Tensor, x: Tensor, noise: float) -> Tensor:
    r""":math:`\|x - \hat x\|^2 / 2s^2`: :math:`-\log N(x; \hat x, s^2)` but for a constant.

    Args:
        mean: What was decoded (B, m).
        x: What was observed (B, m).
        noise: The standard deviation s.
    """
    return (x - mean).square().flatten(1).sum(1) / (2 * noise**2)


def entropy(q: Posterior) -> Tensor:
    r""":math:`H(q) = \tfrac12 \sum_i (v_i + \log 2\pi + 1)`: (B,)."""
    return 0.5 * (q.log_variance + (LOG_2PI + 1)).sum(1)


def normal_cross_entropy(q: Posterior) -> Tensor:
    r""":math:`-E_q \log N(z; 0, 1) = \tfrac12 \sum_i (\mu_i^2 + e^{v_i} + \log 2\pi)`: (B,)."""
    return 0.5 * (q.mean.square() + q.variance + LOG_2PI).sum(1)


def kl_to_standard_normal(q: Posterior) -> Tensor:
    r""":math:`KL(q \| N(0, 1)) = \tfrac12 \sum_i (\mu_i^2 + e^{v_i} - v_i - 1)`: (B,).

    Example:
        >>> kl_to_standard_normal(Posterior(torch.tensor([[0.0, 2.0]]), torch.zeros(1, 2)))
        tensor([2.])
    """
    return 0.5 * (q.mean.square() + q.variance - q.log_variance - 1).sum(1)


def laplace_cross_entropy(q: Posterior, center: Tensor, rate: float) -> Tensor:
    r""":math:`-E_q \log p(z)` for a Laplace density of that rate around ``center``: (B,).

    .. math:: \sum_i \lambda E_q|z_i - c_i| - \log\tfrac{\lambda}{2},\quad
        E_q|z_i - c_i| = \sigma_i \sqrt{\tfrac2\pi}\, e^{-d_i^2 / 2\sigma_i^2}
        + d_i\, \mathrm{erf}\frac{d_i}{\sigma_i\sqrt2},\quad d = \mu - c

    The second is the mean of a folded normal.
    """
    distance, variance = q.mean - center, q.variance
    deviation = variance.sqrt()
    width = math.sqrt(2 / math.pi) * deviation * (-distance.square() / (2 * variance)).exp()
    folded = width + distance * torch.erf(distance / (math.sqrt(2) * deviation))
    return (rate * folded - math.log(rate / 2)).sum(1)


def slow_divergence(
    q: Posterior, q_pos: Posterior, beta: float, gamma: float, rate: float
) -> Tensor:
    r"""What SlowVAE adds to the reconstruction of both frames of a pair (`klindt2021`): (B,).

    .. math:: \beta \left(\bar C_N - \bar H\right) + \gamma \left(C_L - \bar H\right)

    with :math:`\bar H` and :math:`\bar C_N` the *means* over the two frames of the entropy and of
    the cross-entropy to a standard normal, and :math:`C_L = C(q, \mu') + C(q', \mu)` the *sum* of
    the cross-entropies of each frame to a Laplace density around the other's mean.

    So time has no direction; each of the two brackets has one entropy, although the second has two
    cross-entropies. Public implementations have it so. A bound on the likelihood, averaged over
    both directions, would have :math:`\tfrac12 C_L`: against it, slowness counts twice, so γ and
    the posteriors' widths are to be read with that in mind.

    Args:
        q: Posteriors of the first frames.
        q_pos: Posteriors of the second frames.
        beta: Weight of the normal prior.
        gamma: Weight of the transition.
        rate: λ of the Laplace transition.
    """
    mean_entropy = 0.5 * (entropy(q) + entropy(q_pos))
    normal = 0.5 * (normal_cross_entropy(q) + normal_cross_entropy(q_pos))
    laplace = laplace_cross_entropy(q, q_pos.mean, rate)
    laplace = laplace + laplace_cross_entropy(q_pos, q.mean, rate)
    return beta * (normal - mean_entropy) + gamma * (laplace - mean_entropy)


def twice_kl(q: Posterior, q_pos: Posterior) -> Tensor:
    r""":math:`\delta_i = 2\,KL(q_i \| q'_i)` for each dimension: (B, n)."""
    ratio = (q.log_variance - q_pos.log_variance).exp()
    distance = (q.mean - q_pos.mean).square() / q_pos.variance
    return ratio + distance - 1 + q_pos.log_variance - q.log_variance


def shared_dimensions(q: Posterior, q_pos: Posterior) -> Tensor:
    r"""Which dimensions a pair has in common: (B, n), true where δ lies below the middle.

    .. math:: \delta_i < \tfrac12 (\min_j \delta_j + \max_j \delta_j)

    with δ of :func:`twice_kl`, which is not symmetric in the frames. Where all δ are equal nothing
    says what changed, and all dimensions are shared.

    Example:
        >>> mean = torch.tensor([[0.0, 0.0, 0.0]])
        >>> moved = torch.tensor([[0.0, 0.5, 3.0]])
        >>> shared_dimensions(Posterior(mean, mean), Posterior(moved, mean))
        tensor([[ True,  True, False]])
    """
    delta = twice_kl(q, q_pos).detach()
    low, high = delta.amin(1, keepdim=True), delta.amax(1, keepdim=True)
    return (delta < 0.5 * (low + high)) | (low == high)


def mean_posterior(q: Posterior, q_pos: Posterior) -> Posterior:
    r"""The mean of the means, and of the variances (Ada-GVAE)."""
    variance = 0.5 * (q.variance + q_pos.variance)
    return Posterior(0.5 * (q.mean + q_pos.mean), variance.log())


def product_posterior(q: Posterior, q_pos: Posterior) -> Posterior:
    r"""The normal proportional to :math:`\sqrt{q\,q'}` (Ada-ML-VAE).

    .. math:: \frac{1}{\sigma^2} = \frac12 \left(\frac{1}{\sigma_1^2} + \frac{1}{\sigma_2^2}\right),
        \qquad \mu = \frac{\sigma^2}{2}
        \left(\frac{\mu_1}{\sigma_1^2} + \frac{\mu_2}{\sigma_2^2}\right)

    The root, which the public implementation has too, leaves two equal posteriors as they are; the
    product itself has the same mean and half the variance.
    """
    precision, precision_pos = (-q.log_variance).exp(), (-q_pos.log_variance).exp()
    total = precision + precision_pos
    mean = (precision * q.mean + precision_pos * q_pos.mean) / total
    return Posterior(mean, -(0.5 * total).log())


def share(
    q: Posterior, q_pos: Posterior, average: Callable[[Posterior, Posterior], Posterior]
) -> Posterior:
    """Posteriors (2B, n) of both frames, with the average where the pair has it in common.

    Args:
        q: Posteriors of the first frames.
        q_pos: Posteriors of the second frames.
        average: :func:`mean_posterior` or :func:`product_posterior`.
    """
    shared, common = shared_dimensions(q, q_pos), average(q, q_pos)
    means, log_variances = (
        torch.cat([torch.where(shared, c, a), torch.where(shared, c, b)])
        for c, a, b in zip(common, q, q_pos, strict=True)
    )
    return Posterior(means, log_variances)
