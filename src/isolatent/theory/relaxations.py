"""Guarantees with relaxed assumptions: what is left to assume, and what is open.

Proofs: ``docs/theory.md``, "Relaxed assumptions".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from isolatent.theory.assumptions import Assumption, ModelTraits
from isolatent.theory.beliefs import Beliefs, Uncovered

__all__ = ["open_relaxations", "relaxed_assumptions", "relaxed_beliefs", "relaxed_consequences"]

WEIGHTS_ARE_SCALES = (
    "off the sphere a learned weight and the scale of its code stand for each other, "
    "so weights that differ do not distinguish factors"
)


def relaxed_beliefs(beliefs: Beliefs, model: ModelTraits) -> Beliefs:
    """Return the beliefs that are left of the declared ones when assumptions are relaxed.

    Example:
        >>> relaxed = ("factor_scale",)
        >>> model = ModelTraits("weighted", 2.0, "infonce", "none", "sphere", relaxed=relaxed)
        >>> relaxed_beliefs(Beliefs("sphere"), model).conditional
        'anisotropic'
    """
    relaxed, learned = set(model.relaxed), model.potentials == "learned"
    if "marginal" in relaxed:
        beliefs = replace(beliefs, marginal="unknown")
    elif learned and beliefs.space != "euclidean" and relaxed & {"anchor_scale", "dynamics"}:
        # The proofs use no marginal; that of the positives is not uniform in any case.
        beliefs = replace(beliefs, marginal="unknown")
    if "factor_scale" in relaxed and _normal_like(beliefs):
        beliefs = replace(beliefs, conditional="anisotropic", p=None)
    covariance = "dynamics" in relaxed and "anchor_scale" not in relaxed
    if covariance and beliefs.space != "sphere" and beliefs.conditional == "anisotropic":
        # The covariance is part of the cross term of z and z'.
        beliefs = replace(beliefs, conditional="normal", weights=None)
    return beliefs


def _normal_like(beliefs: Beliefs) -> bool:
    """Return whether one weight per dimension turns the conditional into an anisotropic normal."""
    if beliefs.conditional == "vmf":
        return True
    return beliefs.exponent == 2 and beliefs.space != "sphere"


def open_relaxations(beliefs: Beliefs, model: ModelTraits, n: int | None) -> Iterator[str]:
    """Yield what is not proven about the relaxations of a model.

    Args:
        beliefs: Beliefs that :func:`relaxed_beliefs` leaves.
        model: The model.
        n: Number of codes, where it is known.
    """
    relaxed, learned = set(model.relaxed), model.potentials == "learned"
    if "anchor_scale" in relaxed and not learned:
        yield (
            "steps whose width depends on the anchor need learned potentials: places with narrow "
            "steps attract positives, so their marginal is not uniform"
        )
    if "dynamics" in relaxed and not learned and not _rotating(beliefs, model):
        yield (
            "dynamics need learned potentials: positives are not spread as anchors are, unless "
            "a rotation moves the points of a sphere"
        )
    if "noise" in relaxed:
        yield from _open_with_noise(beliefs, model)
    yield from _open_combinations(beliefs, model)
    least = _least_factors(beliefs, model)
    if set(model.relaxed) - {"marginal"} and n is not None and n < least:
        yield f"{_names(model)}: proven for at least {least} factors, open for {n}"


def _open_with_noise(beliefs: Beliefs, model: ModelTraits) -> Iterator[str]:
    sphere = beliefs.space == "sphere" and beliefs.conditional == "vmf"
    if not sphere and (beliefs.space, beliefs.conditional) != ("euclidean", "normal"):
        yield (
            "noise of observations is covered on a sphere with a vMF conditional, and on R^n with "
            "a normal one: elsewhere posteriors are cut off, or have no closed form"
        )
    others = [name for name in model.relaxed if name not in ("noise", "marginal")]
    if others:
        yield f"noise of observations together with {' and '.join(others)} is open"
    if model.loss != "infonce":
        yield f"noise of observations is covered for InfoNCE, not for {model.loss.upper()}"


def _open_combinations(beliefs: Beliefs, model: ModelTraits) -> Iterator[str]:
    relaxed, learned = set(model.relaxed), model.potentials == "learned"
    if isinstance(beliefs.conditional, Uncovered):
        return
    p = beliefs.exponent or 2.0
    both = {"anchor_scale", "dynamics"} <= relaxed
    if p > 2 and p % 2 == 0 and (both or ("pairing" in relaxed and learned)):
        yield f"{_names(model)}: open for an even exponent above 2, got p = {p:g}"
    if beliefs.space == "sphere":
        weights = beliefs.conditional == "anisotropic" and "anchor_scale" in relaxed
        if weights and relaxed & {"pairing", "dynamics"}:
            yield (
                "on a sphere with one weight per dimension, a scale of the anchor is proven "
                "alone, not with pairing or dynamics"
            )
    elif both and p == 2 and not model.linear_dynamics:
        yield (
            "a scale of the anchor and nonlinear dynamics can stand for a nonlinear change of "
            "the codes: use linear dynamics, or one scale"
        )


def _names(model: ModelTraits) -> str:
    return " and ".join(model.relaxed)


def _least_factors(beliefs: Beliefs, model: ModelTraits) -> int:
    """Return the least number of factors for which the proofs hold."""
    relaxed, sphere = set(model.relaxed), beliefs.space == "sphere"
    pairing, scaled = "pairing" in relaxed, "anchor_scale" in relaxed
    mixture = pairing and model.potentials == "learned"
    if not sphere and beliefs.exponent != 2:
        return 2 if mixture or scaled else 1
    if mixture:
        return 6 if sphere else 5 if scaled else 3
    if sphere and beliefs.conditional == "anisotropic" and (pairing or scaled):
        return 3
    return 2 if scaled or sphere else 1


def relaxed_assumptions(
    beliefs: Beliefs, model: ModelTraits, n: int | None
) -> Iterator[Assumption]:
    """Yield what takes the place of relaxed assumptions, and the conditions of the proofs."""
    relaxed, learned = set(model.relaxed), model.potentials == "learned"
    sphere, axes = beliefs.space == "sphere", beliefs.exponent not in (None, 2)
    if "pairing" in relaxed:
        yield Assumption(
            "a share of the pairs may be unrelated: their positives are drawn from the marginal "
            "of positives, independently of the anchor",
            "declared",
        )
    if "dynamics" in relaxed:
        yield Assumption(_dynamics_text(beliefs, model), "declared")
        yield Assumption("pairs are ordered: the positive follows the anchor", "declared")
        if axes:
            reach = "predictions φ(h) take every value that positives take"
            other = ", or no other value" if model.linear_dynamics else ""
            yield Assumption(f"{reach}{other}", "checkable")
        elif not model.linear_dynamics:
            yield Assumption("predictions φ(h) do not lie in a hyperplane", "checkable")
        elif "anchor_scale" in relaxed and not sphere:
            yield Assumption("the learned matrix is invertible", "checkable")
    if "noise" in relaxed:
        shape = "vMF" if sphere else "normal, with independent codes"
        tilted = model.potentials == "learned"
        yield Assumption(
            f"what an observation leaves open of its factors is {shape}"
            + (", after division by a power of the marginal" if tilted else ""),
            "declared",
        )
        if not sphere:
            yield Assumption(
                "observations of the same noise are given the same spread, whatever their factors",
                "checkable",
            )
        yield Assumption("anchor and positive are observed with independent noise", "declared")
        yield Assumption(
            "the share noise_share of the spread within pairs is noise, the rest steps: pairs "
            "cannot tell them apart",
            "declared",
        )
    least = _least_factors(beliefs, model)
    if n is None and least > 1 + sphere:
        yield Assumption(f"there are at least {least} factors", "checkable")
    if (
        "pairing" in relaxed
        or ("anchor_scale" in relaxed and not sphere)
        or ("dynamics" in relaxed and axes)
    ):
        yield Assumption(
            "the codes are a differentiable function of the factors, with an invertible derivative",
            "faith",
        )
    if ("pairing" in relaxed and learned) or (axes and {"anchor_scale", "dynamics"} <= relaxed):
        yield Assumption("marginal, normaliser and all learned functions are smooth", "faith")
    if "anchor_scale" in relaxed:
        yield Assumption("the learned scale can take the shape of the true one", "faith")


def _dynamics_text(beliefs: Beliefs, model: ModelTraits) -> str:
    if _rotating(beliefs, model) and model.potentials != "learned":
        return "positives lie around A z, A a rotation"
    where = "A z, A an invertible matrix" if model.linear_dynamics else "m(z), a smooth map"
    if beliefs.space != "sphere":
        return f"positives lie around {where}"
    size = "|A z|" if model.linear_dynamics else "|m(z)|"
    if "anchor_scale" in model.relaxed:
        return f"positives lie around {where}, projected to the sphere"
    return f"positives lie around {where}, with a concentration in proportion to {size}"


def _rotating(beliefs: Beliefs, model: ModelTraits) -> bool:
    """Return whether constant potentials suffice for dynamics: a rotation of a sphere."""
    return (
        beliefs.space == "sphere"
        and beliefs.conditional == "vmf"
        and beliefs.marginal == "uniform"
        and "anchor_scale" not in model.relaxed
    )


def relaxed_consequences(beliefs: Beliefs, model: ModelTraits) -> Iterator[str]:
    """Yield what else follows, and which learned parts can stand for each other."""
    relaxed = set(model.relaxed)
    sphere, axes = beliefs.space == "sphere", beliefs.exponent not in (None, 2)
    if "pairing" in relaxed:
        yield (
            "the share of related pairs is identified; related positives with heavier tails than "
            "the conditional's would count as unrelated"
        )
    if "anchor_scale" in relaxed:
        unit = "" if sphere else " up to a factor, which the codes' unit takes up"
        yield f"the scale as a function of the anchor is identified{unit}"
    if "factor_scale" in relaxed and axes and model.head == "free":
        yield WEIGHTS_ARE_SCALES
    if "noise" in relaxed:
        yield (
            "the posterior of each observation is identified up to the same map, and its spread up "
            "to one constant" + ("" if sphere else " for each code") + ", which noise_share settles"
        )
    if "dynamics" in relaxed:
        yield from _about_dynamics(model, sphere=sphere, axes=axes)


def _about_dynamics(model: ModelTraits, *, sphere: bool, axes: bool) -> Iterator[str]:
    weighted = "factor_scale" in model.relaxed or model.similarity == "weighted"
    if weighted and not axes:
        yield "weights are part of the dynamics, so weights that differ do not distinguish factors"
    if sphere and "anchor_scale" in model.relaxed:
        yield "only the product of scale and dynamics is identified"
    elif axes:
        yield "the dynamics are identified in the units of the codes"
    elif sphere:
        yield "the dynamics are identified up to a factor, in the basis of the codes"
    else:
        related = " of related pairs" if "pairing" in model.relaxed else ""
        yield (
            "the learned dynamics hold the noise covariance too: read the eigenvalues of A off a "
            f"linear regression of positives' codes on anchors' codes{related}"
        )
