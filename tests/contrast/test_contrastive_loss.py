"""Every loss is the same with every engine and under autocast, and names its wrong arguments."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.contrast import AlignUniform, ConstantPotential, Dot, InfoNCE, Lp, NetworkPotential
from named_losses import LOSSES, value_and_gradients

H = torch.zeros(4, 2)


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


def test_detached_negatives_get_no_gradient(generator):
    h, h_pos, queue = (torch.randn(4, 3, generator=generator).requires_grad_() for _ in range(3))
    InfoNCE(Dot())(h, h_pos, negatives=queue.detach()).backward()
    assert queue.grad is None
    InfoNCE(Dot())(h, h_pos, negatives=queue).backward()
    assert queue.grad.abs().sum() > 0


def test_potentials_are_evaluated_once_a_side(generator):
    """Dropout in a potential must not score a pair differently above and below the line."""
    calls = []

    class Counting(ConstantPotential):
        def forward(self, h):
            calls.append(len(h))
            return super().forward(h)

    h, h_pos = torch.randn(2, 5, 3, generator=generator)
    InfoNCE(Dot(), potential=Counting(), potential_pos=Counting())(h, h_pos)
    assert calls == [5, 5]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: InfoNCE("dot"), TypeError, "similarity must be a Similarity"),
        (
            lambda: InfoNCE(Dot(), engine="cuda"),
            ValueError,
            "engine must be one of 'auto', 'dense'",
        ),
        (lambda: InfoNCE(Dot(), negatives_from="all"), ValueError, "negatives_from must be one of"),
        (lambda: InfoNCE(Dot(), potential=3.0), TypeError, "potential must be a module or None"),
        (lambda: InfoNCE(Lp(2, [1.0, 1.0, 1.0]))(H, H), ValueError, r"codes \(2\), got 3"),
        (lambda: InfoNCE(Dot())(H, H[:3]), ValueError, "h and h_pos must have the same shape"),
        (lambda: InfoNCE(Dot())(H[:0], H[:0]), ValueError, "B and n at least 1"),
        (lambda: InfoNCE(Dot())(H.long(), H), TypeError, "h must be a tensor of floats"),
        (lambda: InfoNCE(Dot())(H.numpy(), H), TypeError, "h must be .* got ndarray"),
        (lambda: InfoNCE(Dot())(H, H.double()), TypeError, "h_pos must have h's dtype and device"),
        (lambda: InfoNCE(Dot())(H, H, negatives=H[:, :1]), ValueError, "negatives must have shape"),
        (lambda: InfoNCE(Dot())(H, H, negatives=H[None]), ValueError, "negatives must have shape"),
        (
            lambda: InfoNCE(Dot(), negatives_from="given")(H, H),
            ValueError,
            "negatives must be given",
        ),
        (
            lambda: InfoNCE(Dot())(H, H, negatives=torch.zeros(4, 3, 2)),
            ValueError,
            "belong to the anchors.*use symmetric=False",
        ),
        (lambda: InfoNCE(Dot(), gather=True)(H, H), RuntimeError, "init_process_group"),
        (
            lambda: InfoNCE(Dot(), engine="numba")(H.to("meta"), H.to("meta")),
            ValueError,
            "engine='numba' works on CPU tensors only",
        ),
        (
            lambda: InfoNCE(Dot())(H, H.index_fill(0, torch.tensor([2]), math.nan)),
            ValueError,
            "h_pos must be finite, but row 2 holds NaN",
        ),
        (
            lambda: InfoNCE(Dot(), potential=torch.nn.Linear(2, 1))(H, H),
            ValueError,
            "potential must map codes",
        ),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["h", "h_pos", "negatives"])
def test_codes_that_are_not_finite_are_refused_in_every_place(name, bad, generator):
    """Also inf, whose scores of -inf would leave the loss of the other pairs finite."""
    codes = {k: torch.randn(5, 2, generator=generator) for k in ("h", "h_pos", "negatives")}
    codes[name][3, 1] = bad
    loss = InfoNCE(Lp(2), symmetric=False)
    with pytest.raises(ValueError, match=f"^{name} must be finite, but row 3 holds NaN or inf"):
        loss(**codes)


def test_finite_codes_whose_sum_overflows_are_taken():
    h = torch.full((4, 2), 3e38)
    assert InfoNCE(Lp(1, weights=1e-30))(h, h).isfinite()


@pytest.mark.parametrize("rows", [2, 3, 32, 64, 127])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("similarity", [Dot, Lp])
def test_auto_equals_numba_and_dense_at_small_batches(similarity, symmetric, rows, generator):
    h, h_pos = torch.randn(2, rows, 10, generator=generator)
    results = []
    for engine in ("auto", "numba", "dense"):
        loss = InfoNCE(similarity(), symmetric=symmetric, engine=engine)
        inputs = [x.clone().requires_grad_() for x in (h, h_pos)]
        value = loss(*inputs)
        results.append([value.detach(), *torch.autograd.grad(value, inputs)])
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)
