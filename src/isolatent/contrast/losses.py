"""Contrastive losses."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from isolatent.checks import IsolatentWarning, check_integer, check_real, check_scale
from isolatent.contrast.contrastive_loss import (
    ContrastiveLoss,
    Direction,
    count_negatives,
    mean_of,
)
from isolatent.contrast.distributed import Counts
from isolatent.contrast.kernels import mean_infonce, paired_logsumexp, row_softplus
from isolatent.contrast.similarities import Lp, Similarity

__all__ = ["NCE", "NWJ", "AlignUniform", "AnInfoNCE", "InfoNCE", "SpectralContrastive"]


class InfoNCE(ContrastiveLoss):
    r"""The loss :math:`E_i[-s_{ii} + \log(e^{s_{ii}} + \sum_j e^{s_{ij}})]`, j the negatives of i.

    At its optimum :math:`e^{s(u, v)} = c(u)\, p(u, v) / (p(u) p(v))` with any function c: the
    potential α of the anchors cancels, unless the loss is symmetric.

    References:
        | Representation Learning with Contrastive Predictive Coding (van den Oord et al. 2018)
        | Contrastive Learning Inverts the Data Generating Process (Zimmermann et al. 2021)

    Args:
        similarity: -d, such as ``Dot()`` or ``Lp(p=1)``.
        positive_in_denominator: Whether the sum includes :math:`e^{s_{ii}}`, which the optimum
            above requires; without it the loss is unbounded below (decoupled contrastive learning).
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

    def _value(
        self, h: Tensor, h_pos: Tensor, negatives: Tensor | None, counts: Counts | None = None
    ) -> Tensor:
        one_pass = self.negatives_from == "across" and counts is None
        if not one_pass or negatives is not None or len(h) == 1:
            return super()._value(h, h_pos, negatives, counts)
        skip = not self.positive_in_denominator
        scores = self._scores_across(h, h_pos, skip=skip)
        if self.pairing is None:
            return mean_infonce(scores, self.engine, both=self.symmetric)
        sums, positive = paired_logsumexp(scores, self.engine, both=self.symmetric)
        denominator = mean_of([self._add_unrelated(part, len(h) - skip) for part in sums])
        return (denominator - self._add_unrelated(positive)).mean()

    def _one_way(self, direction: Direction) -> Tensor:
        if not self.positive_in_denominator:
            count_negatives(direction)
            parts = self._logsumexps(direction)
        else:
            # The positive is one of the columns across: include it there by not skipping it.
            sets = [c._replace(skip=None) if c.positive else c for c in direction.negatives]
            parts = self._logsumexps(direction._replace(negatives=sets))
            if not any(candidates.positive for candidates in sets):
                parts.append(direction.positive)
        denominator = parts[0] if len(parts) == 1 else torch.stack(parts).logsumexp(0)
        count = sum(candidates.per_row for candidates in direction.negatives)
        denominator = self._add_unrelated(denominator, count + self.positive_in_denominator)
        gap = denominator - self._add_unrelated(direction.positive)
        if self.positive_in_denominator:
            # At least 0, but s_ii may be rounded otherwise than in the sum: lift the value alone.
            gap = gap - gap.detach().clamp(max=0)
        return gap.mean()


class AnInfoNCE(InfoNCE):
    r"""InfoNCE with one learned weight per dimension, for factors that vary unequally.

    .. math:: s(u, v) = -\tfrac12 \sum_k \hat\lambda_k (u_k - v_k)^2

    It equals ``InfoNCE(Lp(p=2, weights=[...], learn_weights=True))`` up to the factor ½. With the
    factor the learned weights estimate those of :class:`isolatent.AnisotropicNormal`; the paper
    writes the formula without it, and its code includes it.

    References:
        | InfoNCE: Identifying the Gap Between Theory and Practice (Rusak et al. 2025)

    Args:
        n: Number of codes.
        weights: Initial weights, one number or one per dimension.
        half: Whether to include the factor ½.
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
        initial = check_scale("weights", weights)
        values = initial if isinstance(initial, tuple) else (initial,) * n
        if len(values) != n:
            raise ValueError(f"weights must be one number or n = {n} of them, got {len(values)}")
        factor = 0.5 if half else 1.0
        super().__init__(
            Lp(p=2, weights=[factor * value for value in values], learn_weights=True),
            **options,
        )
        self.n, self.factor = n, factor

    @property
    def weights(self) -> Tensor:
        """The current λ̂ (n,), of the formula with or without ½ as chosen."""
        return self.similarity.coordinate_weights(self.n) / self.factor


class NCE(ContrastiveLoss):
    r"""Noise-contrastive estimation: classify each pair as positive or negative.

    .. math:: E_+ \mathrm{softplus}(\log\nu - s) + \nu E_- \mathrm{softplus}(s - \log\nu)

    with ν negatives for each positive. At its optimum :math:`e^s = p(u, v) / (p(u) p(v))` for
    every ν: the expectation over negatives is a mean, and ν is its weight.

    References:
        | Noise-contrastive estimation (Gutmann & Hyvärinen 2012)
        | Towards a Unified Framework of Contrastive Learning (Matthes et al. 2023)

    Args:
        similarity: -d.
        ratio: ν, a positive number, or ``"count"`` for the number of negatives of each anchor.
        **options: Those of :class:`ContrastiveLoss`.

    Example:
        >>> from isolatent.contrast.similarities import Dot
        >>> h = torch.eye(2)
        >>> round(NCE(Dot(scale=1.0))(h, h).item(), 4)  # log(1 + e^-1) + log 2
        1.0064
    """

    sums_all_pairs = True

    def __init__(self, similarity: Similarity, *, ratio: float | str = 1.0, **options: Any) -> None:
        super().__init__(similarity, **options)
        self.ratio = ratio if ratio == "count" else check_real("ratio", ratio, above=0)

    def _one_way(self, direction: Direction) -> Tensor:
        count = count_negatives(direction)
        ratio = float(count) if self.ratio == "count" else float(self.ratio)
        offset = direction.positive.new_full((len(direction.rows),), math.log(ratio))
        attraction = softplus(offset - self._add_unrelated(direction.positive))
        constant = torch.zeros_like(offset)
        if self.pairing is not None:
            # log(1 + e^s + e^b) = softplus(b) + softplus(s - softplus(b))
            constant = softplus(self._log_unrelated(offset) - offset)
            offset = offset + constant
        potential = direction.row_potential
        shifted = direction._replace(
            row_potential=offset if potential is None else potential + offset
        )
        total = sum(
            self._reduce(row_softplus, lambda s: softplus(s).sum(1), shifted, candidates).sum()
            for candidates in direction.negatives
            if candidates.per_row
        )
        repulsion = constant.mean() + total / (count * len(direction.rows))
        return attraction.mean() + ratio * repulsion


class AlignUniform(ContrastiveLoss):
    r"""A weighted sum of alignment and uniformity (`zimmermann2020`).

    .. math:: a\, E_i \log E_j e^{-\|h_i - h'_j\|_p^p} + (1 - a)\, E_i \|h_i - h'_i\|_p^p

    On unbounded codes the loss of a batch need not have a minimum, for any a. When the codes h are
    multiplied by a growing s, it approaches

    .. math:: s^p \left[(1 - a)\, E_i \|h_i - h'_i\|_p^p
        - a\, E_i \min_j \|h_i - h'_j\|_p^p\right]

    and falls without end where a times the distance of the nearest negative exceeds 1 - a times
    that of the positive: for uniform codes in a five-dimensional unit box, a normal conditional of
    width 0.05, 512 pairs and p = 2, for a = 0.3 as well as for a = 0.5. It is bounded if the codes
    live in a bounded space, or with ``include_self=True``: then the mean over j includes the anchor
    itself, at distance 0, as in the reference code, and with K negatives uniformity is at least
    :math:`-\log(K + 1)`.

    Args:
        alpha: The weight a of uniformity, between 0 and 1.
        p: The power of the norm.
        include_self: Whether each anchor is also its own negative.
        **options: Those of :class:`ContrastiveLoss`, except potentials and relaxations: the loss
            is not that of a model of the pairs.

    Example:
        >>> h = torch.tensor([[0.0], [2.0]])
        >>> AlignUniform(alpha=0.5)(h, h)  # aligned, and uniformity is log e^-4
        tensor(-2.)
    """

    undefined = (
        *("potential", "potential_pos", "pairing"),
        *("anchor_scale", "factor_scale", "dynamics"),
    )

    def __init__(
        self, alpha: float = 0.5, p: float = 2.0, *, include_self: bool = False, **options: Any
    ) -> None:
        super().__init__(Lp(p=p), **options)
        self.alpha = check_real("alpha", alpha, above=0, below=1)
        self.include_self = bool(include_self)

    def _one_way(self, direction: Direction) -> Tensor:
        count = count_negatives(direction)
        total = torch.stack(self._logsumexps(direction)).logsumexp(0)
        if self.include_self:
            total, count = torch.logaddexp(total, torch.zeros_like(total)), count + 1
        uniformity = (total - math.log(count)).mean()
        return self.alpha * uniformity - (1 - self.alpha) * direction.positive.mean()


class _ExponentialLoss(ContrastiveLoss):
    """A loss that contains means of e^s, which overflow where positives are concentrated.

    Means are computed in the log domain.
    """

    sums_all_pairs = True
    warned = False

    def _log_mean_exp(self, direction: Direction, times: float) -> Tensor:
        """Return the logarithm of the mean of e^(times · s) over all negative pairs."""
        pairs = count_negatives(direction) * len(direction.rows)
        parts = torch.stack(self._logsumexps(direction, times))
        return parts.logsumexp((0, 1)) - math.log(pairs)

    def _exp(self, log: Tensor, *, attracts: bool = False) -> Tensor:
        """Return e^log, continued less steeply above a ceiling c.

        Above c a repelling mean is continued as :math:`e^c (1 + x - c)`, an attracting mean as
        :math:`e^c (1 + log(1 + x - c))`. Both are differentiable at c, and repulsion still
        dominates, as it does in the loss itself. c is 40 in float32 and 340 in float64, the
        largest number for which the square of a gradient, which Adam stores, does not overflow.
        """
        ceiling = 40.0 if log.dtype == torch.float32 else 340.0
        if not self.warned and float(log.detach()) > ceiling:
            self.warned = True
            warnings.warn(
                f"{type(self).__name__}: a mean of e^s reached e^{float(log.detach()):.0f}, where "
                f"gradients of {log.dtype} overflow when squared; it is continued less steeply "
                f"above e^{ceiling:.0f}. The positive pairs are too concentrated for this loss: "
                "use InfoNCE or NCE, or float64.",
                IsolatentWarning,
                stacklevel=2,
            )
        over = (log - ceiling).clamp(min=0)
        return torch.exp(log.clamp(max=ceiling)) * (1 + (over.log1p() if attracts else over))


class SpectralContrastive(_ExponentialLoss):
    r"""The spectral contrastive loss :math:`-2 E_+ e^s + E_- e^{2s}`.

    At its optimum :math:`e^s = p(u, v) / (p(u) p(v))`. Where positives are concentrated that ratio
    is huge (1e19 on a ten-dimensional unit box at σ = 0.005), its square more so. Value and
    gradient stay finite, as means are computed in the log domain, but few pairs dominate the
    gradient, which is noisy.

    References:
        | Provable Guarantees for Self-Supervised Deep Learning with Spectral Contrastive Loss
        | (HaoChen et al. 2021)
        | Towards a Unified Framework of Contrastive Learning (Matthes et al. 2023)

    Args:
        similarity: -d.
        **options: Those of :class:`ContrastiveLoss`.

    Example:
        >>> from isolatent.contrast.similarities import Dot
        >>> h = torch.eye(2)
        >>> round(SpectralContrastive(Dot(scale=1.0))(h, h).item(), 4)  # 1 - 2 e
        -4.4366
    """

    def _one_way(self, direction: Direction) -> Tensor:
        scores = self._add_unrelated(direction.positive)
        positive = scores.logsumexp(0) - math.log(len(direction.rows))
        log_square = self._log_mean_exp(direction, 2.0)
        if self.pairing is not None:  # (e^s + e^b)² = e^2s + 2 e^(s + b) + e^2b
            b = self._log_unrelated(log_square)
            mixed = math.log(2) + b + self._log_mean_exp(direction, 1.0)
            log_square = torch.stack([log_square, mixed, 2 * b]).logsumexp(0)
        return self._exp(log_square) - 2 * self._exp(positive, attracts=True)


class NWJ(_ExponentialLoss):
    r"""The loss of Nguyen, Wainwright and Jordan: :math:`-E_+ s + E_- e^s - 1`.

    At its optimum :math:`e^s = p(u, v) / (p(u) p(v))`, and minus the loss is the mutual
    information.

    References:
        | Estimating divergence functionals by convex risk minimization (Nguyen et al. 2010)

    Args:
        similarity: -d.
        **options: Those of :class:`ContrastiveLoss`.

    Example:
        >>> from isolatent.contrast.similarities import Dot
        >>> h = torch.eye(2)
        >>> NWJ(Dot(scale=1.0))(h, h)  # -1 + e^0 - 1
        tensor(-1.)
    """

    def _one_way(self, direction: Direction) -> Tensor:
        log_mean = self._add_unrelated(self._log_mean_exp(direction, 1.0))
        return self._exp(log_mean) - self._add_unrelated(direction.positive).mean() - 1
