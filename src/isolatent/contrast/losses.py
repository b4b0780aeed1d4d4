"""Losses that never leave the log domain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from isolatent.checks import check_integer, check_real, check_scale
from isolatent.contrast.contrastive_loss import ContrastiveLoss, Direction, count_negatives
from isolatent.contrast.distributed import Counts
from isolatent.contrast.kernels import both_logsumexp, row_softplus
from isolatent.contrast.similarities import Lp, Similarity

__all__ = ["NCE", "AlignUniform", "AnInfoNCE", "InfoNCE"]


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

    def _value(
        self, h: Tensor, h_pos: Tensor, negatives: Tensor | None, counts: Counts | None = None
    ) -> Tensor:
        fused = self.symmetric and self.negatives_from == "across" and counts is None
        if not fused or negatives is not None or len(h) == 1:
            return super()._value(h, h_pos, negatives, counts)
        # Both directions in one pass over the same scores.
        forth, back = self._directions(h, h_pos, None)
        rows, columns = both_logsumexp(
            h,
            h_pos,
            p=self.similarity.p,
            weights=self.similarity.coordinate_weights(h.shape[1]).to(h.dtype),
            row_potential=forth.row_potential,
            column_potential=back.row_potential,
            skip=None if self.positive_in_denominator else forth.negatives[0].skip,
            engine=self.engine,
        )
        return 0.5 * (rows + columns).mean() - forth.positive.mean()

    def _one_way(self, direction: Direction) -> Tensor:
        if not self.positive_in_denominator:
            count_negatives(direction)
            parts = self._logsumexps(direction)
        else:
            # The positive is one of the columns across: there it need only not be left out.
            sets = [c._replace(skip=None) if c.positive else c for c in direction.negatives]
            parts = self._logsumexps(direction._replace(negatives=sets))
            if not any(candidates.positive for candidates in sets):
                parts.append(direction.positive)
        denominator = parts[0] if len(parts) == 1 else torch.stack(parts).logsumexp(0)
        return (denominator - direction.positive).mean()


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
        count = count_negatives(direction)
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


class AlignUniform(ContrastiveLoss):
    r"""Alignment and uniformity, weighed against each other (`zimmermann2020`).

    .. math:: a\, E_i \log E_j e^{-\|h_i - h'_j\|_p^p} + (1 - a)\, E_i \|h_i - h'_i\|_p^p

    For :math:`a > 1/2` it falls without end as codes grow, unless they live in a bounded space, or
    each anchor is among its own candidates: ``own=True`` takes the mean over K negatives and
    one more at distance 0, so that uniformity stays above :math:`-\log(K + 1)`. The reference
    code does so.

    Args:
        alpha: The weight a of uniformity, between 0 and 1.
        p: The power of the norm.
        own: Whether each anchor is its own negative, too.
        **options: Those of :class:`ContrastiveLoss`, but for potentials: the loss has none.
    """

    def __init__(
        self, alpha: float = 0.5, p: float = 2.0, *, own: bool = False, **options: Any
    ) -> None:
        if options.get("potential") is not None or options.get("potential_pos") is not None:
            raise ValueError("potential and potential_pos must be None: AlignUniform has none")
        super().__init__(Lp(p=p), **options)
        self.alpha = check_real("alpha", alpha, above=0, below=1)
        self.own = bool(own)

    def _one_way(self, direction: Direction) -> Tensor:
        count = count_negatives(direction)
        total = torch.stack(self._logsumexps(direction)).logsumexp(0)
        if self.own:
            total, count = torch.logaddexp(total, torch.zeros_like(total)), count + 1
        uniformity = (total - math.log(count)).mean()
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
        factor = 0.5 if half else 1.0
        super().__init__(
            Lp(p=2, weights=[factor * value for value in values], learn_weights=True),
            **options,
        )
        self.n, self.factor = n, factor

    @property
    def weights(self) -> Tensor:
        """The current λ̂, in the convention chosen."""
        return self.similarity.coordinate_weights(self.n) / self.factor
