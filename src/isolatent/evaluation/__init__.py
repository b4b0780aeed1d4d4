"""How good codes are at recovering known factors, how sure that is, and what may be claimed."""

from isolatent.evaluation.assignment import assign_codes
from isolatent.evaluation.blocks import block_mcc, block_r2
from isolatent.evaluation.guarantees import (
    CONDITIONALS,
    MARGINALS,
    SPACES,
    Guarantee,
    derive_guarantee,
)
from isolatent.evaluation.intervals import Interval, bootstrap
from isolatent.evaluation.scores import linear_r2, mcc

__all__ = [
    "CONDITIONALS",
    "MARGINALS",
    "SPACES",
    "Guarantee",
    "Interval",
    "assign_codes",
    "block_mcc",
    "block_r2",
    "bootstrap",
    "derive_guarantee",
    "linear_r2",
    "mcc",
]
