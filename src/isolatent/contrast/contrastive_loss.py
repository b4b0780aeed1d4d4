"""The base of all contrastive losses: negatives of each anchor, and the scores of pairs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
from isolatent.contrast.kernels.recompute import without_autocast
from isolatent.contrast.similarities import Similarity

__all__ = ["Candidates", "ContrastiveLoss", "Direction", "count_negatives", "mean_of"]

HALVES = (torch.float16, torch.bfloat16)
POLICIES = ("across", "within", "both", "given")


class Side(NamedTuple):
    """Codes as one side of a pair, as anchors or as positives, with their terms of the score."""

    codes: Tensor  # (B, n): φ(h) for anchors, h for positives
    potential: Tensor | None  # (B,)
    scale: Tensor | None = None  # (B,), the multiplier of the distance, for anchors alone

    def gathered(self, counts: Counts | None) -> Side:
        """Return this side of the pairs of all processes."""
        return Side(*(None if x is None else gather_rows(x, counts) for x in self))  # type: ignore[arg-type]


class Candidates(NamedTuple):
    """Columns that every row is compared with."""

    codes: Tensor  # (M, n), or (B, K, n) for K columns of its own for each row
    potential: Tensor | None  # (M,) or (B, K)
    scale: Tensor | None  # (M,), where the columns are anchors with a scale of their own
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
    row_scale: Tensor | None  # (B,)
    positive: Tensor  # scores of the positive pairs (B,)
    negatives: list[Candidates]

    @property
    def side(self) -> Side:
        """The rows as one side of their pairs."""
        return Side(self.rows, self.row_potential, self.row_scale)


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

    Assumptions about the pairs can be relaxed: see :mod:`isolatent.contrast.relaxations`. Scores
    are then :math:`s(u, v) = -λ(u)\, d_w(φ(u), v) - α(u) - α̃(v)`, and the density ratio is
    :math:`e^s + e^b`. A score belongs to an ordered pair, and both directions of a symmetric loss
    reduce the same matrix of scores.

    The negatives of anchor i are the positives h'_j of the other pairs (``"across"``), the other
    anchors h_j (``"within"``), both, or only the codes passed as ``negatives`` (``"given"``).
    Neither the anchor itself nor its positive is a negative.

    Args:
        similarity: -d, such as ``Dot()`` or ``Lp(p=1)``.
        symmetric: Whether to average with the loss in which h' are the anchors and h the positives.
        negatives_from: ``"across"``, ``"within"``, ``"both"`` or ``"given"``.
        potential: The module α of anchors, from codes (B, n) to numbers (B,); None for 0.
        potential_pos: The module α̃ of candidates; None for 0.
        pairing: b, a module without arguments such as :class:`Pairing`; None if all pairs are
            related.
        anchor_scale: The module λ of anchors, from codes (B, n) to positive numbers (B,), such as
            :class:`AnchorScale`; None for 1. :class:`Dot` of scale κ becomes
            :math:`κ - λ(u)\, κ (1 - u^\top v)`, the same for λ = 1.
        factor_scale: The relative weights w of the codes, a module without arguments such as
            :class:`FactorScale`; None for 1. :class:`Dot` of scale κ becomes
            :math:`κ - λ(u)\, \tfrac κ2 \sum_k w_k (u_k - v_k)^2`, the same for unit codes, w = 1.
        dynamics: The module φ of anchors, from codes (B, n) to codes (B, n), such as
            :class:`LinearDynamics`; None for the identity.
        engine: ``"auto"``, ``"dense"``, ``"blockwise"`` or ``"numba"``: see
            :mod:`isolatent.contrast.kernels`.
        gather: Whether to take candidates from all processes of ``torch.distributed``.
    """

    undefined: tuple[str, ...] = ()  # modules that have no meaning in a loss
    sums_all_pairs = False  # whether both directions sum the same terms over all pairs

    def __init__(
        self,
        similarity: Similarity,
        *,
        symmetric: bool = True,
        negatives_from: str = "across",
        potential: nn.Module | None = None,
        potential_pos: nn.Module | None = None,
        pairing: nn.Module | None = None,
        anchor_scale: nn.Module | None = None,
        factor_scale: nn.Module | None = None,
        dynamics: nn.Module | None = None,
        engine: str = "auto",
        gather: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(similarity, Similarity):
            raise TypeError(f"similarity must be a Similarity such as Dot(), got {similarity!r}")
        given = {
            "potential": potential,
            "potential_pos": potential_pos,
            "pairing": pairing,
            "anchor_scale": anchor_scale,
            "factor_scale": factor_scale,
            "dynamics": dynamics,
        }
        for name, module in given.items():
            if module is not None and not isinstance(module, nn.Module):
                raise TypeError(f"{name} must be a module or None, got {module!r}")
            if module is not None and name in self.undefined:
                raise ValueError(f"{name} must be None: {type(self).__name__} does not define it")
        self.similarity = similarity
        self.symmetric = symmetric
        self.negatives_from = check_one_of("negatives_from", negatives_from, POLICIES)
        self.potential = potential
        self.potential_pos = potential_pos
        self.pairing = pairing
        self.anchor_scale = anchor_scale
        self.factor_scale = factor_scale
        self.dynamics = dynamics
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
        with without_autocast(h.device):
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
        across = self.negatives_from == "across" and negatives is None and counts is None
        if self.sums_all_pairs and across:
            directions = directions[:1]
        if len(h) == 0:  # another process has rows
            # 0, with all parameters in its graph
            loss = self._add_unrelated(directions[0].positive).sum()
        else:
            loss = mean_of([self._one_way(direction) for direction in directions])
        return loss if counts is None else loss + _zero_of_candidates(directions)

    @abstractmethod
    def _one_way(self, direction: Direction) -> Tensor:
        """Return the loss of one direction, averaged over its rows."""

    def scores(self, h: Tensor, h_pos: Tensor) -> Tensor:
        """Return the scores s (B,) of pairs of codes (B, n)."""
        return self._pair_scores(self._as_anchors(h), self._as_positives(h_pos))

    def coordinate_weights(self, n: int, like: Tensor | None = None) -> Tensor:
        """Return the weights (n,) of the codes in the distance, with those of ``factor_scale``.

        Args:
            n: Number of codes.
            like: A tensor whose dtype and device the weights shall have.
        """
        weights = self.similarity.coordinate_weights(n, like)
        if self.factor_scale is None:
            return weights
        relative: Tensor = self.factor_scale()
        if relative.shape != (n,):
            raise ValueError(f"factor_scale must return {n} weights, got {tuple(relative.shape)}")
        halved = 0.5 * weights if self.similarity.p is None else weights
        return halved * relative.to(weights)

    @property
    def exponent(self) -> float | None:
        """The power of the distance, or None for an inner product."""
        return (
            2.0
            if self.factor_scale is not None and self.similarity.p is None
            else (self.similarity.p)
        )

    def _track(self, h: Tensor, h_pos: Tensor, counts: Counts | None) -> None:
        """Let modules that standardize codes see those of all processes."""
        modules = (self.potential, self.potential_pos, self.anchor_scale, self.dynamics)
        tracking = {m for m in modules if m is not None and hasattr(m, "track")}
        if tracking:
            everyone = torch.cat([gather_rows(part.detach(), counts) for part in (h, h_pos)])
            for module in tracking:
                module.track(everyone)  # type: ignore[operator]

    def _as_anchors(self, h: Tensor) -> Side:
        centres = h
        if self.dynamics is not None:
            centres = self.dynamics(h)
            if centres.shape != h.shape:
                raise ValueError(
                    f"dynamics must map codes {tuple(h.shape)} to codes of the same shape, "
                    f"got {tuple(centres.shape)}"
                )
        potential = _number_per_row("potential", self.potential, h)
        scale = _number_per_row("anchor_scale", self.anchor_scale, h)
        if self.similarity.p is None and (scale is not None or self.factor_scale is not None):
            # κ u·v becomes κ - λ d(u, v), with d = κ (1 - u·v), or a weighted distance: the same
            # for unit codes and λ = w = 1, so that a relaxation changes nothing at first.
            kappa = self.similarity.coordinate_weights(1, like=h)
            lifted = kappa.expand(len(h)) if self.factor_scale is not None else kappa * (1 - scale)  # type: ignore[operator]
            potential = -lifted if potential is None else potential - lifted
        return Side(centres, potential, scale)

    def _as_positives(self, h: Tensor) -> Side:
        return Side(h, _number_per_row("potential_pos", self.potential_pos, h))

    def _pair_scores(self, anchors: Side, positives: Side) -> Tensor:
        """Return the scores (...) of anchors with positives (..., n), which broadcast."""
        u, v = anchors.codes, positives.codes
        if self.factor_scale is None:
            scores = self.similarity(u, v)
        else:
            p, weights = self.exponent, self.coordinate_weights(u.shape[-1], like=u)
            assert p is not None
            scores = -(weights * (u - v).abs() ** p).sum(-1)
        if anchors.scale is not None:
            scores = anchors.scale * scores
        for term in (anchors.potential, positives.potential):
            scores = scores if term is None else scores - term
        return scores

    def _sides(self, h: Tensor, h_pos: Tensor, counts: Counts | None = None) -> tuple[Side, Side]:
        """Return both sides of the pairs; in training, modules see their codes first."""
        if self.training:
            self._track(h, h_pos, counts)
        return self._as_anchors(h), self._as_positives(h_pos)

    def _directions(
        self, h: Tensor, h_pos: Tensor, negatives: Tensor | None, counts: Counts | None = None
    ) -> list[Direction]:
        anchors, positives = self._sides(h, h_pos, counts)
        positive = self._pair_scores(anchors, positives)
        # For each direction: its rows and their codes, the other side, and how to view candidates.
        ways = [(anchors, h, positives, self._as_positives)]
        if self.symmetric:
            ways.append((positives, h_pos, anchors, self._as_anchors))
        return [
            Direction(
                *rows,
                positive,
                [
                    *self._in_batch(codes, others, view, counts),
                    *self._given(negatives, view),
                ],
            )
            for rows, codes, others, view in ways
        ]

    def _in_batch(
        self, codes: Tensor, others: Side, view: Callable[[Tensor], Side], counts: Counts | None
    ) -> list[Candidates]:
        """Return candidates from the other view, the rows' own view, or both, by policy."""
        found = []
        own = torch.arange(len(codes), device=codes.device) + row_offset(counts)
        if self.negatives_from in ("across", "both"):
            found.append(Candidates(*others.gathered(counts), own, positive=True))
        if self.negatives_from in ("within", "both"):
            found.append(Candidates(*view(codes).gathered(counts), own))
        return found

    def _given(self, negatives: Tensor | None, view: Callable[[Tensor], Side]) -> list[Candidates]:
        if negatives is None:
            return []
        side = view(negatives.flatten(0, -2))
        if negatives.ndim == 3:  # not gathered: they belong to the anchors of this process
            potential = side.potential
            own = None if potential is None else potential.view(negatives.shape[:-1])
            return [Candidates(negatives, own, None, None)]
        counts = count_rows(negatives) if self.gather else None
        return [Candidates(*side.gathered(counts), None)]

    def _add_unrelated(self, log: Tensor, count: int = 1) -> Tensor:
        """Return log(e^log + count · e^b), and the given logarithms where all pairs are related."""
        if self.pairing is None:
            return log
        return torch.logaddexp(log, self._log_unrelated(log) + math.log(count))

    def _log_unrelated(self, like: Tensor) -> Tensor:
        """Return b, in the dtype and on the device of a tensor."""
        assert self.pairing is not None
        b: Tensor = self.pairing()
        if b.shape != ():
            raise ValueError(f"pairing must return one number, got shape {tuple(b.shape)}")
        return b.to(like)

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
        """Return a reduction of the scores, times a factor, of each row with its candidates.

        ``kernel`` reduces over columns that all rows share, ``own`` reduces a dense (B, K) array.
        """
        if candidates.scale is not None:
            return self._reduce_columns(kernel, direction, candidates, times)
        if candidates.codes.ndim == 2:
            return kernel(self._pairwise_scores(direction.side, candidates, times), self.engine)
        rows = Side(
            *(None if x is None else x.unsqueeze(1) for x in direction.side)  # type: ignore[arg-type]
        )
        return own(times * self._pair_scores(rows, Side(candidates.codes, candidates.potential)))

    def _reduce_columns(
        self,
        kernel: Callable[..., Tensor],
        direction: Direction,
        candidates: Candidates,
        times: float,
    ) -> Tensor:
        """Reduce scores whose candidates have a scale each: the transposed matrix, by columns.

        The sum of softplus is left per candidate instead of per row; only its total counts.
        """
        rows, columns = len(candidates.codes), len(direction.rows)
        skip = None
        if candidates.skip is not None:
            skip = torch.full((rows,), -1, device=candidates.skip.device)
            skip[candidates.skip] = torch.arange(columns, device=skip.device)
        others = Candidates(direction.rows, direction.row_potential, None, skip)
        scores = self._pairwise_scores(Side(*candidates[:3]), others, times)
        if kernel is row_logsumexp:
            return both_logsumexp(scores, self.engine)[1]
        return kernel(scores, self.engine)

    def _scores_across(self, h: Tensor, h_pos: Tensor, *, skip: bool) -> PairwiseScores:
        """Return the scores of all anchors with all positives; both directions reduce them.

        ``skip`` is whether to leave out the positive pairs.
        """
        anchors, positives = self._sides(h, h_pos)
        own = torch.arange(len(h), device=h.device) if skip else None
        return self._pairwise_scores(anchors, Candidates(*positives, own))

    def _pairwise_scores(
        self, rows: Side, candidates: Candidates, times: float = 1.0
    ) -> PairwiseScores:
        a, b = rows.potential, candidates.potential
        weights = self.coordinate_weights(candidates.codes.shape[-1], rows.codes)
        return PairwiseScores(
            rows.codes,
            candidates.codes,
            self.exponent,
            weights if times == 1 else times * weights,
            row_potential=a if a is None or times == 1 else times * a,
            column_potential=b if b is None or times == 1 else times * b,
            row_scale=rows.scale,
            skip=candidates.skip,
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
                if math.isfinite(codes.detach().sum().item()):
                    continue  # as is every term of the sum
                finite = codes.isfinite().flatten(1).all(1)
                if not bool(finite.all()):
                    row = int((~finite).nonzero()[0])
                    raise ValueError(f"{name} must be finite, but row {row} holds NaN or inf")


def mean_of(losses: Sequence[Tensor]) -> Tensor:
    """Return the mean of one or two losses, or of as many vectors."""
    return losses[0] if len(losses) == 1 else torch.lerp(losses[0], losses[1], 0.5)


def _zero_of_candidates(directions: list[Direction]) -> Tensor:
    """Return 0 with all candidates in its graph.

    All processes must run the same collectives in the backward pass, also a process that has no
    rows, or whose rows do not depend on all that was gathered.
    """
    tensors = [
        tensor
        for direction in directions
        for candidates in direction.negatives
        for tensor in candidates[:3]
        if tensor is not None
    ]
    return torch.stack([0 * tensor.sum() for tensor in tensors]).sum()


def _number_per_row(name: str, module: nn.Module | None, codes: Tensor) -> Tensor | None:
    if module is None:
        return None
    values: Tensor = module(codes)
    if values.shape != codes.shape[:1]:
        raise ValueError(
            f"{name} must map codes {tuple(codes.shape)} to numbers ({len(codes)},), "
            f"got {tuple(values.shape)} from {module!r}"
        )
    return values
