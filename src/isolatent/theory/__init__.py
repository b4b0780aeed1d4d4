"""Beliefs about a world, the assumptions of the theorems, and the guarantees that follow."""

from isolatent.theory.assumptions import LOSSES, SIMILARITIES, Assumption
from isolatent.theory.beliefs import (
    CONDITIONALS,
    HEADS,
    MARGINALS,
    NAMED_RELAXATIONS,
    POTENTIALS,
    RELAXATIONS,
    SPACES,
    Beliefs,
    Uncovered,
)
from isolatent.theory.code_axes import CodeAxis
from isolatent.theory.guarantee import Guarantee, derive_guarantee, weight_blocks
from isolatent.theory.invariances import INVARIANCES

__all__ = [
    "CONDITIONALS",
    "HEADS",
    "INVARIANCES",
    "LOSSES",
    "MARGINALS",
    "NAMED_RELAXATIONS",
    "POTENTIALS",
    "RELAXATIONS",
    "SIMILARITIES",
    "SPACES",
    "Assumption",
    "Beliefs",
    "CodeAxis",
    "Guarantee",
    "Uncovered",
    "derive_guarantee",
    "weight_blocks",
]
