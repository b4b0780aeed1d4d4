"""Scores of codes against known factors, with confidence intervals."""

from isolatent.evaluation.assignment import assign_codes
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
from isolatent.evaluation.intervals import Interval, bootstrap
from isolatent.evaluation.scores import linear_r2, mcc

__all__ = [
    "DCI",
    "Disentanglement",
    "EncodedGrid",
    "GridWorld",
    "Interval",
    "assign_codes",
    "beta_vae_score",
    "block_mcc",
    "block_r2",
    "bootstrap",
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
