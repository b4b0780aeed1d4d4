"""Guarantees for recovered factors, derived from beliefs and the choices of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Any

from isolatent.cards import Row, card
from isolatent.checks import check_integer, check_real, check_scale
from isolatent.theory.assumptions import (
    ASSUMPTION_KINDS,
    RATIO_LOSSES,
    Assumption,
    ModelTraits,
    assumptions_of,
    derived_here,
    open_rotation,
    unmet,
)
from isolatent.theory.beliefs import Beliefs
from isolatent.theory.code_axes import CodeAxis
from isolatent.theory.relaxations import (
    WEIGHTS_ARE_SCALES,
    open_relaxations,
    relaxed_assumptions,
    relaxed_beliefs,
    relaxed_consequences,
)

__all__ = ["UNSUPPORTED", "Guarantee", "derive_guarantee", "weight_blocks"]

ZIMMERMANN = "Zimmermann et al. 2021"
MATTHES = "Matthes et al. 2023"
RUSAK = "Rusak et al. 2025"
KIRCHHOF = "Kirchhof et al. 2023"

UNSUPPORTED = "not supported by these data"  # what a card says instead of its theorem
BOX_ONTO_BOX = (
    "an affine bijection of a box onto a box is a signed permutation with scaling: "
    "if the codes fill their box (checkable), MCC counts too"
)
ONE_FACTOR = "an affine map of one factor is a scaling and a shift: MCC counts too"
FULL_MATRIX = (
    "the eigenvectors of the learned matrix are the axes of the conditional, up to blocks of equal "
    "eigenvalues; they are the factors if steps along these are uncorrelated"
)


@dataclass(frozen=True)
class Guarantee:
    """The class of maps between true and recovered factors that theory leaves open.

    Attributes:
        equivalence: Recovered factors equal the true ones up to this; None if nothing is proven.
        assumptions: Assumptions under which the equivalence holds.
        metric: The score of :mod:`isolatent.evaluation` that is right for this class.
        reference: The theorem.
        gap: The first assumption that fails, where there is no guarantee.
        consequence: A further consequence, and its condition on the data.
        blocks: Codes that cannot be told apart, by their learned weights or by their axes, where
            others can.
        objective: The loss that training ended with, where a model was trained.
        calibration: The calibration that was applied to its codes, if any.
        warnings: Events of training that contradict the claim, such as a saturated loss.
        learned: What training learned in place of relaxed assumptions, with its value.
        axes: What the checks of axes found, where axes were looked for.
        code_axes: The axis of each code, where axes were found: block, stability, time scale and
            period.
        recordings: What the codes of several recordings share, where each has an encoder.
        support: What held-out pairs say about a fit: information against chance, training pairs and
            a linear code.
        withdrawn: The equivalence that would follow if the data supported it, where they do not.
        directions: How many directions of the data the encoder sees, where some were dropped.

    Example:
        >>> print(derive_guarantee(Beliefs("sphere"), loss="nce", potentials="none"))
        no guarantee: NCE needs a constant or learned potential for the conditional's normaliser
          score       linear_r2
    """

    equivalence: str | None
    assumptions: tuple[Assumption, ...]
    metric: str
    reference: str
    gap: str = ""
    consequence: str = ""
    blocks: tuple[tuple[int, ...], ...] | None = None
    objective: str = ""
    calibration: str = ""
    warnings: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()
    axes: str = ""
    code_axes: tuple[CodeAxis, ...] = ()
    recordings: str = ""
    support: str = ""
    withdrawn: str = ""
    directions: str = ""

    def __post_init__(self) -> None:
        if (self.equivalence is None) != bool(self.gap):
            raise ValueError(
                "gap must say what fails when equivalence is None, and be empty otherwise, "
                f"got equivalence={self.equivalence!r}, gap={self.gap!r}"
            )

    def __str__(self) -> str:
        claim = f"{self.equivalence}, if:" if self.equivalence else f"no guarantee: {self.gap}"
        if self.withdrawn:
            claim = f"{self.gap}; the theorem would need:"
        rows = [(ASSUMPTION_KINDS[a.kind], a.text) for a in self.assumptions]
        return "\n".join(
            [claim, *(f"  {label:<10}  {text}" for label, text in rows + self._facts())]
        )

    def _repr_html_(self) -> str:
        lead = f"{self.equivalence}, if:" if self.equivalence else f"no guarantee: {self.gap}"
        rows: list[Row] = [(ASSUMPTION_KINDS[a.kind], a.text) for a in self.assumptions]
        rows += [("warning", warning, "no") for warning in self.warnings]
        facts = [fact for fact in self._facts() if fact[0] != "warning"]
        return card("Guarantee", lead, rows, status=self.mark, folded=facts)

    @property
    def mark(self) -> str:
        """``"no"`` without a claim, ``"open"`` if training contradicts it, and else empty."""
        if self.equivalence is None:
            return "no"
        return "open" if self.warnings else ""

    def _facts(self) -> list[tuple[str, str]]:
        """Return what is known besides the claim and its assumptions, with labels."""
        rows = []
        if self.blocks is not None:
            rows.append(("blocks", " ".join(str(list(block)) for block in self.blocks)))
        rows += [
            (label, text)
            for label, text in (
                ("score", self.metric),
                ("theorem", self.reference),
                ("besides", self.consequence),
                ("trained", self.objective),
                ("calibrated", self.calibration),
                ("input", self.directions),
                ("axes", self.axes),
                ("recordings", self.recordings),
                ("data", self.support),
                ("withdrawn", self.withdrawn),
                *(("learned", sentence) for sentence in self.learned),
                *(("warning", warning) for warning in self.warnings),
            )
            if text
        ]
        return rows

    def withdraw(self, reason: str) -> Guarantee:
        """Return the card of a fit whose claim the data do not support: it claims nothing.

        Args:
            reason: What the data say against it.

        Example:
            >>> card = derive_guarantee(Beliefs("sphere")).withdraw("pairs share nothing")
            >>> card.equivalence, card.withdrawn, card.gap
            (None, 'orthogonal map', 'not supported by these data: pairs share nothing')
        """
        if self.equivalence is None:
            return self
        gap = f"{UNSUPPORTED}: {reason}"
        return replace(
            self, equivalence=None, withdrawn=self.equivalence, gap=gap, reference="", blocks=None
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as plain data for JSON."""
        blocks = None if self.blocks is None else [list(block) for block in self.blocks]
        assumptions = [asdict(assumption) for assumption in self.assumptions]
        return asdict(self) | {
            "assumptions": assumptions,
            "blocks": blocks,
            "warnings": list(self.warnings),
            "learned": list(self.learned),
            "code_axes": [axis.to_dict() for axis in self.code_axes],
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Guarantee:
        """Return the guarantee that :meth:`to_dict` described."""
        blocks = d.get("blocks")
        changed = {
            "assumptions": tuple(Assumption(**assumption) for assumption in d["assumptions"]),
            "blocks": None if blocks is None else tuple(tuple(block) for block in blocks),
            "warnings": tuple(d.get("warnings", ())),
            "learned": tuple(d.get("learned", ())),
            "code_axes": tuple(map(CodeAxis.from_dict, d.get("code_axes", ()))),
        }
        return cls(**{**d, **changed})


def weight_blocks(
    weights: Sequence[float], tolerance: float = 0.1, errors: Sequence[float] | None = None
) -> tuple[tuple[int, ...], ...]:
    r"""Partition codes into blocks of weights that cannot be distinguished.

    Weights are sorted, and neighbours joined where their ratio is at most :math:`1 + t` or where
    the logarithm of the ratio is within its error: at most :math:`c \sqrt{e_i^2 + e_{i+1}^2}` with
    c the normal quantile for which all comparisons of n equal weights are right in 95 % of cases.
    The gap is relative because Λ̂ is known up to a factor that depends on the convention (½ or
    none). Training adds an error of its own, by which learned weights miss the true ones in the
    published runs of `rusak2025` (5.9 for 5, 24.2 for 25), hence the tolerance. Joining too much,
    as a chain of small steps does, claims less than is true; joining too little would claim more.

    Args:
        weights: One positive weight per code.
        tolerance: Relative gap t up to which neighbours count as equal.
        errors: Standard errors e of the logarithms of the weights, where they are known.

    Returns:
        The codes of each block in ascending order, blocks by their first code.

    Example:
        >>> weight_blocks([5.0, 25.0, 5.2, 24.0, 80.0])
        ((0, 2), (1, 3), (4,))
        >>> weight_blocks([5.0, 6.0, 80.0], errors=[0.1, 0.1, 0.1])
        ((0, 1), (2,))
    """
    check_real("tolerance", tolerance, at_least=0)
    values = check_scale("weights", weights)
    if isinstance(values, float):
        raise TypeError(f"weights must be a sequence with one number per code, got {weights!r}")
    n = len(values)
    if errors is not None and len(errors) != n:
        raise ValueError(f"errors must be {n} numbers, one per weight, got {len(errors)}")
    known = [0.0] * n if errors is None else [check_real("errors", e, at_least=0) for e in errors]
    quantile = NormalDist().inv_cdf(1 - 0.025 / max(1, n * (n - 1) // 2))
    order = sorted(range(n), key=lambda k: values[k])
    blocks = [[order[0]]]
    for smaller, larger in pairwise(order):
        allowed = quantile * math.hypot(known[smaller], known[larger])
        within_error = math.log(values[larger] / values[smaller]) <= allowed
        if values[larger] <= (1 + tolerance) * values[smaller] or within_error:
            blocks[-1].append(larger)
        else:
            blocks.append([larger])
    return tuple(sorted(tuple(sorted(block)) for block in blocks))


def derive_guarantee(
    beliefs: Beliefs,
    *,
    similarity: str | None = None,
    similarity_p: float | None = None,
    loss: str = "infonce",
    potentials: str | None = None,
    head: str | None = None,
    scale: str = "learned",
    equal_weights: bool = True,
    weights: Sequence[float] | None = None,
    weight_errors: Sequence[float] | None = None,
    tolerance: float = 0.1,
    n_components: int | None = None,
    n_features: int | None = None,
    n_factors: int | None = None,
    relaxed: Sequence[str] = (),
    linear_dynamics: bool = True,
    full_matrix: bool = False,
) -> Guarantee:
    """Return the strongest theorem that applies to these beliefs and this model.

    Block-orthogonal recovery is scored with ``block_r2`` rather than ``block_mcc``. Both ignore
    maps inside a block; but R² counts the share of variance that stays in the block, on held-out
    rows, so it falls further where blocks are mixed. Its ``blocks`` are those of the true factors,
    as the order of the codes is arbitrary. Where blocks are not known, ``linear_r2`` is what the
    theorem leaves.

    Args:
        beliefs: Beliefs about the world.
        similarity: One of ``SIMILARITIES``; by default the one that matches the conditional.
        similarity_p: Exponent of the similarity ``"lp"``; by default the conditional's.
        loss: One of ``LOSSES``.
        potentials: ``"learned"`` if α and α̃ are networks, ``"constant"`` or ``"none"``; by default
            those that the loss needs: :meth:`Beliefs.potentials`.
        head: One of ``HEADS``; by default the one that matches the space.
        scale: ``"learned"``, by the similarity or by the size of the head, or ``"fixed"``.
        equal_weights: Whether fixed weights of the similarity are the same for all codes.
        weights: Learned weights of the similarity ``"weighted"``, one per code. Weights that the
            beliefs declare take precedence.
        weight_errors: Standard errors of their logarithms, where they are known.
        tolerance: Relative gap up to which two learned weights count as equal:
            :func:`weight_blocks`.
        n_components: Number of codes, where it is known.
        n_features: Number of observed dimensions, where it is known.
        n_factors: Number of factors, where it is known.
        relaxed: Assumptions that the model learns instead, any of ``NAMED_RELAXATIONS``. With
            ``"marginal"`` potentials count as learned; with ``"anchor_scale"`` and ``"dynamics"``
            they are by default. ``"factor_scale"`` makes the similarity a weighted one.
        linear_dynamics: Whether relaxed dynamics are a matrix rather than a network.
        full_matrix: Whether the similarity ``"weighted"`` has a matrix instead of weights.

    Example:
        >>> guarantee = derive_guarantee(Beliefs("box", conditional="laplace"))
        >>> guarantee.equivalence, guarantee.metric
        ('signed permutation and scaling', 'mcc')
        >>> print(derive_guarantee(Beliefs("sphere", "unknown"), potentials="none"))
        no guarantee: the theorems need a uniform marginal, or learned potentials
          score       linear_r2
        >>> derive_guarantee(Beliefs("sphere", "unknown")).equivalence
        'orthogonal map'
        >>> anisotropic = Beliefs("sphere", conditional="anisotropic")
        >>> derive_guarantee(anisotropic, weights=[5.0, 5.2, 25.0]).blocks
        ((0, 1), (2,))
        >>> derive_guarantee(Beliefs("box", conditional="laplace"), relaxed=["pairing"]).equivalence
        'signed permutation and scaling'
    """
    if not isinstance(beliefs, Beliefs):
        raise TypeError(f"beliefs must be a Beliefs, got {beliefs!r}")
    model = ModelTraits.complete(
        beliefs,
        similarity=similarity,
        similarity_p=similarity_p,
        loss=loss,
        potentials=potentials,
        head=head,
        scale=scale,
        equal_weights=equal_weights,
        relaxed=relaxed,
        linear_dynamics=linear_dynamics,
    )
    counts = {"n_components": n_components, "n_features": n_features, "n_factors": n_factors}
    for name, count in counts.items():
        if count is not None:
            check_integer(name, count, at_least=1)
    blocks = _blocks(beliefs, model, weights, weight_errors, tolerance, n_components)
    if n_factors is None and beliefs.weights is not None:
        n_factors = len(beliefs.weights)
    n = n_components
    if n is None and blocks is not None:
        n = sum(map(len, blocks))
    beliefs = relaxed_beliefs(beliefs, model)
    failing = [*unmet(beliefs, model, n, n_features, n_factors)]
    gap, *more = [*failing, *open_relaxations(beliefs, model, n), ""]
    if gap:
        consequence = "; ".join(text for text in (*more, open_rotation(beliefs, model)) if text)
        return Guarantee(None, (), "linear_r2", "", gap, consequence)
    equivalence, metric, theorem, consequence = _claim(beliefs, model, blocks)
    if equivalence == "affine map" and n == 1:
        consequence = ONE_FACTOR
    if equivalence not in ("block-orthogonal map", "signed permutation"):
        blocks = None
    *assumptions, last = assumptions_of(beliefs, model, blocks, tolerance)
    assumptions += relaxed_assumptions(beliefs, model, n)
    assumptions.sort(key=lambda assumption: [*ASSUMPTION_KINDS].index(assumption.kind))
    if model.potentials == "learned" or model.loss in RATIO_LOSSES:
        theorem = f"{MATTHES}, extending {theorem}"
    if "noise" in model.relaxed:
        theorem = f"{KIRCHHOF}, extending {theorem}"
    if derived_here(beliefs, model):
        theorem += "; derived here, see docs/theory.md"
    if full_matrix and beliefs.space == "sphere":
        # A rotation of the codes is undone by a rotation of the matrix.
        equivalence, metric, blocks, consequence = "orthogonal map", "linear_r2", None, FULL_MATRIX
        theorem = theorem.replace("; derived here, see docs/theory.md", "")
        theorem += "; derived here, see docs/theory.md"
    besides = [consequence, *relaxed_consequences(beliefs, model)]
    consequence = "; ".join(text for text in besides if text)
    return Guarantee(equivalence, (*assumptions, last), metric, theorem, "", consequence, blocks)


def _blocks(
    beliefs: Beliefs,
    model: ModelTraits,
    weights: Sequence[float] | None,
    errors: Sequence[float] | None,
    tolerance: float,
    n: int | None,
) -> tuple[tuple[int, ...], ...] | None:
    """Return blocks of equal weights: the declared ones, exactly, or the learned ones."""
    check_real("tolerance", tolerance, at_least=0)
    weighted = model.similarity == "weighted" or "factor_scale" in model.relaxed
    if weights is not None and not weighted:
        raise ValueError(f"weights go with similarity 'weighted' alone, got {model.similarity!r}")
    if beliefs.weights is not None:
        return weight_blocks(beliefs.weights, 0.0)
    if weights is None:
        return None
    blocks = weight_blocks(weights, tolerance, errors)
    count = sum(map(len, blocks))
    if n is not None and count != n:
        raise ValueError(f"weights must be n_components = {n} numbers, got {count}")
    return blocks


def _claim(
    beliefs: Beliefs, model: ModelTraits, blocks: tuple[tuple[int, ...], ...] | None
) -> tuple[str, str, str, str]:
    """Return equivalence, metric, theorem and consequence where all conditions hold."""
    if beliefs.space == "sphere" and "dynamics" in model.relaxed:
        # With potentials the weights are part of the matrix: they distinguish no axes.
        return "orthogonal map", "linear_r2", f"{ZIMMERMANN}, Theorem 2", ""
    if beliefs.space == "sphere" and beliefs.conditional == "vmf":
        # A vMF is the anisotropic normal with equal weights: one block, of all codes.
        theorem = RUSAK if model.similarity == "weighted" else f"{ZIMMERMANN}, Theorem 2"
        return "orthogonal map", "linear_r2", theorem, ""
    if beliefs.space == "sphere":
        # h keeps Σ λ_k (z_k - z'_k)², so it is linear, h = A z, and AᵀΛ̂A = Λ. As it maps the sphere
        # to itself, A is orthogonal, so Λ̂ holds the values of Λ, and A maps each set of equal
        # ones to itself. The sphere also fixes the scale.
        if blocks is None:
            consequence = "one block for each set of equal weights of the conditional"
            return "block-orthogonal map", "linear_r2", RUSAK, consequence
        if len(blocks) == 1 and "factor_scale" in model.relaxed:
            return "orthogonal map", "linear_r2", RUSAK, ""
        if len(blocks) == sum(map(len, blocks)):
            return "signed permutation", "mcc", RUSAK, ""
        return "block-orthogonal map", "block_r2", RUSAK, ""
    if beliefs.exponent != 2:
        return "signed permutation and scaling", "mcc", f"{ZIMMERMANN}, Theorem 6", ""
    # With weights the theorem holds for axes stretched by √λ, after which δ is the same in world
    # and model. Off the sphere nothing ties Λ̂ to Λ: h = Λ̂^-½ O Λ^½ z keeps δ for any orthogonal O.
    consequence = open_rotation(beliefs, model)
    if beliefs.space == "box" and model.head == "box":
        consequence = BOX_ONTO_BOX
    elif (
        model.similarity == "weighted" and model.head == "free" and "dynamics" not in model.relaxed
    ):
        consequence = WEIGHTS_ARE_SCALES
    return "affine map", "linear_r2", f"{ZIMMERMANN}, Theorem 5", consequence
