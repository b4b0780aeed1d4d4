"""The base of all contrastive losses: negatives of each anchor, and the scores of pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from isolatent.checks import check_one_of
from isolatent.contrast.distributed import (
    Counts,
    average_value,
    check_processes,
    count_rows,
    gather_rows,
    row_offset,
)
from isolatent.contrast.kernels import (
    ENGINES,
    PairwiseScores,
    both_logsumexp,
    choose_engine,
    row_logsumexp,
)
from isolatent.contrast.similarities import Similarity

__all__ = ["Candidates", "ContrastiveLoss", "Direction", "count_negatives"]

HALVES = (torch.float16, torch.bfloat16)
POLICIES = ("across", "within", "both", "given")


class Candidates(NamedTuple):
    """Columns that every row is compared with."""

    codes: Tensor  # (M, n), or (B, K, n) for K columns of its own for each row
    potential: Tensor | None  # (M,) or (B, K)
    skip: Tensor | None  # (B,), for each row the column to leave out
    positive: bool = False  # whether that column is the positive of the row

    @property
    def per_row(self) -> int:
        """The number of negatives of each row among these columns."""
        return self.codes.shape[-2] - (self.skip is not None)


class Direction(NamedTuple):
    """One direction of a loss: rows, and the candidates among which to find their partners."""

    rows: Tensor  # (B, n)
    row_potential: Tensor | None  # (B,)
    positive: Tensor  # scores of the positive pairs (B,)
    negatives: list[Candidates]


def count_negatives(direction: Direction) -> int:
    """Return the number of negatives of each row; raise an error if there are none."""
    count = sum(candidates.per_row for candidates in direction.negatives)
    if count == 0:
        raise ValueError(
            "there are no negatives: a batch of one pair has none; give more pairs, or pass "
            "negatives="
        )
    return count


class ContrastiveLoss(nn.Module, ABC):
    r"""A loss of codes h (B, n) of anchors and codes h' (B, n) of their positives.

    Scores are :math:`s(u, v) = -d(u, v) - α(u) - α̃(v)`, u an anchor and v a candidate for its
    positive. No B × B array is stored, unless the engine is ``"dense"``. Half-precision codes are
    converted to float32, also under autocast: scores need more than three digits.

    The negatives of anchor i are the positives h'_j of the other pairs (``"across"``), the other
    anchors h_j (``"within"``), both, or only the codes passed as ``negatives`` (``"given"``).
    Neither the anchor itself nor its positive is a negative.

    Args:
        similarity: -d, such as ``Dot()`` or ``Lp(p=1)``.
        symmetric: Whether to average with the loss in which h' are the anchors and h the positives.
        negatives_from: ``"across"``, ``"within"``, ``"both"`` or ``"given"``.
        potential: The module α of anchors, from codes (B, n) to numbers (B,); None for 0.
        potential_pos: The module α̃ of candidates; None for 0.
        engine: ``"auto"``, ``"dense"``, ``"blockwise"`` or ``"numba"``: see
            :mod:`isolatent.contrast.kernels`.
        gather: Whether to take candidates from all processes of ``torch.distributed``.
    """

    def __init__(
        self,
        similarity: Similarity,
        *,
        symmetric: bool = True,
        negatives_from: str = "across",
        potential: nn.Module | None = None,
        potential_pos: nn.Module | None = None,
        engine: str = "auto",
        gather: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(similarity, Similarity):
            raise TypeError(f"similarity must be a Similarity such as Dot(), got {similarity!r}")
        for name, module in (("potential", potential), ("potential_pos", potential_pos)):
            if module is not None and not isinstance(module, nn.Module):
                raise TypeError(f"{name} must be a module or None, got {module!r}")
        self.similarity = similarity
        self.symmetric = symmetric
        self.negatives_from = check_one_of("negatives_from", negatives_from, POLICIES)
        self.potential = potential
        self.potential_pos = potential_pos
        self.engine = check_one_of("engine", engine, ENGINES)
        self.gather = gather

    def forward(self, h: Tensor, h_pos: Tensor, negatives: Tensor | None = None) -> Tensor:
        """Return the loss, a scalar.

        Args:
            h: Codes of the anchors (B, n). With ``gather=True`` B may differ between processes and
                may be 0.
            h_pos: Codes of their positives (B, n).
            negatives: Further negatives: (K, n) for all anchors, or (B, K, n), K for each anchor,
                which needs ``symmetric=False``. With ``gather=True`` each process passes its own
                share of the (K, n). Detach negatives that shall get no gradient, such as a queue
                of past codes.
        """
        self._check(h, h_pos, negatives)
        with torch.autocast(h.device.type, enabled=False):
            if h.dtype in HALVES:
                h, h_pos = h.float(), h_pos.float()
                negatives = None if negatives is None else negatives.float()
            counts = count_rows(h) if self.gather else None
            if counts is not None and sum(counts) == 0:
                raise ValueError("h and h_pos must have rows in at least one process, got none")
            loss = self._value(h, h_pos, negatives, counts)
            return loss if counts is None else average_value(loss, counts)

    def _value(
        self, h: Tensor, h_pos: Tensor, negatives: Tensor | None, counts: Counts | None = None
    ) -> Tensor:
        """Return the loss, averaged over the rows of this process.

        ``counts`` holds the number of rows of each process; None where nothing is gathered.
        """
        directions = self._directions(h, h_pos, negatives, counts)
        if len(h) == 0:  # another process has rows
            loss = directions[0].positive.sum()  # 0, with all parameters in its graph
        else:
            loss = torch.stack([self._one_way(direction) for direction in directions]).mean()
        return loss if counts is None else loss + _zero_of_candidates(directions)

    @abstractmethod
    def _one_way(self, direction: Direction) -> Tensor:
        """Return the loss of one direction, averaged over its rows."""

    def _directions(
        self, h: Tensor, h_pos: Tensor, negatives: Tensor | None, counts: Counts | None = None
    ) -> list[Direction]:
        alpha, alpha_pos = _potential(self.potential, h), _potential(self.potential_pos, h_pos)
        positive = self.similarity(h, h_pos)
        for term in (alpha, alpha_pos):
            positive = positive if term is None else positive - term
        sides = [(h, alpha, h_pos, alpha_pos, self.potential_pos)]
        if self.symmetric:
            sides.append((h_pos, alpha_pos, h, alpha, self.potential))
        return [
            Direction(
                rows,
                row_potential,
                positive,
                [
                    *self._in_batch(rows, others, other_potential, module, counts),
                    *self._given(negatives, module),
                ],
            )
            for rows, row_potential, others, other_potential, module in sides
        ]

    def _in_batch(
        self,
        rows: Tensor,
        others: Tensor,
        other_potential: Tensor | None,
        module: nn.Module | None,
        counts: Counts | None,
    ) -> list[Candidates]:
        """Return candidates from the other view, the rows' own view, or both, by policy."""
        found = []
        own = torch.arange(len(rows), device=rows.device) + row_offset(counts)
        if self.negatives_from in ("across", "both"):
            found.append(
                Candidates(*_gathered(others, other_potential, counts), own, positive=True)
            )
        if self.negatives_from in ("within", "both"):
            columns = _gathered(rows, _potential(module, rows), counts)
            found.append(Candidates(*columns, own))
        return found

    def _given(self, negatives: Tensor | None, module: nn.Module | None) -> list[Candidates]:
        if negatives is None:
            return []
        potential = _potential(module, negatives.flatten(0, -2))
        if negatives.ndim == 3:  # not gathered: they belong to the anchors of this process
            own = None if potential is None else potential.view(negatives.shape[:-1])
            return [Candidates(negatives, own, None)]
        counts = count_rows(negatives) if self.gather else None
        return [Candidates(*_gathered(negatives, potential, counts), None)]

    def _logsumexps(self, direction: Direction, times: float = 1.0) -> list[Tensor]:
        """Return log-sum-exps (B,) of the scores, times a factor, over each set of negatives."""
        return [
            self._reduce(row_logsumexp, lambda s: s.logsumexp(1), direction, candidates, times)
            for candidates in direction.negatives
            if candidates.per_row
        ]

    def _reduce(
        self,
        kernel: Callable[..., Tensor],
        own: Callable[[Tensor], Tensor],
        direction: Direction,
        candidates: Candidates,
        times: float = 1.0,
    ) -> Tensor:
        """Return a reduction (B,) of the scores, times a factor, of each row with its candidates.

        ``kernel`` reduces over columns that all rows share, ``own`` reduces a dense (B, K) array.
        """
        if candidates.codes.ndim == 2:
            return kernel(self._pairwise_scores(direction, candidates, times), self.engine)
        scores = self.similarity(direction.rows.unsqueeze(1), candidates.codes)
        if direction.row_potential is not None:
            scores = scores - direction.row_potential.unsqueeze(1)
        if candidates.potential is not None:
            scores = scores - candidates.potential
        return own(times * scores)

    def _both_logsumexp(self, directions: list[Direction], skip: bool) -> tuple[Tensor, Tensor]:
        """Return the log-sum-exps (B,) of both directions across, in one pass over the scores.

        ``skip`` is whether to leave out the positive pairs.
        """
        forth, back = directions
        across = Candidates(
            back.rows, back.row_potential, forth.negatives[0].skip if skip else None
        )
        return both_logsumexp(self._pairwise_scores(forth, across), self.engine)

    def _pairwise_scores(
        self, direction: Direction, candidates: Candidates, times: float = 1.0
    ) -> PairwiseScores:
        a, b = direction.row_potential, candidates.potential
        weights = self.similarity.coordinate_weights(candidates.codes.shape[-1], direction.rows)
        return PairwiseScores(
            direction.rows,
            candidates.codes,
            self.similarity.p,
            times * weights,
            None if a is None else times * a,
            None if b is None else times * b,
            candidates.skip,
        )

    def _check(self, h: Tensor, h_pos: Tensor, negatives: Tensor | None) -> None:
        given = {"h": h, "h_pos": h_pos}
        if negatives is not None:
            given["negatives"] = negatives
        for name, codes in given.items():
            if not isinstance(codes, Tensor) or not codes.is_floating_point():
                got = codes.dtype if isinstance(codes, Tensor) else type(codes).__name__
                raise TypeError(f"{name} must be a tensor of floats, got {got}")
            if codes.dtype != h.dtype or codes.device != h.device:
                raise TypeError(
                    f"{name} must have h's dtype and device, {h.dtype} on {h.device}, "
                    f"got {codes.dtype} on {codes.device}"
                )
        # A process may have no rows where others have some.
        fewest = 0 if self.gather else 1
        if h.ndim != 2 or h.shape != h_pos.shape or len(h) < fewest or h.shape[1] == 0:
            raise ValueError(
                "h and h_pos must have the same shape (B, n) with B and n at least 1, got "
                f"{tuple(h.shape)} and {tuple(h_pos.shape)}"
            )
        if negatives is not None:
            b, n = h.shape
            fits = negatives.ndim == 2 or (negatives.ndim == 3 and len(negatives) == b)
            if not fits or negatives.shape[-1] != n or 0 in (negatives.shape[-2], n):
                raise ValueError(
                    f"negatives must have shape (K, {n}) or ({b}, K, {n}), "
                    f"got {tuple(negatives.shape)}"
                )
            if negatives.ndim == 3 and self.symmetric:
                raise ValueError(
                    f"negatives {tuple(negatives.shape)} belong to the anchors, and the positives "
                    "would have none: use symmetric=False"
                )
        elif self.negatives_from == "given":
            raise ValueError("negatives must be given when negatives_from='given'")
        if self.gather:
            check_processes()
        choose_engine(self.engine, h)
        if h.device.type == "cpu":  # reading values from another device would wait for it
            for name, codes in given.items():
                finite = codes.isfinite().flatten(1).all(1)
                if not bool(finite.all()):
                    row = int((~finite).nonzero()[0])
                    raise ValueError(f"{name} must be finite, but row {row} holds NaN or inf")


def _zero_of_candidates(directions: list[Direction]) -> Tensor:
    """Return 0 with all candidates in its graph.

    All processes must run the same collectives in the backward pass, also a process that has no
    rows, or whose rows do not depend on all that was gathered.
    """
    tensors = [
        tensor
        for direction in directions
        for candidates in direction.negatives
        for tensor in (candidates.codes, candidates.potential)
        if tensor is not None
    ]
    return torch.stack([0 * tensor.sum() for tensor in tensors]).sum()


def _gathered(
    codes: Tensor, potential: Tensor | None, counts: Counts | None
) -> tuple[Tensor, Tensor | None]:
    everyone = None if potential is None else gather_rows(potential, counts)
    return gather_rows(codes, counts), everyone


def _potential(module: nn.Module | None, codes: Tensor) -> Tensor | None:
    if module is None:
        return None
    values: Tensor = module(codes)
    if values.shape != codes.shape[:1]:
        raise ValueError(
            f"a potential must map codes {tuple(codes.shape)} to numbers ({len(codes)},), "
            f"got {tuple(values.shape)} from {module!r}"
        )
    return values
