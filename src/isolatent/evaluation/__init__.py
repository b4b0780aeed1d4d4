"""Score codes against known factors, with confidence intervals."""

from isolatent.evaluation.alignment import align_codes
from isolatent.evaluation.blocks import assign_codes, block_mcc, block_r2
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
from isolatent.evaluation.intervals import Interval, bootstrap
from isolatent.evaluation.linear import linear_r2
from isolatent.evaluation.mcc import correlation_matrix, mcc

__all__ = [
    "DCI",
    "Disentanglement",
    "EncodedGrid",
    "GridWorld",
    "Interval",
    "align_codes",
    "assign_codes",
    "beta_vae_score",
    "block_mcc",
    "block_r2",
    "bootstrap",
    "correlation_matrix",
    "dci",
    "evaluate_disentanglement",
    "explicitness",
    "factor_vae_score",
    "linear_r2",
    "mcc",
    "mig",
    "modularity",
    "sap",
]
