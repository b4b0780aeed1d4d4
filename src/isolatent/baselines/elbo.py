r"""Terms of the losses of the VAE family, as functions of tensors.

A posterior is a diagonal normal :math:`q = N(\mu, e^{v})`, given by its means and log-variances
(B, n). Unless stated otherwise a function sums over pixels or dimensions and returns a tensor (B,)
with one number per observation or pair; the estimators average it over the batch.
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
    """Diagonal normal posteriors: means and log-variances (B, n)."""

    mean: Tensor
    log_variance: Tensor

    @property
    def variance(self) -> Tensor:
        """Variances (B, n)."""
        return self.log_variance.exp()

    def sample(self, noise: Tensor) -> Tensor:
        """Return codes μ + σ ε for standard normal noise ε (B, n)."""
        return self.mean + (0.5 * self.log_variance).exp() * noise

    def halves(self) -> tuple[Posterior, Posterior]:
        """Split posteriors (2B, n) of concatenated pairs into those of first and second members.

        Example:
            >>> first, second = Posterior(torch.zeros(6, 2), torch.zeros(6, 2)).halves()
            >>> len(first.mean), len(second.mean)
            (3, 3)
        """
        (a, b), (v, w) = (part.chunk(2) for part in self)
        return Posterior(a, v), Posterior(b, w)


def bernoulli_error(logits: Tensor, x: Tensor) -> Tensor:
    r"""Return :math:`-\log p(x)` of pixels in [0, 1] under Bernoulli distributions: (B,)."""
    return binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1)


def gaussian_error(mean: Tensor, x: Tensor, noise: float) -> Tensor:
    r"""Return :math:`\|x - \hat x\|^2 / 2s^2`: (B,).

    This is :math:`-\log N(x; \hat x, s^2)` up to a constant.

    Args:
        mean: Decoded observations :math:`\hat x` (B, m).
        x: Observations (B, m).
        noise: Standard deviation s.
    """
    return (x - mean).square().flatten(1).sum(1) / (2 * noise**2)


def entropy(q: Posterior) -> Tensor:
    r"""Return the entropy :math:`H(q) = \tfrac12 \sum_i (v_i + \log 2\pi + 1)`: (B,)."""
    return 0.5 * (q.log_variance + (LOG_2PI + 1)).sum(1)


def normal_cross_entropy(q: Posterior) -> Tensor:
    r"""Return the cross-entropy from q to a standard normal: (B,).

    .. math:: -E_q \log N(z; 0, 1) = \tfrac12 \sum_i (\mu_i^2 + e^{v_i} + \log 2\pi)
    """
    return 0.5 * (q.mean.square() + q.variance + LOG_2PI).sum(1)


def kl_to_standard_normal(q: Posterior) -> Tensor:
    r"""Return :math:`KL(q \| N(0, 1)) = \tfrac12 \sum_i (\mu_i^2 + e^{v_i} - v_i - 1)`: (B,).

    Example:
        >>> kl_to_standard_normal(Posterior(torch.tensor([[0.0, 2.0]]), torch.zeros(1, 2)))
        tensor([2.])
    """
    return 0.5 * (q.mean.square() + q.variance - q.log_variance - 1).sum(1)


def laplace_cross_entropy(q: Posterior, center: Tensor, rate: float) -> Tensor:
    r"""Return the cross-entropy :math:`-E_q \log p(z)` from q to a Laplace density p: (B,).

    .. math:: \sum_i \lambda E_q|z_i - c_i| - \log\tfrac{\lambda}{2},\quad
        E_q|z_i - c_i| = \sigma_i \sqrt{\tfrac2\pi}\, e^{-d_i^2 / 2\sigma_i^2}
        + d_i\, \mathrm{erf}\frac{d_i}{\sigma_i\sqrt2},\quad d = \mu - c

    where the expectation is the mean of a folded normal.

    Args:
        q: Posteriors.
        center: Location c of the Laplace density (B, n).
        rate: Rate λ of the Laplace density.
    """
    distance, variance = q.mean - center, q.variance
    deviation = variance.sqrt()
    width = math.sqrt(2 / math.pi) * deviation * (-distance.square() / (2 * variance)).exp()
    folded = width + distance * torch.erf(distance / (math.sqrt(2) * deviation))
    return (rate * folded - math.log(rate / 2)).sum(1)


def slow_divergence(
    q: Posterior, q_pos: Posterior, beta: float, gamma: float, rate: float
) -> Tensor:
    r"""Return the terms that SlowVAE adds to the reconstruction errors (`klindt2021`): (B,).

    .. math:: \beta \left(\bar C_N - \bar H\right) + \gamma \left(C_L - \bar H\right)

    with :math:`\bar H` and :math:`\bar C_N` the *means* over the two frames of the entropy and of
    the cross-entropy to a standard normal, and :math:`C_L = C(q, \mu') + C(q', \mu)` the *sum* of
    the cross-entropies of each frame to a Laplace density around the mean of the other frame.

    The terms are symmetric in the two frames. Each bracket contains one entropy, although the
    second contains two cross-entropies, as in public implementations. A bound on the likelihood
    averaged over both directions of time would contain :math:`\tfrac12 C_L`; relative to that
    bound the transition term is weighted twice, which affects the meaning of γ and the widths of
    the posteriors.

    Args:
        q: Posteriors of the first frames.
        q_pos: Posteriors of the second frames.
        beta: Weight β of the normal prior.
        gamma: Weight γ of the transition.
        rate: Rate λ of the Laplace transition.
    """
    mean_entropy = 0.5 * (entropy(q) + entropy(q_pos))
    normal = 0.5 * (normal_cross_entropy(q) + normal_cross_entropy(q_pos))
    laplace = laplace_cross_entropy(q, q_pos.mean, rate)
    laplace = laplace + laplace_cross_entropy(q_pos, q.mean, rate)
    return beta * (normal - mean_entropy) + gamma * (laplace - mean_entropy)


def twice_kl(q: Posterior, q_pos: Posterior) -> Tensor:
    r"""Return :math:`\delta_i = 2\,KL(q_i \| q'_i)` of each dimension: (B, n)."""
    ratio = (q.log_variance - q_pos.log_variance).exp()
    distance = (q.mean - q_pos.mean).square() / q_pos.variance
    return ratio + distance - 1 + q_pos.log_variance - q.log_variance


def shared_dimensions(q: Posterior, q_pos: Posterior) -> Tensor:
    r"""Return a mask (B, n) of the dimensions that the members of a pair share.

    .. math:: \delta_i < \tfrac12 (\min_j \delta_j + \max_j \delta_j)

    with δ from :func:`twice_kl`, which is not symmetric in the frames. If all δ of a pair are
    equal, all its dimensions are shared.

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
    r"""Average the means and the variances of two posteriors (Ada-GVAE)."""
    variance = 0.5 * (q.variance + q_pos.variance)
    return Posterior(0.5 * (q.mean + q_pos.mean), variance.log())


def product_posterior(q: Posterior, q_pos: Posterior) -> Posterior:
    r"""Return the normal density proportional to :math:`\sqrt{q\,q'}` (Ada-ML-VAE).

    .. math:: \frac{1}{\sigma^2} = \frac12 \left(\frac{1}{\sigma_1^2} + \frac{1}{\sigma_2^2}\right),
        \qquad \mu = \frac{\sigma^2}{2}
        \left(\frac{\mu_1}{\sigma_1^2} + \frac{\mu_2}{\sigma_2^2}\right)

    The square root, also taken by the public implementation, leaves two equal posteriors
    unchanged; the product without it has the same mean and half the variance.
    """
    precision, precision_pos = (-q.log_variance).exp(), (-q_pos.log_variance).exp()
    total = precision + precision_pos
    mean = (precision * q.mean + precision_pos * q_pos.mean) / total
    return Posterior(mean, -(0.5 * total).log())


def share(
    q: Posterior, q_pos: Posterior, average: Callable[[Posterior, Posterior], Posterior]
) -> Posterior:
    """Replace the shared dimensions of two posteriors by their average.

    Args:
        q: Posteriors of the first frames.
        q_pos: Posteriors of the second frames.
        average: :func:`mean_posterior` or :func:`product_posterior`.

    Returns:
        Posteriors (2B, n) of the first frames, followed by those of the second frames.
    """
    shared, common = shared_dimensions(q, q_pos), average(q, q_pos)
    means, log_variances = (
        torch.cat([torch.where(shared, c, a), torch.where(shared, c, b)])
        for c, a, b in zip(common, q, q_pos, strict=True)
    )
    return Posterior(means, log_variances)
