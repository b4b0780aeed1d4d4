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
    # Refused, see below: no negatives at all, and those of the anchors for the positives too.
    if not (case[1] == "given" and case[3] is None) and not (case[2] and case[3] == "own")
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
    assert loss(h, h_pos, negatives=given).item() == pytest.approx(expected, rel=1e-10)


def value_and_gradients(loss, h, h_pos, negatives):
    inputs = [
        x.clone().requires_grad_() for x in (h, h_pos) + (() if negatives is None else (negatives,))
    ]
    value = loss(*inputs[:2], negatives=None if negatives is None else inputs[2])
    return value, torch.autograd.grad(value, [*inputs, *loss.parameters()])


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


def test_align_uniform_by_loops(generator):
    h, h_pos = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    norm = [[(h[i] - h_pos[j]).abs().pow(3).sum().item() for j in range(6)] for i in range(6)]
    uniformity = mean(
        math.log(mean(math.exp(-norm[i][j]) for j in range(6) if j != i)) for i in range(6)
    )
    expected = 0.9 * uniformity + 0.1 * mean(norm[i][i] for i in range(6))
    ours = AlignUniform(alpha=0.9, p=3, symmetric=False)(h, h_pos)
    assert ours.item() == pytest.approx(expected, rel=1e-6)


def test_uniformity_ends_where_each_anchor_is_its_own_negative():
    """By hand, and as codes grow: -log of all candidates with ``own``, no end without."""
    h, h_pos = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0)).double()
    far = torch.cdist(h, h_pos, p=1)
    others = torch.exp(-far).masked_fill(torch.eye(6, dtype=bool), 0)
    uniformity = torch.log((1 + others.sum(1)) / 6).mean()
    loss = AlignUniform(0.9, p=1, own=True, symmetric=False)
    expected = 0.9 * uniformity + 0.1 * far.diagonal().mean()
    torch.testing.assert_close(loss(h, h_pos), expected)
    grown = 1e4 * h
    assert loss(grown, grown) == pytest.approx(-0.9 * math.log(6))
    assert AlignUniform(0.9, p=1, symmetric=False)(grown, grown) < -1e3


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
    own = torch.randn(9, 2, 3, generator=generator)
    one_way = [AnInfoNCE(3, symmetric=False), AnInfoNCE(3, weights=4.0, symmetric=False)]
    torch.testing.assert_close(
        Ensemble(one_way)(h, h_pos, tags, negatives=own),
        sum(part(h[tags == k], h_pos[tags == k], own[tags == k]) for k, part in enumerate(one_way)),
    )
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


def concentrated(name, std, dtype, engine="auto"):
    """Value, gradients and warnings at the true width and offset of a concentrated normal."""
    generator = torch.Generator().manual_seed(0)
    z = torch.rand(256, 10, generator=generator)
    z_pos = z + std * torch.randn(256, 10, generator=generator)
    offset = 10 * math.log(std * math.sqrt(2 * math.pi))
    loss = LOSSES[name](
        Lp(2, weights=0.5 / std**2), potential_pos=ConstantPotential(offset), engine=engine
    ).to(dtype)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value, gradients = value_and_gradients(loss, z.to(dtype), z_pos.to(dtype), None)
    return value, gradients, caught


@pytest.mark.parametrize("std", LADDER)
@pytest.mark.parametrize("name", LOSSES)
def test_concentrated_positives_give_finite_values_and_gradients(name, std):
    """In float32, down to r = 1e19 and r² = 1e38; silently, and right, down to σ = 0.01."""
    value, gradients, caught = concentrated(name, std, torch.float32)
    assert value.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)
    if std >= 0.01 or name not in ("spectral", "nwj"):
        assert not caught
        exact, expected, _ = concentrated(name, std, torch.float64, engine="dense")
        # Scores reach 1e3 to 1e5 here, so that float32 leaves them three digits.
        assert value.item() == pytest.approx(exact.item(), rel=2e-3, abs=1e-4)
        for ours, theirs in zip(gradients, expected, strict=True):
            size = float(theirs.abs().max())
            torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=5e-3 * size + 1e-6)


@pytest.mark.parametrize("offset", [-50.0, -85.0, -200.0])
@pytest.mark.parametrize("name", ["spectral", "nwj"])
def test_beyond_float32_there_is_one_warning_and_a_gradient_of_use(name, offset, generator):
    """Scores far too high must be pushed down, as the exact gradient does, and Adam must live."""
    h = torch.randn(16, 3, generator=generator)
    h_pos = h + 0.1 * torch.randn(16, 3, generator=generator)
    loss = LOSSES[name](Lp(2), potential_pos=ConstantPotential(offset))
    with pytest.warns(IsolatentWarning, match=r"too concentrated for this loss: use InfoNCE"):
        value, gradients = value_and_gradients(loss, h, h_pos, None)
    assert value.isfinite()
    assert all(gradient.square().isfinite().all() for gradient in gradients)
    assert gradients[-1] < 0  # the potential rises, scores fall
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(h, h_pos)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("case", "change"),
    {
        "identical rows": lambda h: h * 0 + 1,
        "far apart": lambda h: h * 30,
        "tiny": lambda h: h * 1e-6,
        "an outlier": lambda h: torch.cat([h[:-1], h[-1:] * 0 + 60]),
    }.items(),
)
def test_extreme_codes_give_finite_losses(name, case, change, generator):
    h, h_pos = torch.randn(2, 20, 3, generator=generator)
    value, gradients = value_and_gradients(LOSSES[name](Lp(2)), change(h), change(h_pos), None)
    assert value.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)
    exact, _ = value_and_gradients(
        LOSSES[name](Lp(2), engine="dense"), change(h).double(), change(h_pos).double(), None
    )
    assert value.item() == pytest.approx(exact.item(), rel=1e-4, abs=1e-5)


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


def test_fixed_scales_are_kept_exactly():
    assert Dot(3.0).double().scale.item() == 3.0
    assert Lp(2, weights=20_000.0).weights.item() == 20_000.0
    assert Dot(3.0, learn_scale=True).scale.item() == pytest.approx(3.0, rel=1e-6)


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
        (lambda: Ensemble([]), TypeError, "losses must be one or more contrastive losses"),
        (lambda: Ensemble([torch.nn.Linear(2, 2)]), TypeError, "one or more contrastive losses"),
        (lambda: Ensemble([NWJ(Dot(), gather=True)]), ValueError, "must have gather=False"),
        (lambda: AlignUniform(potential=ConstantPotential()), ValueError, "AlignUniform has none"),
        (lambda: Dot(1e-50), ValueError, "scale must be a finite number > 1e-37"),
        (lambda: Lp(2, weights=1e39), ValueError, "weights must be a finite number"),
        (lambda: Dot(0.0), ValueError, "scale must be a finite number > "),
        (lambda: Lp(0.5), ValueError, "p must be a finite number >= 1, got 0.5"),
        (lambda: Lp(2, weights=-1.0), ValueError, "weights must be a finite number > 0"),
        (lambda: Lp(2, weights=[1.0, 0.0]), ValueError, r"weights\[1\] must be"),
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
            "a potential must map codes",
        ),
        (lambda: Ensemble([NWJ(Dot())])(H, H, torch.ones(4).long()), ValueError, "from 0 to 0"),
        (
            lambda: Ensemble([NWJ(Dot())])(H, H, torch.zeros(3).long()),
            ValueError,
            "tags must be a tensor of 4",
        ),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
