"""InfoNCE with a full matrix of weights, for factors whose changes within a pair are correlated."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isolatent.checks import check_integer, check_real
from isolatent.contrast.distributed import Counts
from isolatent.contrast.losses import InfoNCE
from isolatent.contrast.similarities import Lp

__all__ = ["FullAnInfoNCE"]


class FullAnInfoNCE(InfoNCE):
    r"""InfoNCE with a learned matrix of weights, for steps that are correlated between factors.

    .. math:: s(u, v) = -\tfrac12 (u - v)^\top \hat\Lambda (u - v), \qquad \hat\Lambda = L L^\top

    L is lower triangular with a positive diagonal, its columns scaled by one learned number each:
    every positive definite matrix has one such factor. Codes are mapped by :math:`L^\top`, and
    compared by their squared distance; so every engine applies, and so do all options. Potentials
    get the mapped codes.

    **What is identified.** Let factors be uniform on a sphere, and
    :math:`p(z' | z) \propto e^{-\frac12 (z' - z)^\top \Lambda (z' - z)}`. At the optimum codes are
    h = A z with A orthogonal and :math:`\hat\Lambda = A \Lambda A^\top`. Every orthogonal A has the
    same loss: a rotation of the codes is undone by a rotation of the matrix. So codes are
    identified up to an orthogonal map, less than with :class:`AnInfoNCE`, which assumes that Λ is
    diagonal in the factors. In return Λ may be any matrix. :meth:`axes` returns the eigenvalues of
    the matrix, which are those of Λ, and its eigenvectors. Codes along these are the factors in the
    eigenbasis of Λ, up to signs and up to rotations among equal eigenvalues. They are the factors
    themselves only if Λ is diagonal in these, and then :class:`AnInfoNCE` finds the same.

    Thus correlated steps can be told from rotated codes only where codes have axes of their own. In
    a box that uniform codes fill, the faces fix the axes up to permutation and reflection, and the
    matrix that is found is Λ in this order. Codes without constraints absorb every matrix: they
    need a fixed one.

    Args:
        n: Number of codes.
        weight: Initial diagonal of the matrix, which starts as a multiple of the identity.
        **options: Those of :class:`InfoNCE`.

    Example:
        >>> loss = FullAnInfoNCE(2, weight=3.0)
        >>> loss.matrix.detach()
        tensor([[3., 0.],
                [0., 3.]])
        >>> h = torch.eye(2)
        >>> round(loss(h, h).item(), 4)  # log(1 + e^-3)
        0.0486
    """

    def __init__(self, n: int, weight: float = 1.0, **options: Any) -> None:
        check_integer("n", n, at_least=1)
        start = torch.tensor(check_real("weight", weight, above=0))
        super().__init__(Lp(p=2, weights=0.5), **options)
        self.n = n
        self.log_weights = nn.Parameter(start.log().expand(n).clone())
        self.below = nn.Parameter(torch.zeros(n * (n - 1) // 2))  # of a unit diagonal, row by row

    @property
    def factor(self) -> Tensor:
        """The current L (n, n)."""
        unit = torch.eye(self.n, dtype=self.below.dtype, device=self.below.device)
        rows, columns = torch.tril_indices(self.n, self.n, -1, device=self.below.device)
        return unit.index_put((rows, columns), self.below) * (0.5 * self.log_weights).exp()

    @property
    def matrix(self) -> Tensor:
        """The current estimate of Λ, (n, n)."""
        return self.factor @ self.factor.mT

    def axes(self) -> tuple[Tensor, Tensor]:
        """Return the eigenvalues (n,) of the matrix, the largest first, and its eigenvectors.

        Codes along the eigenvectors, the columns of an orthogonal matrix (n, n), are ``h @ axes``.
        """
        values, vectors = torch.linalg.eigh(self.matrix.detach().cpu().double())
        return values.flip(0), vectors.flip(1)

    def _check(self, h: Tensor, h_pos: Tensor, negatives: Tensor | None) -> None:
        super()._check(h, h_pos, negatives)
        if h.shape[1] != self.n:
            raise ValueError(f"h must have n = {self.n} codes, got {h.shape[1]}")

    def _value(
        self, h: Tensor, h_pos: Tensor, negatives: Tensor | None, counts: Counts | None = None
    ) -> Tensor:
        factor = self.factor.to(h)
        mapped = None if negatives is None else negatives @ factor
        return super()._value(h @ factor, h_pos @ factor, mapped, counts)
