"""The disentanglement metrics of factors read as classes, with few examples."""

from functools import partial

from isolatent.evaluation import (
    beta_vae_score,
    dci,
    explicitness,
    factor_vae_score,
    mig,
    modularity,
    sap,
)

FEW = {"n_train": 20, "n_test": 20}
# Partials are called from compiled code, which has no line of its own in a warning.
METRICS = {
    "beta_vae": partial(beta_vae_score, **FEW),
    "factor_vae": partial(factor_vae_score, **FEW),
    "mig": mig,
    "modularity": modularity,
    "dci": partial(dci, booster="presorted"),
    "explicitness": explicitness,
    "sap": sap,
}
