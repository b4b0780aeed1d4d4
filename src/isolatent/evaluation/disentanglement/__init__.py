"""Disentanglement metrics of the literature, on arrays or on the grid of a world."""

from isolatent.evaluation.disentanglement.betavae_factorvae import beta_vae_score, factor_vae_score
from isolatent.evaluation.disentanglement.dci import DCI, dci
from isolatent.evaluation.disentanglement.explicitness import explicitness
from isolatent.evaluation.disentanglement.grid import EncodedGrid, GridWorld
from isolatent.evaluation.disentanglement.mig import mig
from isolatent.evaluation.disentanglement.modularity import modularity
from isolatent.evaluation.disentanglement.sap import sap
from isolatent.evaluation.disentanglement.suite import Disentanglement, evaluate_disentanglement

__all__ = [
    "DCI",
    "Disentanglement",
    "EncodedGrid",
    "GridWorld",
    "beta_vae_score",
    "dci",
    "evaluate_disentanglement",
    "explicitness",
    "factor_vae_score",
    "mig",
    "modularity",
    "sap",
]
