"""Guarantees for codes whose axes were found: what independence or dynamics add to an affine map.

Proofs: ``docs/theory.md``, "Axes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from isolatent.checks import check_one_of
from isolatent.theory.assumptions import ASSUMPTION_KINDS, Assumption
from isolatent.theory.code_axes import CodeAxis
from isolatent.theory.guarantee import Guarantee

__all__ = ["AXIS_METHODS", "with_axes"]

AXIS_METHODS = ("ica", "dynamics")  # that can be asked for; "ica" includes innovations
CONDITIONS = {
    "ica": (Assumption("factors are independent, and at most one of them is normal", "checkable"),),
    "innovations": (
        Assumption(
            "factors with their positives are independent of each other, positives follow linear "
            "dynamics, and at most one factor has normal innovations",
            "checkable",
        ),
    ),
    "dynamics": (
        Assumption("factors, or blocks of them, have different time scales", "checkable"),
        Assumption(
            "no factor drives another one of another block, and x_pos follows x in time", "faith"
        ),
    ),
}
THEOREMS = {
    "ica": "Comon 1994",
    "innovations": "Comon 1994, for innovations: derived here, see docs/theory.md",
    "dynamics": "Tong et al. 1990 and Belouchrani et al. 1997",
}


def with_axes(
    guarantee: Guarantee,
    method: str,
    blocks: Sequence[Sequence[int]],
    found: str,
    code_axes: Sequence[CodeAxis] = (),
) -> Guarantee:
    """Return the guarantee of codes that were aligned with axes.

    An affine map is left open by the guarantee of the codes before. Axes close it where they are
    separated: each block of them is a block of factors, up to an affine map within the block.

    Args:
        guarantee: What may be claimed of the codes before.
        method: ``"ica"``, ``"innovations"`` or ``"dynamics"``.
        blocks: Partition of the codes; those of one block cannot be told apart.
        found: What the checks found, in words.
        code_axes: The axis of each code.

    Example:
        >>> from isolatent.theory import Beliefs, derive_guarantee
        >>> affine = derive_guarantee(Beliefs("euclidean"))
        >>> with_axes(affine, "ica", [[0], [1]], "2 of 2 axes are stable").equivalence
        'signed permutation and scaling'
        >>> with_axes(affine, "dynamics", [[0, 1], [2]], "").equivalence
        'block-affine map'
    """
    check_one_of("method", method, CONDITIONS)
    guarantee = replace(guarantee, axes=found, code_axes=tuple(code_axes))
    if guarantee.equivalence != "affine map" or len(blocks) < 2:
        return guarantee
    single = all(len(block) == 1 for block in blocks)
    assumptions = [*guarantee.assumptions, *CONDITIONS[method]]
    assumptions.sort(key=lambda assumption: [*ASSUMPTION_KINDS].index(assumption.kind))
    return replace(
        guarantee,
        equivalence="signed permutation and scaling" if single else "block-affine map",
        metric="mcc" if single else "block_r2",
        assumptions=tuple(assumptions),
        reference=f"{guarantee.reference}; axes: {THEOREMS[method]}",
        consequence="",
        blocks=None if single else tuple(tuple(block) for block in blocks),
    )
