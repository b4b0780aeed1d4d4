"""Losses with means of e^s in them, which overflow where positives are concentrated."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from isolatent.checks import IsolatentWarning
from isolatent.contrast.contrastive_loss import ContrastiveLoss, Direction, count_negatives

__all__ = ["NWJ", "SpectralContrastive"]


class _ExponentialLoss(ContrastiveLoss):
    """A loss with means of e^s in it, taken in the log domain."""

    warned = False

    def _log_mean_exp(self, direction: Direction, times: float) -> Tensor:
        """Log of the mean of e^(times · s) over all negative pairs."""
        pairs = count_negatives(direction) * len(direction.rows)
        parts = torch.stack(self._logsumexps(direction, times))
        return parts.logsumexp((0, 1)) - math.log(pairs)

    def _exp(self, log: Tensor, *, attracts: bool = False) -> Tensor:
        """e^log, continued above a ceiling c so that value and gradient stay of use.

        Above c a mean that repels is continued as :math:`e^c (1 + x - c)`, one that attracts as
        :math:`e^c (1 + log(1 + x - c))`: both join with the same slope, and repulsion still wins,
        as it does in the loss itself. c is 40 in float32 and 340 in float64, the largest for which
        the square of a gradient, which Adam keeps, does not overflow.
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
        repulsion = self._exp(self._log_mean_exp(direction, 2.0))
        return repulsion - 2 * self._exp(positive, attracts=True)


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
