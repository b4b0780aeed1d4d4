"""What may be claimed about recovered factors, and under which assumptions."""

from __future__ import annotations

from dataclasses import dataclass

from isolatent.checks import check_one_of

__all__ = ["CONDITIONALS", "MARGINALS", "SPACES", "Guarantee", "derive_guarantee"]

SPACES = ("sphere", "box", "euclidean")
MARGINALS = ("uniform", "unknown")
CONDITIONALS = ("vmf", "normal", "laplace")


@dataclass(frozen=True)
class Guarantee:
    """The class of maps between true and recovered factors that theory leaves open.

    Attributes:
        equivalence: Recovered factors equal the true ones up to this; None if nothing is proven.
        assumptions: All that must hold for it, in words.
        metric: The score of :mod:`isolatent.evaluation` that is right for this class.
        reference: The theorem.
        gap: Why there is no guarantee, where there is none.
    """

    equivalence: str | None
    assumptions: tuple[str, ...]
    metric: str
    reference: str
    gap: str = ""

    def __str__(self) -> str:
        if self.equivalence is None:
            return f"no guarantee: {self.gap}"
        return (
            f"{self.equivalence}, if: {'; '.join(self.assumptions)} "
            f"[{self.reference}; score with {self.metric}]"
        )


def derive_guarantee(
    space: str,
    marginal: str,
    conditional: str,
    n_components: int | None = None,
    n_features: int | None = None,
) -> Guarantee:
    """The strongest theorem that applies when the model matches these beliefs about the world.

    Args:
        space: ``"sphere"``, ``"box"`` or ``"euclidean"``.
        marginal: ``"uniform"`` or ``"unknown"``.
        conditional: ``"vmf"``, ``"normal"`` or ``"laplace"``.
        n_components: Number of factors, where it is known.
        n_features: Number of observed dimensions, where it is known.

    Example:
        >>> print(derive_guarantee("sphere", "unknown", "vmf"))
        no guarantee: the theorems need a uniform marginal, or potentials that are learned
        >>> derive_guarantee("sphere", "uniform", "vmf").equivalence
        'orthogonal map'
    """
    check_one_of("space", space, SPACES)
    check_one_of("marginal", marginal, MARGINALS)
    check_one_of("conditional", conditional, CONDITIONALS)
    if (space == "sphere") != (conditional == "vmf"):
        raise ValueError(
            f"conditional {conditional!r} does not belong to space {space!r}: "
            "'vmf' goes with 'sphere', 'normal' and 'laplace' with 'box' or 'euclidean'"
        )
    common = ("the mixing is injective", "enough data, negatives and network to reach the optimum")
    if n_components is not None and n_features is not None and n_components > n_features:
        gap = f"{n_components} factors cannot be mixed injectively into {n_features} dimensions"
        return Guarantee(None, (), "linear_r2", "", gap)
    if marginal != "uniform":
        gap = "the theorems need a uniform marginal, or potentials that are learned"
        return Guarantee(None, (), "linear_r2", "", gap)
    if space == "euclidean":
        gap = "a uniform marginal does not exist on an unbounded space"
        return Guarantee(None, (), "linear_r2", "", gap)
    if space == "sphere":
        beliefs = ("uniform marginal on the sphere", "vMF conditional")
        return Guarantee(
            "orthogonal map", beliefs + common, "linear_r2", "Zimmermann et al. 2021, Theorem 2"
        )
    beliefs = ("uniform marginal on the box", f"{conditional} conditional, equal in all dimensions")
    if conditional == "laplace":
        return Guarantee(
            "signed permutation and scaling",
            beliefs + common,
            "mcc",
            "Zimmermann et al. 2021, Theorem 6",
        )
    return Guarantee(
        "affine map", beliefs + common, "linear_r2", "Zimmermann et al. 2021, Theorem 5"
    )
