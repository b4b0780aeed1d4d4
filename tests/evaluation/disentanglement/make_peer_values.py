"""Write `peer_values.json`: what `disent` (0.8.0) computes on arrays that the tests make anew.

Needs `pip install --no-deps disent` beside the library's own dependencies, tqdm and h5py. Its data
sets import torchvision and lightning, which its metrics do not use; stand-ins will do for those.

Run: PYTHONPATH=tests/helpers python tests/evaluation/disentanglement/make_peer_values.py
"""

import json
import sys
from pathlib import Path
from unittest.mock import MagicMock

from torch.nn import Module

from peer_arrays import KINDS, TRAIN, arrays

OUT = Path(__file__).with_name("peer_values.json")


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
    for kind in KINDS:
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
