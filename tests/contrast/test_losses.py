"""Every loss equals its formula pair by pair, whatever the engine and the negatives."""

import math
import warnings
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.checks import IsolatentWarning
from isolatent.contrast import (
    NCE,
    NWJ,
    AlignUniform,
    AnInfoNCE,
    ConstantPotential,
    Dot,
    Ensemble,
    InfoNCE,
    Lp,
    NetworkPotential,
    SpectralContrastive,
)


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


# Each formula takes the scores of the positives and, for each anchor, those of its negatives.
FORMULAS = {
    "infonce": lambda pos, neg: mean(
        math.log(math.exp(p) + sum(map(math.exp, row))) - p for p, row in zip(pos, neg, strict=True)
    ),
    "decoupled": lambda pos, neg: mean(
        math.log(sum(map(math.exp, row))) - p for p, row in zip(pos, neg, strict=True)
    ),
    "nce": lambda pos, neg: (
        mean(softplus(-p) for p in pos) + mean(softplus(s) for row in neg for s in row)
    ),
    "nce counted": lambda pos, neg: mean(
        softplus(math.log(len(row)) - p) + sum(softplus(s - math.log(len(row))) for s in row)
        for p, row in zip(pos, neg, strict=True)
    ),
    "spectral": lambda pos, neg: (
        -2 * mean(map(math.exp, pos)) + mean(math.exp(2 * s) for row in neg for s in row)
    ),
    "nwj": lambda pos, neg: -mean(pos) + mean(math.exp(s) for row in neg for s in row) - 1,
}
LOSSES = {
    "infonce": InfoNCE,
    "decoupled": lambda s, **k: InfoNCE(s, positive_in_denominator=False, **k),
    "nce": NCE,
    "nce counted": lambda s, **k: NCE(s, ratio="count", **k),
    "spectral": SpectralContrastive,
    "nwj": NWJ,
}


class Square(torch.nn.Module):
    """A potential that is easy to compute by hand."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, h):
        return self.factor * h.square().sum(-1)


def by_hand(name, similarity, alpha, alpha_pos, symmetric, policy, h, h_pos, given):
    def d(u, v):
        if similarity.p is None:
            return -sum(w * a * b for w, a, b in zip(weights, u, v, strict=True))
        return sum(w * abs(a - b) ** similarity.p for w, a, b in zip(weights, u, v, strict=True))

    def potential(factor, u):
        return factor * sum(a * a for a in u)

    weights = similarity.coordinate_weights(h.shape[1]).tolist()
    h, h_pos = h.tolist(), h_pos.tolist()
    ways = [(h, h_pos, alpha, alpha_pos)]
    if symmetric:
        ways.append((h_pos, h, alpha_pos, alpha))
    values = []
    for rows, others, of_row, of_column in ways:

        def s(u, v, of_row=of_row, of_column=of_column):
            return -d(u, v) - potential(of_row, u) - potential(of_column, v)

        negatives = []
        for i, u in enumerate(rows):
            row = []
            for kind, columns in (("across", others), ("within", rows)):
                if policy in (kind, "both"):
                    row += [s(u, v) for j, v in enumerate(columns) if j != i]
            if given is not None:
                row += [s(u, v) for v in (given if given.ndim == 2 else given[i]).tolist()]
            negatives.append(row)
        positives = [s(u, v) for u, v in zip(rows, others, strict=True)]
        values.append(FORMULAS[name](positives, negatives))
    return mean(values)


CASES = [
    case
    for case in product(
        LOSSES,
        ["across", "within", "both", "given"],
        [False, True],
        [None, "shared", "own"],
    )
    if case[1:] not in (("given", False, None), ("given", True, None))  # refused, see below
]


@pytest.mark.parametrize(("name", "policy", "symmetric", "extra"), CASES)
def test_the_loss_by_loops_over_pairs(name, policy, symmetric, extra, generator):
    """Dense engine against the formula; the engines are compared with each other below."""
    h, h_pos = 0.5 * torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    shape = {"shared": (4, 3), "own": (5, 2, 3)}
    given = None
    if extra:
        given = torch.randn(shape[extra], generator=generator, dtype=torch.float64)
    similarity = Lp(p=1.5, weights=[0.5, 1.0, 2.0]) if symmetric else Dot(scale=1.5)
    loss = LOSSES[name](
        similarity,
        symmetric=symmetric,
        negatives_from=policy,
        potential=Square(0.1),
        potential_pos=Square(-0.2),
        engine="dense",
    )
    expected = by_hand(name, similarity, 0.1, -0.2, symmetric, policy, h, h_pos, given)
    assert loss(h, h_pos, negatives=given).item() == pytest.approx(expected, rel=1e-6)


def value_and_gradients(loss, h, h_pos, negatives):
    inputs = [
        x.clone().requires_grad_() for x in (h, h_pos) + (() if negatives is None else (negatives,))
    ]
    value = loss(*inputs[:2], negatives=None if negatives is None else inputs[2])
    return value, torch.autograd.grad(value, [*inputs, *loss.parameters()])


@given(
    name=st.sampled_from(sorted(LOSSES)),
    similarity=st.sampled_from(["dot", "l1", "l2"]),
    policy=st.sampled_from(["across", "within", "both"]),
    symmetric=st.booleans(),
    extra=st.sampled_from([0, 7]),
    network=st.booleans(),
    rows=st.integers(2, 40),
    n=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_every_engine_gives_the_same_loss_and_gradients(
    name, similarity, policy, symmetric, extra, network, rows, n, seed
):
    generator = torch.Generator().manual_seed(seed)
    h, h_pos = 0.5 * torch.randn(2, rows, n, generator=generator)
    negatives = torch.randn(extra, n, generator=generator) if extra else None
    weights = (0.5 + torch.rand(n, generator=generator)).tolist()
    results = {}
    for engine in ("dense", "blockwise", "numba"):
        torch.manual_seed(seed)
        loss = LOSSES[name](
            {
                "dot": lambda: Dot(2.0, learn_scale=True),
                "l1": lambda: Lp(1, weights=weights, learn_weights=True),
                "l2": lambda: Lp(2, weights=weights, learn_weights=True),
            }[similarity](),
            symmetric=symmetric,
            negatives_from=policy,
            potential=NetworkPotential(n, 4) if network else ConstantPotential(0.1),
            potential_pos=ConstantPotential(-0.2),
            engine=engine,
        )
        results[engine] = value_and_gradients(loss, h, h_pos, negatives)
    value, gradients = results["dense"]
    # Gradients of parameters are sums that may cancel: judge them by the largest of all.
    size = max(float(g.abs().max()) for g in gradients) + float(value.detach().abs())
    for engine in ("blockwise", "numba"):
        torch.testing.assert_close(results[engine][0], value, rtol=1e-5, atol=1e-5 * size)
        for ours, theirs in zip(results[engine][1], gradients, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5 * size)


def test_align_uniform_by_loops(generator):
    h, h_pos = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    norm = [[(h[i] - h_pos[j]).abs().pow(3).sum().item() for j in range(6)] for i in range(6)]
    uniformity = mean(
        math.log(mean(math.exp(-norm[i][j]) for j in range(6) if j != i)) for i in range(6)
    )
    expected = 0.9 * uniformity + 0.1 * mean(norm[i][i] for i in range(6))
    ours = AlignUniform(alpha=0.9, p=3, symmetric=False)(h, h_pos)
    assert ours.item() == pytest.approx(expected, rel=1e-6)


def test_aninfonce_is_infonce_with_a_weight_per_dimension(generator):
    h, h_pos = torch.randn(2, 8, 3, generator=generator)
    named = AnInfoNCE(3, weights=[2.0, 4.0, 6.0])
    plain = InfoNCE(Lp(p=2, weights=[1.0, 2.0, 3.0], learn_weights=True))
    torch.testing.assert_close(named(h, h_pos), plain(h, h_pos))
    torch.testing.assert_close(named.weights, torch.tensor([2.0, 4.0, 6.0]))
    whole = AnInfoNCE(3, weights=[1.0, 2.0, 3.0], half=False)
    torch.testing.assert_close(whole(h, h_pos), plain(h, h_pos))
    assert len(list(named.parameters())) == 1


def test_an_ensemble_is_the_sum_over_its_tags(generator):
    h, h_pos = torch.randn(2, 9, 3, generator=generator)
    tags = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1, 1])
    parts = [AnInfoNCE(3, weights=2.0), AnInfoNCE(3, weights=[1.0, 5.0, 9.0])]
    total = Ensemble(parts)(h, h_pos, tags)
    by_hand = sum(part(h[tags == k], h_pos[tags == k]) for k, part in enumerate(parts))
    torch.testing.assert_close(total, by_hand)
    alone = Ensemble(parts)(h, h_pos, torch.zeros(9, dtype=torch.int64))
    torch.testing.assert_close(alone, parts[0](h, h_pos))


@pytest.mark.parametrize("name", LOSSES)
def test_one_and_two_pairs_are_defined(name, generator):
    h, h_pos = torch.randn(2, 2, 3, generator=generator)
    loss = LOSSES[name](Dot())
    assert loss(h, h_pos).isfinite()
    if name == "infonce":
        assert loss(h[:1], h_pos[:1]).item() == pytest.approx(0.0, abs=1e-6)
    else:
        with pytest.raises(ValueError, match="there are no negatives: a batch of one pair"):
            loss(h[:1], h_pos[:1])
    assert loss(h[:1], h_pos[:1], negatives=h_pos[1:]).isfinite()


def test_detached_negatives_get_no_gradient(generator):
    h, h_pos, queue = (torch.randn(4, 3, generator=generator).requires_grad_() for _ in range(3))
    InfoNCE(Dot())(h, h_pos, negatives=queue.detach()).backward()
    assert queue.grad is None
    InfoNCE(Dot())(h, h_pos, negatives=queue).backward()
    assert queue.grad.abs().sum() > 0


# The ratio r at a positive on [0, 1]^10 with Normal σ peaks at (σ √(2π))^-10.
LADDER = [0.2, 0.1, 0.05, 0.02, 0.01, 0.005]


@pytest.mark.parametrize("std", LADDER)
@pytest.mark.parametrize("name", LOSSES)
def test_concentrated_positives_give_finite_values_and_gradients(name, std, generator):
    """At the true width and offset, in float32, down to r = 1e19 and r² = 1e38, silently."""
    z = torch.rand(512, 10, generator=generator)
    z_pos = (z + std * torch.randn(512, 10, generator=generator)).requires_grad_()
    z.requires_grad_()
    offset = 10 * math.log(std * math.sqrt(2 * math.pi))
    potential = ConstantPotential(offset)
    loss = LOSSES[name](Lp(2, weights=0.5 / std**2, learn_weights=True), potential_pos=potential)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = loss(z, z_pos)
    value.backward()
    assert value.isfinite()
    for tensor in (z, z_pos, *loss.parameters()):
        assert tensor.grad.isfinite().all()
    exact = LOSSES[name](Lp(2, weights=0.5 / std**2), potential_pos=Square(0.0)).double()
    exact.potential_pos = ConstantPotential(offset).double()
    expected = exact(z.detach().double(), z_pos.detach().double())
    assert value.item() == pytest.approx(expected.item(), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", ["spectral", "nwj"])
def test_beyond_float32_there_is_one_warning_and_a_finite_result(name, generator):
    h, h_pos = torch.randn(2, 16, 3, generator=generator)
    h_pos.requires_grad_()
    loss = LOSSES[name](Dot(), potential_pos=ConstantPotential(-200.0))
    with pytest.warns(IsolatentWarning, match=r"too concentrated for this loss: use InfoNCE"):
        value = loss(h, h_pos)
    value.backward()
    assert value.isfinite()
    assert h_pos.grad.isfinite().all()
    assert h_pos.grad.abs().sum() > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(h, h_pos)


H = torch.zeros(4, 2)


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
        (lambda: NCE(Dot(), ratio=0), ValueError, "ratio must be a finite number > 0"),
        (lambda: AlignUniform(alpha=1.0), ValueError, "alpha must be a finite number > 0 and < 1"),
        (lambda: AnInfoNCE(0), ValueError, "n must be an integer >= 1"),
        (lambda: AnInfoNCE(3, weights=[1.0, 2.0]), ValueError, "one number or n = 3 of them"),
        (lambda: Ensemble([]), TypeError, "losses must be one or more loss modules"),
        (lambda: Dot(0.0), ValueError, "scale must be a finite number > 0"),
        (lambda: Lp(0.5), ValueError, "p must be a finite number >= 1, got 0.5"),
        (lambda: Lp(2, weights=-1.0), ValueError, "weights must be a finite number > 0"),
        (lambda: Lp(2, weights=[1.0, 0.0]), ValueError, r"weights\[1\] must be"),
        (lambda: InfoNCE(Lp(2, [1.0, 1.0, 1.0]))(H, H), ValueError, r"codes \(2\), got 3"),
        (lambda: InfoNCE(Dot())(H, H[:3]), ValueError, "h and h_pos must have the same shape"),
        (lambda: InfoNCE(Dot())(H[:0], H[:0]), ValueError, "B and n at least 1"),
        (lambda: InfoNCE(Dot())(H.long(), H), TypeError, "h must be a float32 or float64 tensor"),
        (lambda: InfoNCE(Dot())(H.numpy(), H), TypeError, "h must be .* got ndarray"),
        (lambda: InfoNCE(Dot())(H, H.double()), TypeError, "must have the same dtype"),
        (lambda: InfoNCE(Dot())(H, H, negatives=H[:, :1]), ValueError, "negatives must have shape"),
        (lambda: InfoNCE(Dot())(H, H, negatives=H[None]), ValueError, "negatives must have shape"),
        (
            lambda: InfoNCE(Dot(), negatives_from="given")(H, H),
            ValueError,
            "negatives must be given",
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
            "a potential must map codes",
        ),
        (lambda: Ensemble([NWJ(Dot())])(H, H, torch.ones(4).long()), ValueError, "from 0 to 0"),
        (lambda: Ensemble([NWJ(Dot())])(H, H, torch.zeros(3).long()), ValueError, "tags must be 4"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
