"""Write `peer_values.json`: what `disent` (0.8.0) computes on arrays that the tests make anew.

Needs `pip install --no-deps disent` beside the library's own dependencies, tqdm and h5py. Its data
sets import torchvision and lightning, which its metrics do not use; stand-ins will do for those.

Run: python tests/evaluation/disentanglement/make_peer_values.py
"""

import json
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
from torch.nn import Module

OUT = Path(__file__).with_name("peer_values.json")
SIZES, CODES, TRAIN, TEST = (3, 4, 6), 4, 600, 300


def arrays(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Factors and codes, the same wherever NumPy is."""
    rng = np.random.default_rng(7)
    factors = np.stack([rng.integers(n, size=TRAIN + TEST) for n in SIZES], axis=1)
    noise = rng.normal(size=(len(factors), CODES))
    scaled = factors / np.array(SIZES)
    if kind == "noise":
        return factors, noise
    if kind == "aligned":
        return factors, np.hstack([3.0 * scaled[:, ::-1], noise[:, :1]]) + 0.1 * noise
    return factors, 3.0 * scaled @ rng.normal(size=(len(SIZES), CODES)) + 0.2 * noise


def main() -> None:
    for name in ("", ".datasets", ".transforms", ".transforms.functional"):
        sys.modules[f"torchvision{name}"] = MagicMock()
    plain = MagicMock(LightningModule=Module, LightningDataModule=object, Callback=object)
    for name in (
        "",
        ".pytorch",
        ".pytorch.utilities",
        ".pytorch.trainer",
        ".pytorch.trainer.states",
    ):
        sys.modules[f"lightning{name}"] = plain
    from disent.metrics import _dci, _mig, _sap

    values = {}
    for kind in ("aligned", "mixed", "noise"):
        y, c = (a.T for a in arrays(kind))
        fitted, scored = (c[:, :TRAIN], y[:, :TRAIN]), (c[:, TRAIN:], y[:, TRAIN:])
        importance, _, accuracy = _dci._compute_importance_gbt(*fitted, *scored)
        values[kind] = {
            "mig": _mig._compute_mig(*fitted)["mig.discrete_score"],
            "sap": _sap._compute_sap(*fitted, *scored, False)["sap.score"],
            "sap_continuous": _sap._compute_sap(*fitted, *scored, True)["sap.score"],
            "importance": importance.tolist(),
            "informativeness": accuracy,
            "disentanglement": _dci._disentanglement(importance),
            "completeness": _dci._completeness(importance),
        }
    OUT.write_text(json.dumps(values, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
