"""Conditions of the theorems: those that a model violates, and those left to assume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from isolatent.checks import check_one_of, check_real
from isolatent.theory.beliefs import (
    HEADS,
    POTENTIALS,
    Beliefs,
    Uncovered,
    check_relaxations,
)

__all__ = ["LOSSES", "SIMILARITIES", "Assumption", "ModelTraits", "assumptions_of", "unmet"]

SIMILARITIES = ("dot", "lp", "weighted")
LOSSES = ("infonce", "aninfonce", "nce", "scl", "nwj", "alignuniform")
SCALES = ("learned", "fixed")
RATIO_LOSSES = ("nce", "scl", "nwj")  # at whose optimum e^s is the density ratio, constant included
REACHES_OPTIMUM = "enough data, negatives and network to reach the optimum"
ASSUMPTION_KINDS = {
    "declared": "declared",
    "default": "assumed",
    "checkable": "checkable",
    "faith": "on faith",
}


@dataclass(frozen=True)
class Assumption:
    """One condition of a theorem.

    Attributes:
        text: The condition, in words.
        kind: ``"declared"`` by the user, or else assumed by ``"default"``; ``"checkable"`` from
            data, or ``"faith"``.
    """

    text: str
    kind: str

    def __post_init__(self) -> None:
        check_one_of("kind", self.kind, ASSUMPTION_KINDS)


@dataclass(frozen=True)
class ModelTraits:
    """The choices of a model that theorems speak about, checked and complete.

    Attributes:
        similarity: ``"dot"``, ``"lp"``, or ``"weighted"`` for p = 2 with one weight per code.
        p: Exponent of the similarity; None for the dot product.
        loss: Name of the loss.
        potentials: ``"none"``, ``"constant"`` or ``"learned"``; the weaker of both sides where the
            loss needs both.
        head: Output head.
        scale: ``"learned"``, also by a head of learned size, or ``"fixed"``.
        equal_weights: Whether fixed weights of the similarity are the same for all codes.
        relaxed: Assumptions that the model learns instead, among ``NAMED_RELAXATIONS``, in order.
        linear_dynamics: Whether relaxed dynamics are a matrix rather than a network.
    """

    similarity: str
    p: float | None
    loss: str
    potentials: str
    head: str
    scale: str = "learned"
    equal_weights: bool = True
    relaxed: tuple[str, ...] = ()
    linear_dynamics: bool = True

    @classmethod
    def complete(
        cls,
        beliefs: Beliefs,
        *,
        similarity: str | None,
        similarity_p: float | None,
        loss: str,
        potentials: str | None,
        head: str | None,
        scale: str,
        equal_weights: bool,
        relaxed: Sequence[str] = (),
        linear_dynamics: bool = True,
    ) -> ModelTraits:
        """Check the choices, and take those that are None from the beliefs."""
        check_one_of("loss", loss, LOSSES)
        relaxed = check_relaxations("relaxed", relaxed)
        if similarity is None:
            similarity = "weighted" if loss == "aninfonce" else beliefs.similarity
        check_one_of("similarity", similarity, SIMILARITIES)
        p = {"dot": None, "lp": beliefs.exponent or 2.0, "weighted": 2.0}[similarity]
        if similarity_p is not None:
            given = check_real("similarity_p", similarity_p, at_least=1)
            if similarity != "lp" and given != p:
                raise ValueError(
                    f"similarity_p must be {p} with similarity {similarity!r}, got {given:g}"
                )
            p = given
        if "factor_scale" in relaxed:
            equal_weights = True  # whatever the fixed ones are: learned weights multiply them
            if p is None or p == 2:
                similarity, p = "weighted", 2.0
        if potentials is None:
            potentials = beliefs.potentials(loss)
            needed = "anchor_scale" in relaxed
            needed |= "dynamics" in relaxed and (beliefs.space, similarity) != ("sphere", "dot")
            needed |= "factor_scale" in relaxed and loss in RATIO_LOSSES
            potentials = "learned" if needed else potentials
        if "marginal" in relaxed:
            potentials = "learned"
        return cls(
            similarity,
            p,
            loss,
            check_one_of("potentials", potentials, POTENTIALS),
            beliefs.head if head is None else check_one_of("head", head, HEADS),
            check_one_of("scale", scale, SCALES),
            equal_weights,
            relaxed,
            linear_dynamics,
        )

    @property
    def similarity_text(self) -> str:
        """The similarity in words."""
        similarity = "weighted" if "factor_scale" in self.relaxed else self.similarity
        return _similarity_text(similarity, self.p)


def unmet(
    beliefs: Beliefs, model: ModelTraits, n: int | None, m: int | None, n_factors: int | None = None
) -> Iterator[str]:
    """Yield the conditions that fail, those of the world first.

    Args:
        beliefs: Beliefs about the world.
        model: The model.
        n: Number of codes, where it is known.
        m: Number of observed dimensions, where it is known.
        n_factors: Number of factors, where it is known.
    """
    if n is not None and m is not None and n > m:
        yield f"{n} factors cannot be mixed injectively into {m} dimensions"
    yield from _unmet_by_world(beliefs, model, n)
    if n is not None and n_factors is not None and n != n_factors:
        yield f"there are {n} codes for {n_factors} factors"
    yield from _unmet_by_similarity(beliefs, model)
    if model.head != beliefs.head and not unbounded_codes(beliefs, model):
        output = {"sphere": "on a sphere", "box": "in a convex body or R^n"}
        place = output.get(beliefs.space, "in R^n")
        yield f"the codes must live {place}: a {beliefs.head} head instead of a {model.head} one"
    yield from _unmet_by_loss(beliefs, model)


def _unmet_by_world(beliefs: Beliefs, model: ModelTraits, n: int | None) -> Iterator[str]:
    space, conditional = beliefs.space, beliefs.conditional
    if isinstance(space, Uncovered):
        yield f"no theorem covers the space {space}"
    if space == "cubegrid" or (space == "sphere" and n == 1):  # two points
        yield "the theorems need a connected latent space; on a disconnected one none is proven"
    if space == "hollowball" and model.potentials != "learned":
        yield (
            "without learned potentials the theorems need a sphere or a convex latent space; a "
            "hollow ball is connected but not convex"
        )
    if space == "euclidean" and beliefs.marginal == "uniform":
        yield "a uniform marginal does not exist on an unbounded space"
    if beliefs.marginal != "uniform" and model.potentials != "learned":
        yield "the theorems need a uniform marginal, or learned potentials"
    if isinstance(conditional, Uncovered):
        yield f"no theorem covers the conditional {conditional}"
    elif space == "sphere" and conditional not in ("vmf", "anisotropic"):
        yield (
            "the theorems on the sphere need a vMF or anisotropic conditional, "
            f"not a projected {conditional} one"
        )


def _unmet_by_similarity(beliefs: Beliefs, model: ModelTraits) -> Iterator[str]:
    if model.loss == "aninfonce" and model.similarity != "weighted":
        yield (
            "AnInfoNCE needs a similarity with one weight per dimension, "
            f"not {model.similarity_text}"
        )
    if isinstance(beliefs.conditional, Uncovered):
        return
    if beliefs.conditional == "anisotropic":
        matches = model.similarity == "weighted"
    elif beliefs.conditional == "vmf":  # on the unit sphere |u - v|² = 2 - 2 u·v
        matches = model.similarity == "dot" or model.p == 2
    else:  # with p = 2 each dimension may also have a learned weight
        matches = model.p == beliefs.exponent
    if matches and beliefs.space in ("sphere", "box") and model.head != "free":
        if model.scale == "fixed":
            yield (
                "the scale of the similarity is fixed, but that of the conditional is not known: "
                "the similarity must learn it, or the head its size"
            )
        elif not model.equal_weights:
            yield "the weights of the similarity are fixed and unequal, but the conditional has one"
    if matches and beliefs.conditional == "anisotropic" and not model.equal_weights:
        yield "fixed weights must be those of the conditional, which are not known: learn them"
    if not matches:
        needed = _similarity_text(beliefs.similarity, beliefs.exponent)
        yield (
            f"the similarity must match the {beliefs.conditional} conditional: "
            f"{needed} instead of {model.similarity_text}"
        )


def _unmet_by_loss(beliefs: Beliefs, model: ModelTraits) -> Iterator[str]:
    if model.loss == "alignuniform":
        yield (
            "the theorems need the optimum of InfoNCE, which alignment and uniformity share "
            "only at weight 1/2 and with infinitely many negatives"
        )
    if model.loss in RATIO_LOSSES and model.potentials != "learned":
        if varying_normaliser(beliefs):
            yield (
                f"{model.loss.upper()} needs learned potentials of anchors and positives for the "
                "conditional's normaliser, which is not the same around every anchor"
            )
        if model.potentials == "none":
            yield (
                f"{model.loss.upper()} needs a constant or learned potential "
                "for the conditional's normaliser"
            )


def unbounded_codes(beliefs: Beliefs, model: ModelTraits) -> bool:
    """Return whether latents in a box have codes in R^n, which the theorems allow."""
    return beliefs.space == "box" and model.head == "free"


def derived_here(beliefs: Beliefs, model: ModelTraits) -> bool:
    """Return whether the claim follows by our own argument: ``docs/theory.md`` has the proof.

    No paper states it for a sphere with a marginal that is not uniform, nor for a learned weight
    per dimension with NCE, SCL and NWJ, or off the sphere, nor for the relaxed assumptions.
    """
    relaxed = set(model.relaxed) - {"marginal"}
    if relaxed - {"factor_scale"} or (relaxed and beliefs.exponent not in (None, 2)):
        return True
    if beliefs.space == "sphere" and beliefs.marginal != "uniform":
        return True
    if model.similarity != "weighted":
        return False
    return model.loss in RATIO_LOSSES or beliefs.space != "sphere"


def varying_normaliser(beliefs: Beliefs) -> bool:
    """Return whether the conditional's normaliser depends on the anchor.

    The faces of a box cut off more of some conditionals than of others, and on the sphere one with
    unequal weights is wider around some anchors. Only the vMF on the sphere and conditionals on
    R^n have the same normaliser everywhere.
    """
    return beliefs.space == "box" or (
        beliefs.space == "sphere" and beliefs.conditional == "anisotropic"
    )


def open_rotation(beliefs: Beliefs, model: ModelTraits) -> str:
    """Return why the axes of the codes are not identified, or an empty string.

    Distances with p = 2, the conditional's or the similarity's, are invariant to rotation; then
    only the faces of a box distinguish axes.
    """
    if beliefs.space == "sphere" or model.head != "free" or 2 not in (beliefs.exponent, model.p):
        return ""
    which = "conditional" if beliefs.exponent == 2 else "similarity"
    return (
        f"the {which} is the same after a rotation, and a free head has no faces: "
        "each factor by itself (MCC) is not to be expected"
    )


def assumptions_of(
    beliefs: Beliefs,
    model: ModelTraits,
    blocks: tuple[tuple[int, ...], ...] | None,
    tolerance: float,
) -> Iterator[Assumption]:
    """Yield everything that must hold for the guarantee of a model with no unmet condition."""
    places = {"sphere": "the sphere", "box": "the box", "hollowball": "the hollow ball"}
    place = places.get(beliefs.space, "R^n")
    density = "" if beliefs.marginal == "uniform" else ", with a density above zero everywhere"
    yield Assumption(f"{beliefs.marginal} marginal on {place}{density}", "declared")
    bounded = beliefs.space in ("box", "hollowball")
    cut = f", truncated to {place}" if bounded else ""
    yield Assumption(f"{_conditional_text(beliefs, model)}{cut}", "declared")
    scale = "" if model.head == "free" else ", its scale or that of the similarity learned"
    yield Assumption(f"similarity {model.similarity_text}, {model.head} head{scale}", "declared")
    if beliefs.marginal == "uniform":
        yield Assumption("the codes are spread uniformly", "checkable")
    differences = "code differences within pairs"
    if "dynamics" in model.relaxed:
        differences = "differences between positives' codes and predictions φ(h) within pairs"
    if "pairing" in model.relaxed:
        differences = differences.replace("pairs", "related pairs")
    yield Assumption(f"{differences} follow the conditional", "checkable")
    if varying_normaliser(beliefs) and model.potentials != "learned":
        # The optimum c(z) of InfoNCE takes up the normaliser on the anchor's side, while in-batch
        # negatives are positives of others: their marginal is not quite the uniform one.
        cause = "cut off at the faces of the box"
        if beliefs.space == "sphere":
            cause = "drawn to soft axes"
        yield Assumption(f"positives are spread as anchors are, few of them {cause}", "checkable")
    if model.similarity == "weighted" and beliefs.conditional == "vmf":
        yield Assumption("the learned weights come out equal", "checkable")
    if blocks is not None and beliefs.weights is None:
        yield Assumption(
            f"true weights differ where learned ones differ by more than {tolerance:.0%} and their "
            "errors",
            "checkable",
        )
    yield Assumption("there are as many codes as factors", "checkable")
    yield Assumption("the mixing is smooth and injective", "faith")
    if model.potentials == "learned":
        yield Assumption(
            "the potentials α and α̃ can take the shape of marginal and normaliser", "faith"
        )
    if unbounded_codes(beliefs, model):
        yield Assumption(
            "the loss leads to the cross-entropy also for codes in R^n, which Zimmermann et al. "
            "2020 call a missing step",
            "faith",
        )
    yield Assumption(REACHES_OPTIMUM, "faith")


def _conditional_text(beliefs: Beliefs, model: ModelTraits) -> str:
    """Return the conditional in words, with what is relaxed about its scale."""
    anchor, factor = ("anchor_scale" in model.relaxed, "factor_scale" in model.relaxed)
    name = {
        "vmf": "vMF",
        "gennorm": "generalised normal",
        "anisotropic": "anisotropic normal",
    }.get(str(beliefs.conditional), str(beliefs.conditional))
    shape = f"{name} conditional"
    if beliefs.conditional == "gennorm":
        shape += f" (p = {beliefs.p:g})"
    if beliefs.conditional == "vmf":
        scale = "a concentration" if anchor else "one concentration for all anchors"
    elif "dynamics" in model.relaxed and beliefs.exponent == 2 and not anchor:
        scale = "one covariance for all anchors"
    elif beliefs.conditional == "anisotropic":
        scale = "weights in one proportion" if anchor else "the same weights for all anchors"
    elif factor:
        scale = "one scale for each dimension" + ("" if anchor else ", the same for all anchors")
    else:
        scale = "one scale for all dimensions" + ("" if anchor else " and anchors")
    return f"{shape}, {scale}{' that may depend on the anchor' if anchor else ''}"


def _similarity_text(similarity: str, p: float | None) -> str:
    if similarity == "dot":
        return "the dot product"
    weights = " and one weight per dimension" if similarity == "weighted" else ""
    return f"Lp with p = {p:g}{weights}"
