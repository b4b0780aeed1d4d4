"""What is believed about a world, and what follows from it: assumptions and guarantees."""

from isolatent.theory.beliefs import (
    CONDITIONALS,
    HEADS,
    LOSSES,
    MARGINALS,
    POTENTIALS,
    SIMILARITIES,
    SPACES,
    check_beliefs,
    matching_head,
    matching_similarity,
)
from isolatent.theory.guarantee import Assumption, Guarantee, derive_guarantee, weight_blocks
from isolatent.theory.invariances import INVARIANCES

__all__ = [
    "CONDITIONALS",
    "HEADS",
    "INVARIANCES",
    "LOSSES",
    "MARGINALS",
    "POTENTIALS",
    "SIMILARITIES",
    "SPACES",
    "Assumption",
    "Guarantee",
    "check_beliefs",
    "derive_guarantee",
    "matching_head",
    "matching_similarity",
    "weight_blocks",
]
