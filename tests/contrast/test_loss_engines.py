"""Every engine gives the same loss and gradients, inside autocast and out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.contrast import AlignUniform, ConstantPotential, Dot, InfoNCE, Lp, NetworkPotential
from named_losses import LOSSES, value_and_gradients


def bent_network(n):
    """A network potential away from its start, where it is zero and flat."""
    potential = NetworkPotential(n, 4)
    torch.nn.init.normal_(potential.out.weight)
    return potential


@given(
    name=st.sampled_from([*sorted(LOSSES), "align"]),
    similarity=st.sampled_from(["dot", "l1", "l2"]),
    policy=st.sampled_from(["across", "within", "both", "given"]),
    symmetric=st.booleans(),
    extra=st.sampled_from([None, "shared", "own"]),
    network=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    rows=st.integers(2, 40),
    n=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_every_engine_gives_the_same_loss_and_gradients(
    name, similarity, policy, symmetric, extra, network, dtype, rows, n, seed
):
    if dtype == torch.float64:
        similarity = "dot"  # numba compiles every form and reduction anew; the kernels' tests do
    extra = "shared" if policy == "given" and extra is None else extra
    symmetric = symmetric and extra != "own"
    generator = torch.Generator().manual_seed(seed)
    h, h_pos = 0.5 * torch.randn(2, rows, n, generator=generator, dtype=dtype)
    shape = {"shared": (7, n), "own": (rows, 3, n)}
    negatives = torch.randn(shape[extra], generator=generator, dtype=dtype) if extra else None
    weights = (0.5 + torch.rand(n, generator=generator)).tolist()
    results = {}
    for engine in ("dense", "blockwise", "numba"):
        torch.manual_seed(seed)
        options = {"symmetric": symmetric, "negatives_from": policy, "engine": engine}
        if name == "align":
            loss = AlignUniform(0.7, p=1 if similarity == "l1" else 2, **options)
        else:
            loss = LOSSES[name](
                {
                    "dot": lambda: Dot(2.0, learn_scale=True),
                    "l1": lambda: Lp(1, weights=weights, learn_weights=True),
                    "l2": lambda: Lp(2, weights=weights, learn_weights=True),
                }[similarity](),
                potential=bent_network(n) if network else ConstantPotential(0.1),
                potential_pos=ConstantPotential(-0.2),
                **options,
            )
        results[engine] = value_and_gradients(loss.to(dtype), h, h_pos, negatives)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    value, gradients = results["dense"]
    codes = 2 if negatives is None else 3
    # A parameter's gradient is a sum over all pairs that may cancel to nothing; its terms are of
    # the size of the value. Codes' gradients are judged by their own largest entry.
    for engine in ("blockwise", "numba"):
        scale = 1 + float(value.detach().abs())
        torch.testing.assert_close(
            results[engine][0], value, rtol=tolerance, atol=tolerance * scale
        )
        for k, (ours, theirs) in enumerate(zip(results[engine][1], gradients, strict=True)):
            size = float(theirs.abs().max()) + (0.01 if k < codes else 3 * scale)
            torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance * size)


@pytest.mark.parametrize("engine", ["dense", "blockwise", "numba"])
def test_autocast_changes_nothing(engine, generator):
    h, h_pos = torch.randn(2, 30, 4, generator=generator)
    loss = InfoNCE(Dot(5.0), engine=engine, potential_pos=bent_network(4))
    value, gradients = value_and_gradients(loss, h, h_pos, None)
    h.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(h, h_pos)
    torch.testing.assert_close(inside, value, rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(inside, h)
    torch.testing.assert_close(gradient, gradients[0], rtol=0, atol=0)
    half = loss(h.bfloat16(), h_pos.bfloat16())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, loss(h.bfloat16().float(), h_pos.bfloat16().float()))
