"""Score codes against known factors, with confidence intervals."""

from isolatent.evaluation.blocks import assign_codes, block_mcc, block_r2
from isolatent.evaluation.disentanglement.betavae_factorvae import beta_vae_score, factor_vae_score
from isolatent.evaluation.disentanglement.dci import DCI, dci
from isolatent.evaluation.disentanglement.explicitness import explicitness
from isolatent.evaluation.disentanglement.grid import EncodedGrid, GridWorld
from isolatent.evaluation.disentanglement.mig import mig
from isolatent.evaluation.disentanglement.modularity import modularity
from isolatent.evaluation.disentanglement.sap import sap
from isolatent.evaluation.disentanglement.suite import Disentanglement, evaluate_disentanglement
from isolatent.evaluation.intervals import Interval, bootstrap
from isolatent.evaluation.linear import linear_r2
from isolatent.evaluation.mcc import align_codes, correlation_matrix, mcc
from isolatent.evaluation.readout import readout_accuracy, readout_r2

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
    "readout_accuracy",
    "readout_r2",
    "sap",
]
