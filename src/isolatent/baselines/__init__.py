"""Baselines to compare with: supervised encoder, VAEs, linear methods."""

from isolatent.baselines.linear import LinearEstimator, LinearICA, LinearPCA, SlowFeatures
from isolatent.baselines.supervised import SupervisedEncoder
from isolatent.baselines.vaes import AdaGVAE, AdaMLVAE, BetaVAE, SlowVAE, VariationalEstimator

__all__ = [
    "AdaGVAE",
    "AdaMLVAE",
    "BetaVAE",
    "LinearEstimator",
    "LinearICA",
    "LinearPCA",
    "SlowFeatures",
    "SlowVAE",
    "SupervisedEncoder",
    "VariationalEstimator",
]
