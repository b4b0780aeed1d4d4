r"""Codes with their uncertainty: encoders that give a distribution of codes for each observation.

Observations x, x' are ambiguous: they leave posteriors p(z|x) and p(z'|x') of their latents, whose
ratio :math:`r(z, z') = p(z, z') / (p(z) p(z'))` is :math:`e^s` of the declared conditional. The
ratio of the observations is then its expectation,

.. math:: r(x, x') = E_{z \sim p(z|x)}\, E_{z' \sim p(z'|x')}\, r(z, z'),

and InfoNCE with the logarithm of this as its score has its optimum at the true posteriors, up to
what ``docs/theory.md`` says. The expectation is computed, not sampled:

* normal posteriors with variances t, t' and normal steps of variance τ² for each code: exactly, as
  the density of a normal with variances τ² + t + t', up to a constant,
* vMF posteriors and vMF steps on a sphere, whose spreads are :math:`w = -\log A_n(\kappa)`: as a
  vMF with the spread :math:`\tau + w + w'`. Its mean is exact, as mean lengths multiply, and it is
  exact for concentrated and for flat distributions; in between it is off by some per cent of
  a nat.

References:
    | Probabilistic Contrastive Learning Recovers the Correct Aleatoric Uncertainty of Ambiguous
    | Inputs (Kirchhof et al. 2023), whose MCInfoNCE samples the expectation
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from isolatent.checks import check_integer, check_one_of
from isolatent.contrast.vmf import log_vmf_ratio, tangent_variances

__all__ = [
    "GEOMETRIES",
    "PosteriorHead",
    "PosteriorInfoNCE",
    "expected_scores",
    "posterior_size",
    "posterior_std",
]

GEOMETRIES = ("sphere", "free")
LOG_START = -1.4  # of the spread of an untrained posterior
LOG_RANGE = 6.0  # by which spreads may differ from their start, as powers of e
LEAST = 1e-6  # spread of a posterior


def posterior_size(n: int, geometry: str) -> int:
    """Return how many numbers describe the posterior of n codes.

    Example:
        >>> posterior_size(3, "sphere"), posterior_size(3, "free")
        (4, 6)
    """
    check_one_of("geometry", geometry, GEOMETRIES)
    return n + (1 if geometry == "sphere" else n)


class PosteriorHead(nn.Module):
    r"""The last layer of an encoder that gives a posterior: its mode, and its spread.

    A posterior is a row (codes, spread). On a sphere codes are a unit vector, the mode of a vMF,
    and the spread is one number, :math:`-\log A_n(\kappa)`. Free codes are the mean of a normal
    distribution, and the spread are its n variances. Spreads are :math:`f\, e^u + c` of the
    network's outputs u; f and c are 1 and 0 in training, and set afterwards.

    Args:
        n: Number of codes.
        geometry: ``"sphere"`` or ``"free"``.

    Example:
        >>> head = PosteriorHead(2, "free")
        >>> head(torch.zeros(1, head.n_inputs))  # two codes, two variances
        tensor([[0.0000, 0.0000, 0.2466, 0.2466]])
    """

    factor: Tensor
    shift: Tensor

    def __init__(self, n: int, geometry: str) -> None:
        super().__init__()
        self.n = check_integer("n", n, at_least=2 if geometry == "sphere" else 1)
        self.geometry = check_one_of("geometry", geometry, GEOMETRIES)
        self.n_inputs = posterior_size(n, geometry)
        self.register_buffer("factor", torch.tensor(1.0))
        self.register_buffer("shift", torch.zeros(self.n_inputs - n))

    def forward(self, h: Tensor) -> Tensor:
        """Map outputs of a network (N, n_inputs) to posteriors of the same shape."""
        if h.ndim != 2 or h.shape[1] != self.n_inputs:
            raise ValueError(
                f"h must have shape (N, {self.n_inputs}): {self.n} codes and "
                f"{self.n_inputs - self.n} for their uncertainty, got {tuple(h.shape)}"
            )
        codes, u = h[:, : self.n], h[:, self.n :]
        log = LOG_START + LOG_RANGE * torch.tanh(u / LOG_RANGE)
        spread = self.factor.to(h) * log.exp() + self.shift.to(h)
        if self.geometry == "sphere":
            codes = normalize(codes, dim=-1)
        return torch.cat([codes, spread.clamp(min=LEAST)], dim=1)

    def extra_repr(self) -> str:
        return f"n={self.n}, geometry={self.geometry!r}"


def posterior_std(posterior: Tensor, n: int, geometry: str) -> Tensor:
    """Return the standard deviation (N, n) of each code under its posterior.

    Args:
        posterior: Rows of :class:`PosteriorHead`.
        n: Number of codes.
        geometry: ``"sphere"`` or ``"free"``.

    Example:
        >>> posterior_std(torch.tensor([[5.0, 6.0, 0.25, 0.04]]), 2, "free")
        tensor([[0.5000, 0.2000]])
    """
    codes, spread = posterior[:, :n], posterior[:, n:]
    if geometry == "free":
        return spread.sqrt()
    across, along = tangent_variances(spread, n)
    return torch.lerp(across, along, codes.square()).sqrt()


def expected_scores(posterior: Tensor, other: Tensor, step: Tensor, geometry: str) -> Tensor:
    r"""Return :math:`\log E\,E\, r(z, z')` (B, M) of all pairs of posteriors, up to a constant.

    Args:
        posterior: Posteriors of anchors (B, n_inputs), rows of :class:`PosteriorHead`.
        other: Posteriors of positives (M, n_inputs).
        step: Spread of the steps: their variances (n,) for free codes, one number (1,) on a sphere.
        geometry: ``"sphere"`` or ``"free"``.

    Example:
        >>> certain = torch.tensor([[0.0, 1e-6], [2.0, 1e-6]])
        >>> expected_scores(certain, certain, torch.ones(1), "free").round(decimals=3)
        tensor([[-0., -2.],
                [-2., -0.]])
    """
    if geometry == "free":
        n = posterior.shape[1] // 2
        parts = (posterior[:, :n], posterior[:, n:] + step, other[:, :n], other[:, n:])
        scores: Tensor = _NormalScores.apply(*parts)
        return scores
    n = posterior.shape[1] - 1
    cosine = posterior[:, :n] @ other[:, :n].mT
    spread = (posterior[:, n:] + step) + other[:, n:].mT
    return log_vmf_ratio(cosine, spread, n)


class _NormalScores(torch.autograd.Function):
    r"""The scores :math:`-\frac12\sum_k [\log T_k + (m_k - m'_k)^2 / T_k]`, T = t + t'.

    Codes are taken one by one, so that no array of B × M × n numbers is stored.
    """

    @staticmethod
    def forward(ctx: Any, m: Tensor, t: Tensor, m_pos: Tensor, t_pos: Tensor) -> Tensor:
        ctx.save_for_backward(m, t, m_pos, t_pos)
        twice = m.new_zeros(len(m), len(m_pos))
        for k in range(m.shape[1]):
            total = t[:, k, None] + t_pos[:, k]
            twice -= (m[:, k, None] - m_pos[:, k]).square_().div_(total)
            twice -= total.log_()
        return 0.5 * twice

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        (gradient,) = gradients
        m, t, m_pos, t_pos = ctx.saved_tensors
        found = tuple(torch.empty_like(part) for part in (m, t, m_pos, t_pos))
        for k in range(m.shape[1]):
            inverse = (t[:, k, None] + t_pos[:, k]).reciprocal_()
            pull = (m[:, k, None] - m_pos[:, k]).mul_(inverse)
            by_total = pull.square().sub_(inverse).mul_(gradient).mul_(0.5)
            pull = pull.mul_(gradient)
            found[0][:, k], found[2][:, k] = -pull.sum(1), pull.sum(0)
            found[1][:, k], found[3][:, k] = by_total.sum(1), by_total.sum(0)
        return found


class PosteriorInfoNCE(nn.Module):
    r"""InfoNCE of posteriors: the expected ratio of the latents, instead of the ratio of codes.

    .. math:: E_i\Big[-s_{ii} + \log \sum_j e^{s_{ij}}\Big], \qquad
        s_{ij} = \log E_{z|x_i}\, E_{z'|x'_j}\, e^{-d(z, z')} - α_i - \tilde α_j

    where :math:`d = -\kappa z^\top z'` on a sphere and :math:`\sum_k (z_k - z'_k)^2 / 2\tau_k^2`
    for free codes. κ or τ² are given by the spread of the steps. Without uncertainty the loss is
    :class:`InfoNCE` with this d.

    **What is identified.** The score depends on sums of three spreads: of the anchor, of the step
    and of the positive. A constant that is moved from the step to the posteriors changes nothing,
    so pairs identify how the uncertainty of observations differs, but not its least value. Hence
    steps are not learned. Without ``step`` posteriors get all of the spread in training, and
    :meth:`set_noise_share` gives the steps their part.

    Args:
        n: Number of codes.
        geometry: ``"sphere"`` or ``"free"``.
        potential: The module α of anchors, from numbers (B, n_inputs) to (B,); None for 0. It gets
            the codes, and the log of the spread within a pair of two such posteriors.
        potential_pos: The module α̃ of positives.
        symmetric: Whether to average with the loss in which positives are the anchors.
        step: The spread of the steps, if it is known: one number, or a variance for each free code.
            On a sphere it is :func:`isolatent.contrast.vmf.spread_of` of the concentration.

    Example:
        >>> head, loss = PosteriorHead(2, "sphere"), PosteriorInfoNCE(2, "sphere")
        >>> encoder = nn.Sequential(nn.Linear(5, head.n_inputs), head)
        >>> x = torch.randn(8, 5)
        >>> loss(encoder(x), encoder(x + 0.1)).shape
        torch.Size([])
    """

    step: Tensor

    def __init__(
        self,
        n: int,
        geometry: str,
        *,
        potential: nn.Module | None = None,
        potential_pos: nn.Module | None = None,
        symmetric: bool = True,
        step: float | Sequence[float] = 0.0,
    ) -> None:
        super().__init__()
        self.geometry = check_one_of("geometry", geometry, GEOMETRIES)
        self.n = check_integer("n", n, at_least=2 if geometry == "sphere" else 1)
        self.n_inputs = posterior_size(n, geometry)
        self.potential, self.potential_pos, self.symmetric = potential, potential_pos, symmetric
        start = torch.as_tensor(step, dtype=torch.float32, device="cpu")  # its values are checked
        if start.ndim > 1 or start.numel() not in (1, self.n_inputs - n) or bool((start < 0).any()):
            raise ValueError(f"step must be one number >= 0, or one for each free code, got {step}")
        self.register_buffer("step", torch.empty(self.n_inputs - n).copy_(start))

    @property
    def noise(self) -> str:
        """The geometry of the posteriors; says that noise is relaxed."""
        return self.geometry

    def forward(self, h: Tensor, h_pos: Tensor) -> Tensor:
        """Return the loss, a scalar.

        Args:
            h: Posteriors of the anchors (B, n_inputs), of a :class:`PosteriorHead`.
            h_pos: Posteriors of their positives.
        """
        expected = f"(B, {self.n_inputs}), B at least 2"
        if h.shape != h_pos.shape or h.ndim != 2 or h.shape[1] != self.n_inputs or len(h) < 2:
            raise ValueError(
                f"h and h_pos must be posteriors of shape {expected}, got {tuple(h.shape)} and "
                f"{tuple(h_pos.shape)}"
            )
        step = self.step.to(h)
        scores = expected_scores(h, h_pos, step, self.geometry)
        if self.potential is not None:
            scores = scores - self.potential(self._described(h, step))[:, None]
        if self.potential_pos is not None:
            scores = scores - self.potential_pos(self._described(h_pos, step))
        gap = scores.logsumexp(1) - scores.diagonal()
        if self.symmetric:
            gap = torch.lerp(gap, scores.logsumexp(0) - scores.diagonal(), 0.5)
        return gap.mean()

    def _described(self, h: Tensor, step: Tensor) -> Tensor:
        # What pairs identify of a spread, so that set_noise_share leaves the loss as it is.
        return torch.cat([h[:, : self.n], (2 * h[:, self.n :] + step).log()], dim=1)

    @torch.no_grad()
    def set_noise_share(
        self, head: PosteriorHead, h: Tensor, h_pos: Tensor, share: float
    ) -> tuple[float, float]:
        r"""Attribute a share of the spread within pairs to the noise of observations.

        Spreads w of all posteriors get a common constant c, and that of the steps -2c, which leaves
        the loss as it is. With :math:`\bar W = \tau + E[w + w']` the constant is such that
        :math:`E[w + w'] = \rho \bar W`, ρ the share, for each code of free ones. Observations
        cannot have negative spread: the share is at least that of what differs between them.

        Args:
            head: The head of the encoder, changed in place.
            h: Posteriors of anchors.
            h_pos: Posteriors of their positives.
            share: The share ρ, between 0 and 1.

        Returns:
            The share that was set, and the least that these posteriors allow, averages over codes.
        """
        spreads = torch.cat([h[:, self.n :], h_pos[:, self.n :]]).double()
        noise, step = 2 * spreads.mean(0), self.step.to(spreads)
        total = noise + step
        least = (noise - 2 * spreads.quantile(0.01, dim=0)) / total
        shares = least.clamp(min=share, max=1.0)
        change = (shares * total - noise) / 2
        head.shift += change.to(head.shift)
        self.step.copy_((step - 2 * change).clamp(min=0))
        return float(shares.mean()), float(least.mean())

    def extra_repr(self) -> str:
        return f"n={self.n}, geometry={self.geometry!r}, step={self.step.tolist()}"
