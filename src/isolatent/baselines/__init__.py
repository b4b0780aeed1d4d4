"""Baselines to compare with: supervised encoder, VAEs, linear methods."""

from isolatent.baselines.linear import LinearICA, LinearPCA, SlowFeatures
from isolatent.baselines.supervised import SupervisedEncoder
from isolatent.baselines.vaes import AdaGVAE, AdaMLVAE, BetaVAE, SlowVAE

__all__ = [
    "AdaGVAE",
    "AdaMLVAE",
    "BetaVAE",
    "LinearICA",
    "LinearPCA",
    "SlowFeatures",
    "SlowVAE",
    "SupervisedEncoder",
]
