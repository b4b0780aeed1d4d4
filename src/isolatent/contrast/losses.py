"""The family of contrastive losses, all of the same scores."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from isolatent.checks import IsolatentWarning, check_integer, check_real, check_scale
from isolatent.contrast.kernels import both_logsumexp, row_logsumexp, row_softplus
from isolatent.contrast.objective import ContrastiveLoss, Direction
from isolatent.contrast.similarities import Lp, Similarity

__all__ = [
    "NCE",
    "NWJ",
    "AlignUniform",
    "AnInfoNCE",
    "Ensemble",
    "InfoNCE",
    "SpectralContrastive",
]


class InfoNCE(ContrastiveLoss):
    r"""The loss :math:`E_i[-s_{ii} + \log(e^{s_{ii}} + \sum_j e^{s_{ij}})]`, j the negatives of i.

    At its optimum :math:`e^{s(u, v)} = c(u)\, p(u, v) / (p(u) p(v))` with any function c: the
    potential α of the anchors cancels, unless the loss is symmetric.

    References:
        | Representation Learning with Contrastive Predictive Coding (van den Oord et al. 2018)
        | Contrastive Learning Inverts the Data Generating Process (Zimmermann et al. 2021)

    Args:
        similarity: -d, such as ``Dot()`` or ``Lp(p=1)``.
        positive_in_denominator: Whether :math:`e^{s_{ii}}` stands in the sum, as it should for the
            optimum above; without it the loss is unbounded below (decoupled contrastive learning).
        **options: Those of :class:`ContrastiveLoss`.

    Example:
        >>> from isolatent.contrast.similarities import Dot
        >>> h = torch.eye(2)
        >>> round(InfoNCE(Dot(scale=1.0))(h, h).item(), 4)  # log(1 + e^-1)
        0.3133
    """

    def __init__(
        self, similarity: Similarity, *, positive_in_denominator: bool = True, **options: Any
    ) -> None:
        super().__init__(similarity, **options)
        self.positive_in_denominator = positive_in_denominator

    def _value(self, h: Tensor, h_pos: Tensor, negatives: Tensor | None) -> Tensor:
        fused = self.symmetric and self.negatives_from == "across" and not self.gather
        if not fused or negatives is not None or len(h) == 1:
            return super()._value(h, h_pos, negatives)
        # Both directions in one pass over the same scores.
        forth, back = self._directions(h, h_pos, None)
        rows, columns = both_logsumexp(
            h,
            h_pos,
            p=self.similarity.p,
            weights=self.similarity.coordinate_weights(h.shape[1]).to(h),
            row_potential=forth.row_potential,
            column_potential=back.row_potential,
            skip=None if self.positive_in_denominator else forth.negatives[0].skip,
            engine=self.engine,
        )
        return 0.5 * (rows + columns).mean() - forth.positive.mean()

    def _one_way(self, direction: Direction) -> Tensor:
        parts = [
            self._reduce(row_logsumexp, lambda s: s.logsumexp(1), direction, candidates)
            for candidates in direction.negatives
            if candidates.per_row
        ]
        if self.positive_in_denominator:
            parts.append(direction.positive)
        elif not parts:
            raise ValueError(_NO_NEGATIVES)
        return (torch.stack(parts).logsumexp(0) - direction.positive).mean()


class NCE(ContrastiveLoss):
    r"""Noise-contrastive estimation: telling positive from negative pairs, one by one.

    .. math:: E_+ \mathrm{softplus}(\log\nu - s) + \nu E_- \mathrm{softplus}(s - \log\nu)

    with ν negatives for each positive. At its optimum :math:`e^s = p(u, v) / (p(u) p(v))`,
    whatever ν: the expectation over negatives is a mean, and ν its weight.

    References:
        | Noise-contrastive estimation (Gutmann & Hyvärinen 2012)
        | Towards a Unified Framework of Contrastive Learning (Matthes et al. 2023)

    Args:
        similarity: -d.
        ratio: ν, a positive number, or ``"count"`` for as many as each anchor has.
        **options: Those of :class:`ContrastiveLoss`.
    """

    def __init__(self, similarity: Similarity, *, ratio: float | str = 1.0, **options: Any) -> None:
        super().__init__(similarity, **options)
        self.ratio = ratio if ratio == "count" else check_real("ratio", ratio, above=0)

    def _one_way(self, direction: Direction) -> Tensor:
        count = _count(direction)
        ratio = float(count) if self.ratio == "count" else float(self.ratio)
        offset = direction.positive.new_full((len(direction.rows),), math.log(ratio))
        potential = direction.row_potential
        shifted = direction._replace(
            row_potential=offset if potential is None else potential + offset
        )
        total = sum(
            self._reduce(row_softplus, lambda s: softplus(s).sum(1), shifted, candidates)
            for candidates in direction.negatives
            if candidates.per_row
        )
        return (softplus(offset - direction.positive) + ratio / count * total).mean()


class _ExponentialLoss(ContrastiveLoss):
    """A loss with means of e^s in it, taken in the log domain."""

    warned = False

    def _log_mean_exp(self, direction: Direction, times: float) -> Tensor:
        """Log of the mean of e^(times · s) over all negative pairs."""
        count = _count(direction)
        parts = [
            self._reduce(row_logsumexp, lambda s: s.logsumexp(1), direction, candidates, times)
            for candidates in direction.negatives
            if candidates.per_row
        ]
        return torch.stack(parts).logsumexp((0, 1)) - math.log(count * len(direction.rows))

    def _exp(self, log: Tensor) -> Tensor:
        """e^log, continued above a ceiling so that value and gradient stay finite.

        Above c = 80 (float32; 700 in float64) it is :math:`e^c (1 + log(1 + x - c))`, which joins
        with the same slope.
        """
        ceiling = 80.0 if log.dtype == torch.float32 else 700.0
        if float(log.detach()) > ceiling and not self.warned:
            self.warned = True
            warnings.warn(
                f"{type(self).__name__}: a mean of e^s reached e^{float(log.detach()):.0f}, beyond "
                f"what {log.dtype} can hold with its gradient; it is continued logarithmically "
                f"above e^{ceiling:.0f}. The positive pairs are too concentrated for this loss: "
                "use InfoNCE or NCE, or float64.",
                IsolatentWarning,
                stacklevel=2,
            )
        return torch.exp(log.clamp(max=ceiling)) * (1 + torch.log1p((log - ceiling).clamp(min=0)))


class SpectralContrastive(_ExponentialLoss):
    r"""The spectral contrastive loss :math:`-2 E_+ e^s + E_- e^{2s}`.

    At its optimum :math:`e^s = p(u, v) / (p(u) p(v))`. Where positives are concentrated that ratio
    is huge (1e19 on a ten-dimensional unit box at σ = 0.005), its square more so, and the gradient
    rests on a few pairs: finite here, as means are taken in the log domain, but noisy.

    References:
        | Provable Guarantees for Self-Supervised Deep Learning with Spectral Contrastive Loss
        | (HaoChen et al. 2021)
        | Towards a Unified Framework of Contrastive Learning (Matthes et al. 2023)

    Args:
        similarity: -d.
        **options: Those of :class:`ContrastiveLoss`.
    """

    def _one_way(self, direction: Direction) -> Tensor:
        positive = direction.positive.logsumexp(0) - math.log(len(direction.rows))
        return self._exp(self._log_mean_exp(direction, 2.0)) - 2 * self._exp(positive)


class NWJ(_ExponentialLoss):
    r"""The loss of Nguyen, Wainwright and Jordan: :math:`-E_+ s + E_- e^s - 1`.

    At its optimum :math:`e^s = p(u, v) / (p(u) p(v))`, and minus the loss is the mutual
    information.

    References:
        | Estimating divergence functionals by convex risk minimization (Nguyen et al. 2010)

    Args:
        similarity: -d.
        **options: Those of :class:`ContrastiveLoss`.
    """

    def _one_way(self, direction: Direction) -> Tensor:
        return self._exp(self._log_mean_exp(direction, 1.0)) - direction.positive.mean() - 1


class AlignUniform(ContrastiveLoss):
    r"""Alignment and uniformity, weighed against each other (`zimmermann2020`).

    .. math:: a\, E_i \log E_j e^{-\|h_i - h'_j\|_p^p} + (1 - a)\, E_i \|h_i - h'_i\|_p^p

    Args:
        alpha: The weight a of uniformity, between 0 and 1.
        p: The power of the norm.
        **options: Those of :class:`ContrastiveLoss`.
    """

    def __init__(self, alpha: float = 0.5, p: float = 2.0, **options: Any) -> None:
        super().__init__(Lp(p=p), **options)
        self.alpha = check_real("alpha", alpha, above=0, below=1)

    def _one_way(self, direction: Direction) -> Tensor:
        count = _count(direction)
        parts = [
            self._reduce(row_logsumexp, lambda s: s.logsumexp(1), direction, candidates)
            for candidates in direction.negatives
            if candidates.per_row
        ]
        uniformity = (torch.stack(parts).logsumexp(0) - math.log(count)).mean()
        return self.alpha * uniformity - (1 - self.alpha) * direction.positive.mean()


class AnInfoNCE(InfoNCE):
    r"""InfoNCE with one learned weight per dimension, for factors that vary unequally.

    .. math:: s(u, v) = -\tfrac12 \sum_k \hat\lambda_k (u_k - v_k)^2

    It is ``InfoNCE(Lp(p=2, weights=[...], learn_weights=True))`` under a name of its own. With the
    ½ the learned weights estimate those of :class:`isolatent.AnisotropicNormal`; the paper writes
    the formula without it, its code with it.

    References:
        | InfoNCE: Identifying the Gap Between Theory and Practice (Rusak et al. 2025)

    Args:
        n: Number of codes.
        weights: Where the weights start, one number or one per dimension.
        half: Whether the ½ is there.
        **options: Those of :class:`InfoNCE`.

    Example:
        >>> AnInfoNCE(3, weights=5.0).weights.detach()
        tensor([5., 5., 5.])
    """

    def __init__(
        self,
        n: int,
        weights: float | Sequence[float] = 1.0,
        *,
        half: bool = True,
        **options: Any,
    ) -> None:
        check_integer("n", n, at_least=1)
        start = check_scale("weights", weights)
        values = start if isinstance(start, tuple) else (start,) * n
        if len(values) != n:
            raise ValueError(f"weights must be one number or n = {n} of them, got {len(values)}")
        self_factor = 0.5 if half else 1.0
        super().__init__(
            Lp(p=2, weights=[self_factor * value for value in values], learn_weights=True),
            **options,
        )
        self.factor = self_factor

    @property
    def weights(self) -> Tensor:
        """The current λ̂, in the convention chosen."""
        assert isinstance(self.similarity, Lp)
        return self.similarity.weights / self.factor


class Ensemble(nn.Module):
    r"""The sum :math:`\sum_i L_i` of several losses on one encoder's codes (`rusak2025`).

    Each way of making positives has a loss of its own, with its own weights; each pair is tagged
    with the way it was made, and its negatives are the pairs with the same tag.

    Args:
        losses: One loss for each tag 0, 1, …

    Example:
        >>> h, h_pos = torch.randn(2, 6, 3)
        >>> loss = Ensemble([AnInfoNCE(3), AnInfoNCE(3)])
        >>> loss(h, h_pos, tags=torch.tensor([0, 1, 0, 1, 0, 1])).shape
        torch.Size([])
    """

    def __init__(self, losses: Sequence[nn.Module]) -> None:
        super().__init__()
        if not losses or not all(isinstance(loss, nn.Module) for loss in losses):
            raise TypeError(f"losses must be one or more loss modules, got {losses!r}")
        self.losses = nn.ModuleList(losses)

    def forward(
        self, h: Tensor, h_pos: Tensor, tags: Tensor, negatives: Tensor | None = None
    ) -> Tensor:
        """The summed loss.

        Args:
            h: Codes of the anchors (B, n).
            h_pos: Codes of their positives (B, n).
            tags: For each pair the index of its loss (B,), int64.
            negatives: Further negatives (K, n), for every loss.
        """
        count = len(self.losses)
        if tags.shape != h.shape[:1] or tags.is_floating_point():
            raise ValueError(
                f"tags must be {len(h)} integers, got {tags.dtype} of shape {tuple(tags.shape)}"
            )
        if not bool(((tags >= 0) & (tags < count)).all()):
            raise ValueError(f"tags must be from 0 to {count - 1}, got {tags.unique().tolist()}")
        total = h.new_zeros(())
        for tag, loss in enumerate(self.losses):
            chosen = tags == tag
            if bool(chosen.any()):
                total = total + loss(h[chosen], h_pos[chosen], negatives=negatives)
        return total


_NO_NEGATIVES = (
    "there are no negatives: a batch of one pair has none; give more pairs, or pass negatives="
)


def _count(direction: Direction) -> int:
    count = direction.negatives_per_row
    if count == 0:
        raise ValueError(_NO_NEGATIVES)
    return count
