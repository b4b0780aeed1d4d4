"""Every loss equals its formula pair by pair, and stays finite where scores are extreme."""

import math
import warnings
from itertools import product

import pytest
import torch

from isolatent.checks import IsolatentWarning
from isolatent.contrast import NCE, AlignUniform, AnInfoNCE, ConstantPotential, Dot, InfoNCE, Lp
from isolatent.worlds import Box, Identity, Normal, Uniform, World
from named_losses import LOSSES, value_and_gradients
from relaxed_modules import FRESH, relaxed


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


class Square(torch.nn.Module):
    """A potential that is easy to compute by hand."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, h):
        return self.factor * h.square().sum(-1)


def by_hand(name, s, symmetric, policy, anchors, positives, given):
    """Evaluate a formula by loops; s is a function of an anchor and of a candidate positive.

    ``given`` holds the further negatives of each anchor.
    """
    ways = [(anchors, positives, s)]
    if symmetric:
        ways.append((positives, anchors, lambda u, v: s(v, u)))
    values = []
    for rows, others, score in ways:
        negatives = []
        for i, u in enumerate(rows):
            row = []
            for kind, columns in (("across", others), ("within", rows)):
                if policy in (kind, "both"):
                    row += [score(u, v) for j, v in enumerate(columns) if j != i]
            negatives.append(row + [score(u, v) for v in given[i]])
        pairs = [score(u, v) for u, v in zip(rows, others, strict=True)]
        values.append(FORMULAS[name](pairs, negatives))
    return mean(values)


def negatives_of_each(given, rows):
    """Further negatives as lists, one for each anchor."""
    if given is None:
        return [[]] * rows
    return given.tolist() if given.ndim == 3 else [given.tolist()] * rows


CASES = [
    case
    for case in product(
        LOSSES,
        ["across", "within", "both", "given"],
        [False, True],
        [None, "shared", "own"],
    )
    # Refused, see test_contrastive_loss: no negatives at all, and those of the anchors for the
    # positives too.
    if not (case[1] == "given" and case[3] is None) and not (case[2] and case[3] == "own")
]


@pytest.mark.parametrize(("name", "policy", "symmetric", "extra"), CASES)
def test_the_loss_by_loops_over_pairs(name, policy, symmetric, extra, generator):
    """Dense engine against the formula; test_contrastive_loss compares the engines."""
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
    weights = similarity.coordinate_weights(3).tolist()

    def s(u, v):
        terms = list(zip(weights, u, v, strict=True))
        if similarity.p is None:
            d = -sum(w * a * b for w, a, b in terms)
        else:
            d = sum(w * abs(a - b) ** similarity.p for w, a, b in terms)
        return -d - 0.1 * sum(a * a for a in u) + 0.2 * sum(b * b for b in v)

    lists = h.tolist(), h_pos.tolist(), negatives_of_each(given, 5)
    expected = by_hand(name, s, symmetric, policy, *lists)
    assert loss(h, h_pos, negatives=given).item() == pytest.approx(expected, rel=1e-10)


def ordered_scores(loss, points):
    """The scores (P, P) of all ordered pairs of points as lists, from the definition."""
    similarity, points = loss.similarity, points.tolist()
    n = len(points[0])
    weights = similarity.coordinate_weights(n).tolist()
    relative = [1.0] * n if loss.factor_scale is None else loss.factor_scale().tolist()

    def number(module, u, without):
        u = torch.tensor([u], dtype=torch.float64)
        return without if module is None else module(u).item()

    of_candidates = [number(loss.potential_pos, v, 0.0) for v in points]
    table = []
    for u in points:
        centre = u
        if loss.dynamics is not None:
            centre = loss.dynamics(torch.tensor([u], dtype=torch.float64))[0].tolist()
        scale, alpha = number(loss.anchor_scale, u, 1.0), number(loss.potential, u, 0.0)
        row = []
        for v, alpha_pos in zip(points, of_candidates, strict=True):
            terms = list(zip(weights, relative, centre, v, strict=True))
            if similarity.p is not None:
                score = -scale * sum(a * w * abs(x - y) ** similarity.p for a, w, x, y in terms)
            elif loss.factor_scale is not None:
                kappa = weights[0]
                score = kappa - scale * sum(kappa / 2 * w * (x - y) ** 2 for _, w, x, y in terms)
            else:
                kappa = weights[0]
                score = kappa - scale * kappa * (1 - sum(x * y for _, _, x, y in terms))
            row.append(score - alpha - alpha_pos)
        table.append(row)
    return table


SIMILARITIES = {
    "dot": lambda: Dot(1.5, learn_scale=True),
    **{f"l{p}": lambda p=p: Lp(p, [0.5, 1.0, 2.0], learn_weights=True) for p in (1, 2, 3)},
}


def relaxed_loss(name, similarity, parts, generator, **options):
    """A loss in float64 whose relaxations are not at their start, in evaluation mode."""
    options |= relaxed(parts, 3, generator)
    if similarity == "aninfonce":
        included = name != "decoupled"
        loss = AnInfoNCE(3, [1.0, 2.0, 4.0], positive_in_denominator=included, **options)
    else:
        loss = LOSSES[name](SIMILARITIES[similarity](), **options)
    return loss.double().eval()


RELAXED = [*product(LOSSES, SIMILARITIES), ("infonce", "aninfonce"), ("decoupled", "aninfonce")]
# With a factor scale Dot becomes a distance.
DIFFERENTIATED = [(*case, "all") for case in RELAXED] + [
    (name, "dot", "anchor_scale") for name in LOSSES
]


@pytest.mark.parametrize("parts", FRESH)
@pytest.mark.parametrize(("name", "similarity"), RELAXED)
def test_the_relaxed_loss_by_loops_over_pairs(name, similarity, parts, generator):
    """With the density ratio e^s + e^b; backward, the same scores of ordered pairs."""
    points = 0.5 * torch.randn(24, 3, generator=generator, dtype=torch.float64)
    h, h_pos = points[:5], points[5:10]
    loss = relaxed_loss(name, similarity, parts, generator, engine="dense")
    table = ordered_scores(loss, points)
    expected = [table[i][5 + i] for i in range(5)]
    assert loss.scores(h, h_pos).tolist() == pytest.approx(expected, rel=1e-10)
    if loss.pairing is not None:
        unrelated = math.exp(loss.pairing().item())
        table = [[math.log(math.exp(s) + unrelated) for s in row] for row in table]
    rows = list(range(5)), list(range(5, 10))
    shared, own = list(range(10, 14)), [[14 + 2 * i, 15 + 2 * i] for i in range(5)]
    each = {None: [[]] * 5, "shared": [shared] * 5, "own": own}
    for _, policy, symmetric, extra in CASES[: len(CASES) // len(LOSSES)]:
        given = {None: None, "shared": points[shared], "own": points[torch.tensor(own)]}[extra]
        loss.symmetric, loss.negatives_from = symmetric, policy
        expected = by_hand(name, lambda i, j: table[i][j], symmetric, policy, *rows, each[extra])
        value = loss(h, h_pos, negatives=given).item()
        assert value == pytest.approx(expected, rel=1e-10, abs=1e-10), (policy, symmetric, extra)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("name", ["nce", "nce counted", "spectral", "nwj"])
def test_losses_that_sum_all_pairs_are_symmetric(name, similarity, generator):
    """Value and gradients do not depend on the direction, though the score does."""
    points = 0.5 * torch.randn(12, 3, generator=generator, dtype=torch.float64)
    h, h_pos = points[:6], points[6:]
    loss = relaxed_loss(name, similarity, "all", generator, engine="dense")
    table = ordered_scores(loss, points)
    assert abs(table[0][7] - table[7][0]) > 1e-2
    results = []
    for symmetric in (True, False):
        loss.symmetric = symmetric
        results.append(value_and_gradients(loss, h, h_pos, None))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)
    loss.symmetric = False
    assert loss(h_pos, h).item() != pytest.approx(results[1][0].item(), rel=1e-3)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("name", "similarity", "parts"), DIFFERENTIATED)
def test_every_engine_gives_the_same_relaxed_loss_and_gradients(
    name, similarity, parts, symmetric, generator
):
    """Blockwise in float64; numba, which compiles every form anew, in float32."""
    points = 0.5 * torch.randn(47, 3, generator=generator, dtype=torch.float64)
    codes = points[:20], points[20:40], points[40:]
    loss = relaxed_loss(name, similarity, parts, generator, symmetric=symmetric)
    for policy, further in (("across", None), ("both", codes[2])):
        loss.negatives_from, loss.engine = policy, "dense"
        value, gradients = value_and_gradients(loss, *codes[:2], further)
        for engine, dtype, tolerance in (
            ("blockwise", torch.float64, 1e-10),
            ("numba", torch.float32, 2e-5),
        ):
            loss.to(dtype).engine = engine
            ours = value_and_gradients(
                loss, *(None if x is None else x.to(dtype) for x in (*codes[:2], further))
            )
            loss.double()
            # A parameter's gradient is a sum over all pairs that may cancel to nothing.
            scale = 1 + value.detach().abs().item()
            torch.testing.assert_close(
                ours[0].double(), value, rtol=tolerance, atol=tolerance * scale
            )
            for found, expected in zip(ours[1], gradients, strict=True):
                size = scale + expected.abs().max().item()
                torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance * size)


@pytest.mark.parametrize("policy", ["across", "both"])
@pytest.mark.parametrize(("name", "similarity", "parts"), DIFFERENTIATED)
def test_gradients_of_the_relaxed_loss_by_finite_differences(
    name, similarity, parts, policy, generator
):
    """To codes, further negatives and the parameters of all modules."""
    codes = 0.5 * torch.randn(3, 4, 3, generator=generator, dtype=torch.float64)
    loss = relaxed_loss(name, similarity, parts, generator, negatives_from=policy, engine="dense")
    inputs = [x.clone().requires_grad_() for x in codes]
    # Differences are taken in place, so that those of the parameters reach the loss as well.
    assert torch.autograd.gradcheck(
        lambda h, h_pos, further, *_: loss(h, h_pos, further),
        (*inputs, *loss.parameters()),
        fast_mode=True,
    )
    value = loss(*inputs)
    for gradient in torch.autograd.grad(value, [*inputs, *loss.parameters()]):
        assert gradient.abs().max() > 0


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
    """By hand, and as codes grow: -log of all candidates with it, no end without."""
    h, h_pos = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0)).double()
    far = torch.cdist(h, h_pos, p=1)
    others = torch.exp(-far).masked_fill(torch.eye(6, dtype=bool), 0)
    uniformity = torch.log((1 + others.sum(1)) / 6).mean()
    loss = AlignUniform(0.9, p=1, include_self=True, symmetric=False)
    expected = 0.9 * uniformity + 0.1 * far.diagonal().mean()
    torch.testing.assert_close(loss(h, h_pos), expected)
    grown = 1e4 * h
    assert loss(grown, grown) == pytest.approx(-0.9 * math.log(6))
    assert AlignUniform(0.9, p=1, symmetric=False)(grown, grown) < -1e3


@pytest.mark.parametrize(
    ("alpha", "std", "falls"),
    [(0.3, 0.05, True), (0.5, 0.05, True), (0.1, 0.05, False), (0.7, 0.3, False)],
)
def test_whether_align_uniform_has_a_minimum_depends_on_the_nearest_negative(alpha, std, falls):
    """On codes that grow by s: s^p times (1 - a) · positive - a · nearest negative."""
    world = World(Box(5), Uniform(), Normal(std), Identity(), seed=0)
    h, h_pos = (codes.double() for codes in world.sample_latents(512))
    distances = torch.cdist(h, h_pos).square()
    positive = distances.diagonal().mean()
    nearest = (distances + torch.eye(len(h)) * 1e9).min(1).values.mean()
    slope = (1 - alpha) * positive - alpha * nearest
    assert (slope < 0) == falls
    loss = AlignUniform(alpha, p=2, symmetric=False)
    values = [float(loss(s * h, s * h_pos)) for s in (30.0, 100.0, 300.0)]
    assert (values[2] < values[1] < values[0]) == falls
    assert values[2] == pytest.approx(float(300.0**2 * slope), rel=0.05)
    bounded = AlignUniform(alpha, p=2, include_self=True, symmetric=False)
    assert bounded(300 * h, 300 * h_pos) > -alpha * math.log(len(h))


def test_aninfonce_is_infonce_with_a_weight_per_dimension(generator):
    h, h_pos = torch.randn(2, 8, 3, generator=generator)
    named = AnInfoNCE(3, weights=[2.0, 4.0, 6.0])
    plain = InfoNCE(Lp(p=2, weights=[1.0, 2.0, 3.0], learn_weights=True))
    torch.testing.assert_close(named(h, h_pos), plain(h, h_pos))
    torch.testing.assert_close(named.weights, torch.tensor([2.0, 4.0, 6.0]))
    whole = AnInfoNCE(3, weights=[1.0, 2.0, 3.0], half=False)
    torch.testing.assert_close(whole(h, h_pos), plain(h, h_pos))
    assert len(list(named.parameters())) == 1


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


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: NCE(Dot(), ratio=0), ValueError, "ratio must be a finite number > 0"),
        (lambda: AlignUniform(alpha=1.0), ValueError, "alpha must be a finite number > 0 and < 1"),
        (lambda: AnInfoNCE(0), ValueError, "n must be an integer >= 1"),
        (lambda: AnInfoNCE(3, weights=[1.0, 2.0]), ValueError, "one number or n = 3 of them"),
        (
            lambda: AlignUniform(potential=ConstantPotential()),
            ValueError,
            "AlignUniform does not define it",
        ),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


SCALES = [10.0**k for k in range(-3, 9)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("engine", ["dense", "blockwise", "numba"])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("negatives_from", ["across", "both"])
@pytest.mark.parametrize(
    "similarity", [Dot, lambda scale: Lp(1, scale), lambda scale: Lp(2, scale)]
)
def test_infonce_is_never_below_zero(similarity, negatives_from, symmetric, engine, dtype):
    """A log-sum-exp is at least each of its terms, also where rounding exceeds the loss."""
    for rows in (2, 33, 300):
        angle = 2 * math.pi * torch.arange(rows, dtype=torch.float64) / rows
        h = torch.stack([angle.cos(), angle.sin()], 1).to(dtype)
        for h_pos in (h, h.roll(1, 0), 1.001 * h):
            for scale in SCALES:
                loss = InfoNCE(
                    similarity(scale),
                    negatives_from=negatives_from,
                    symmetric=symmetric,
                    engine=engine,
                )
                assert loss(h, h_pos) >= 0, (rows, scale)
