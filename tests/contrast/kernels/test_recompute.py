"""What is recomputed is differentiable once, and says so."""

import pytest
import torch

from isolatent.contrast.kernels import PairwiseScores, row_logsumexp


@pytest.mark.parametrize("engine", ["blockwise", "numba"])
def test_a_second_derivative_is_refused(engine, generator):
    u = torch.randn(4, 2, generator=generator).requires_grad_()
    value = row_logsumexp(PairwiseScores(u, torch.zeros(3, 2), p=2), engine).sum()
    (first,) = torch.autograd.grad(value, u, create_graph=True)  # by itself no reason to complain
    with pytest.raises(RuntimeError, match=rf"{engine}.*cannot be differentiated twice.*'dense'"):
        first.square().sum().backward()


def test_dense_allows_it(generator):
    u = torch.randn(4, 2, generator=generator, dtype=torch.float64).requires_grad_()
    v = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(
        lambda u: row_logsumexp(PairwiseScores(u, v, p=2), "dense"), [u]
    )
