"""How good codes are at recovering known factors, how sure that is, and what may be claimed."""

from isolatent.evaluation.assignment import assign_codes
from isolatent.evaluation.beliefs import (
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
from isolatent.evaluation.blocks import block_mcc, block_r2
from isolatent.evaluation.disentanglement import (
    DCI,
    Disentanglement,
    EncodedGrid,
    GridWorld,
    beta_vae_score,
    dci,
    evaluate_disentanglement,
    explicitness,
    factor_vae_score,
    mig,
    modularity,
    sap,
)
from isolatent.evaluation.guarantees import (
    Assumption,
    Guarantee,
    derive_guarantee,
    weight_blocks,
)
from isolatent.evaluation.intervals import Interval, bootstrap
from isolatent.evaluation.invariances import INVARIANCES
from isolatent.evaluation.scores import linear_r2, mcc

__all__ = [
    "CONDITIONALS",
    "DCI",
    "HEADS",
    "INVARIANCES",
    "LOSSES",
    "MARGINALS",
    "POTENTIALS",
    "SIMILARITIES",
    "SPACES",
    "Assumption",
    "Disentanglement",
    "EncodedGrid",
    "GridWorld",
    "Guarantee",
    "Interval",
    "assign_codes",
    "beta_vae_score",
    "block_mcc",
    "block_r2",
    "bootstrap",
    "check_beliefs",
    "dci",
    "derive_guarantee",
    "evaluate_disentanglement",
    "explicitness",
    "factor_vae_score",
    "linear_r2",
    "matching_head",
    "matching_similarity",
    "mcc",
    "mig",
    "modularity",
    "sap",
    "weight_blocks",
]
