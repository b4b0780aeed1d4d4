"""Invariances of each metric, compared with the maps that a guarantee leaves open."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from isolatent.checks import IsolatentWarning, check_one_of
from isolatent.theory.guarantee import Guarantee

__all__ = ["INVARIANCES", "check_guarantee", "objection"]

_ORDER = ("permutation", "sign")
_UNITS = (*_ORDER, "rescaling")

INVARIANCES: dict[str, tuple[str, ...]] = {
    "beta_vae": _ORDER,  # the logistic regression is penalised in the units of the codes
    "factor_vae": _UNITS,  # as long as no code crosses the threshold of dead ones
    "mig": _UNITS,
    "dci": (*_UNITS, "monotone map"),
    "modularity": _UNITS,
    # Nearly: the penalty is small beside 10 000 points, and without it any affine map is undone.
    "explicitness": (*_UNITS, "rotation"),
    "sap": _ORDER,  # the support vector machine is penalised in the units of the code
    "sap_continuous": _UNITS,
    "mcc_pearson": _UNITS,
    "mcc_spearman": (*_UNITS, "monotone map"),
}
"""Maps of the codes that leave each metric unchanged; maps of one code unless a rotation."""

# Maps that each equivalence of a guarantee leaves open.
_LEFT_OPEN = {
    "signed permutation": _ORDER,
    "signed permutation and scaling": _UNITS,
    "block-orthogonal map": (*_ORDER, "rotation"),
    "orthogonal map": (*_ORDER, "rotation"),
    "block-affine map": (*_UNITS, "rotation"),
    "affine map": (*_UNITS, "rotation"),
}


def objection(metric: str, guarantee: Guarantee) -> str:
    """Return why a metric does not suit a guarantee, or an empty string.

    Example:
        >>> from isolatent.theory import Beliefs, derive_guarantee
        >>> objection("mig", derive_guarantee(Beliefs("box", conditional="normal")))
        'mig changes with rotation, which the guarantee (affine map) leaves open; ...'
        >>> objection("mig", derive_guarantee(Beliefs("box", conditional="laplace")))
        ''
    """
    check_one_of("metric", metric, INVARIANCES)
    if not isinstance(guarantee, Guarantee):
        raise TypeError(f"guarantee must be a Guarantee or None, got {guarantee!r}")
    if guarantee.equivalence is None:
        return f"{metric} is computed, but nothing is proven about these codes: {guarantee.gap}"
    changes = list(_changes(metric, guarantee.equivalence))
    if not changes:
        return ""
    return (
        f"{metric} changes with {' and '.join(changes)}, which the guarantee "
        f"({guarantee.equivalence}) leaves open; {guarantee.metric} is right for it"
    )


def _changes(metric: str, equivalence: str) -> Iterator[str]:
    for map_ in _LEFT_OPEN.get(equivalence, (*_UNITS, "rotation")):
        if map_ not in INVARIANCES[metric]:
            yield map_


def check_guarantee(metric: str, guarantee: Guarantee | None) -> None:
    """Warn where a metric does not suit the guarantee for the codes."""
    if guarantee is not None and (text := objection(metric, guarantee)):
        warnings.warn(text, IsolatentWarning, stacklevel=3)
