"""Tiles of any height give the same numbers."""

import pytest
import torch

from isolatent.contrast.kernels import blockwise


@pytest.mark.parametrize("reduction", ["row_logsumexp", "row_softplus", "both_logsumexp"])
@pytest.mark.parametrize("p", [None, 3])
def test_many_tiles_equal_dense(lab, monkeypatch, reduction, p):
    problem = lab.draw(reduction, p, 23, 17, 3, scaled=True, skip=True)
    for rows in (0, 1, 5, 22):
        monkeypatch.setattr(blockwise, "CPU_TILE_BYTES", rows * 17 * 8)
        errors = lab.difference(problem, "blockwise", torch.float64)
        assert max(errors.values()) < 1e-12, (rows, errors)
