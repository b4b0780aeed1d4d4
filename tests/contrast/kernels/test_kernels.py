"""Every engine equals the dense oracle, in values and in all gradients."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.contrast import kernels
from isolatent.contrast.kernels import PairwiseScores, choose_engine, row_logsumexp
from isolatent.contrast.kernels.pairwise_scores import dense_scores

REDUCTIONS = ("row_logsumexp", "row_softplus", "both_logsumexp")
POWERS = (None, 1, 1.5, 1.7, 2, 2.5, 3, 4)
INPUTS = ("u", "v", "weights", "row_potential", "column_potential", "row_scale")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 600), st.integers(1, 9))
OPTIONS = st.fixed_dictionaries(
    {k: st.booleans() for k in ("weighted", "potentials", "scaled", "skip")}
    | {"seed": st.integers(0, 99)}
)


def check_equal(lab, engine, dtype, reduction, p, shape, options):
    errors = lab.difference(lab.draw(reduction, p, *shape, scale=0.5, **options), engine, dtype)
    assert max(errors.values()) < TOLERANCE[dtype], errors


@given(st.sampled_from(REDUCTIONS), st.sampled_from(POWERS), SHAPES, OPTIONS)
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_blockwise_equals_dense(lab, dtype, reduction, p, shape, options):
    check_equal(lab, "blockwise", dtype, reduction, p, shape, options)


@given(SHAPES, OPTIONS, st.data())
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_numba_equals_dense(lab, dtype, shape, options, data):
    p, reduction = data.draw(st.sampled_from(list(lab.COMPILED[dtype].items())))
    options["scaled"] &= p in lab.SCALED[dtype]
    check_equal(lab, "numba", dtype, reduction, p, shape, options)


@pytest.mark.slow
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("p", [*POWERS, 1.01, 7.3])
def test_numba_equals_dense_for_each_form_and_reduction(lab, p, reduction, dtype, scaled):
    for shape in ((1, 1, 1), (5, 3, 2), (33, 300, 7)):
        options = {"scaled": scaled, "skip": shape[1] > 1, "seed": 4}
        check_equal(lab, "numba", dtype, reduction, p, shape, options)


@pytest.mark.parametrize("engine", ["dense", "blockwise", "numba"])
@pytest.mark.parametrize(("p", "reduction"), [(None, 2), (1, 1), (1.7, 0)])
@pytest.mark.parametrize("scaled", [False, True])
def test_gradcheck(lab, engine, p, reduction, scaled):
    problem = lab.draw(REDUCTIONS[reduction], p, 4, 5, 3, seed=1, scaled=scaled, skip=True)
    names = lab.INPUTS if scaled else lab.INPUTS[:-1]
    inputs = [getattr(problem, k).requires_grad_() for k in names]

    def reduce(*inputs):
        scores = problem.scores(**dict(zip(names, inputs, strict=True)))
        return getattr(kernels, problem.reduction)(scores, engine)

    assert torch.autograd.gradcheck(reduce, inputs)


@pytest.mark.parametrize("engine", ["dense", "blockwise", "numba"])
@pytest.mark.parametrize("p", [None, 1, 1.7, 3])
def test_multipliers_of_one_change_nothing(lab, engine, p):
    for dtype in [d for d in TOLERANCE if p in lab.COMPILED[d]]:
        plain = lab.draw(lab.COMPILED[dtype][p], p, 9, 270, 3, skip=True).to(dtype)
        got = lab.evaluate(replace(plain, row_scale=torch.ones(9, dtype=dtype)), engine)
        for name, x in lab.evaluate(plain, engine).items():
            scale = max(1.0, float(x[x.isfinite()].abs().max()))
            torch.testing.assert_close(got[name], x, rtol=0, atol=TOLERANCE[dtype] * scale)


def paired(problem, engine, both):
    """Log-sum-exps and scores s_ii, then `mean_infonce`, each with gradients of all inputs."""
    names = [k for k in INPUTS if getattr(problem, k) is not None]
    results = []
    for function in (kernels.paired_logsumexp, kernels.mean_infonce):
        inputs = [getattr(problem, k).clone().requires_grad_() for k in names]
        scores = problem.scores(**dict(zip(names, inputs, strict=True)))
        values = function(scores, engine, both=both)
        values = [*values[0], values[1]] if isinstance(values, tuple) else [values]
        weights = [torch.linspace(1, 2, x.numel(), dtype=x.dtype).view_as(x) for x in values]
        total = sum((w * x).sum() for w, x in zip(weights, values, strict=True))
        results += [*values, *torch.autograd.grad(total, inputs)]
    return [x.detach().double() for x in results]


@pytest.mark.parametrize(("p", "dtype"), [(None, torch.float64), (1, torch.float32)])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("skipped", ["nothing", "the diagonal"])
@pytest.mark.parametrize("rows", [1, 5, 32, 301])
def test_engines_agree_on_the_scores_of_pairs(lab, p, dtype, both, skipped, rows):
    if skipped == "the diagonal" and rows == 1:
        return  # there would be nothing to sum
    problem = lab.draw("both_logsumexp", p, rows, rows, 3, scaled=True, scale=0.5)
    skip = torch.arange(rows) if skipped == "the diagonal" else None
    problem = replace(problem, skip=skip).to(dtype)
    want = paired(problem.to(torch.float64), "dense", both)
    for engine in ("auto", "numba", "blockwise"):
        for x, y in zip(paired(problem, engine, both), want, strict=True):
            scale = max(1.0, float(y.abs().max()), float(problem.u.abs().max()) * rows)
            torch.testing.assert_close(x, y, rtol=0, atol=10 * TOLERANCE[dtype] * scale)


def test_scores_of_pairs_are_on_the_diagonal_even_where_sums_leave_them_out(lab):
    problem = replace(lab.draw("row_logsumexp", 2, 6, 8, 3), skip=torch.arange(6))
    (rows,), positive = kernels.paired_logsumexp(problem.scores(), "dense", both=False)
    everything = dense_scores(problem.scores(skip=None))
    torch.testing.assert_close(positive, everything.diagonal())
    torch.testing.assert_close(rows, dense_scores(problem.scores()).logsumexp(1))
    got = kernels.mean_infonce(problem.scores(), "dense", both=False)
    torch.testing.assert_close(got, (rows - positive).mean())


def test_pairs_need_a_column_for_each_row():
    few = PairwiseScores(torch.zeros(3, 2), torch.zeros(2, 2), p=2)
    many = PairwiseScores(torch.zeros(3, 2), torch.zeros(4, 2), p=2)
    with pytest.raises(ValueError, match="v must have as many rows as u or more, got 2 and 3"):
        kernels.paired_logsumexp(few, both=False)
    with pytest.raises(ValueError, match="v must have as many rows as u, got 4 and 3"):
        kernels.mean_infonce(many, both=True)


def extremes(lab, reduction, p):
    """Problems at the edge of float32: scores from 1e-6 to 1e12."""
    ordinary = lab.draw(reduction, p, 60, 300, 6, seed=3, scaled=p in lab.SCALED[torch.float32])

    def problem(u, v):
        return replace(ordinary, u=u, v=v)

    u, v = ordinary.u, ordinary.v
    outlier = v.clone()
    outlier[17] = 1e3
    return {
        "identical rows": problem(torch.ones_like(u), torch.ones_like(v)),
        "scale 1e-6": problem(1e-6 * u, 1e-6 * v),
        "scale 1e6": replace(ordinary, weights=1e6 * ordinary.weights),
        "distances 1e4": problem(u * 1e4 ** (1 / (p or 2)), v * 1e4 ** (1 / (p or 2))),
        "offset 100": problem(u + 100, v + 100),
        "one outlier": problem(u, outlier),
    }


@pytest.mark.parametrize("engine", ["blockwise", "numba"])
@pytest.mark.parametrize("p", [None, 1, 1.7, 2, 3])
def test_extreme_inputs_are_right_to_rounding(lab, engine, p):
    """Within 8 ε Σ|c|(S + E)|∂s|, S being the size of a score: see `rounding` in conftest."""
    for name, problem in extremes(lab, lab.COMPILED[torch.float32][p], p).items():
        worst = lab.excess(problem, engine, torch.float32)
        assert max(worst.values()) < 8, (name, worst)


@pytest.mark.parametrize("engine", ["dense", "blockwise", "numba"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_without_columns_is_minus_infinity_and_has_no_gradient(lab, engine, dtype):
    p = {torch.float32: 2, torch.float64: 1.7}[dtype]
    u = torch.tensor([[0.0], [1.0]], dtype=dtype, requires_grad=True)
    v = torch.tensor([[2.0]], dtype=dtype, requires_grad=True)
    values = row_logsumexp(PairwiseScores(u, v, p, skip=torch.tensor([0, -1])), engine)
    assert values.tolist() == [-torch.inf, -1.0]
    values.sum().backward()
    assert u.grad.ravel().tolist() == pytest.approx([0.0, p])
    assert v.grad.ravel().tolist() == pytest.approx([-p])


@pytest.mark.parametrize("engine", ["blockwise", "numba"])
def test_gradients_add_up_when_rows_are_columns(engine, generator):
    x = torch.randn(30, 3, generator=generator)
    gradients = []
    for chosen in ("dense", engine):
        u = x.clone().requires_grad_()
        scores = PairwiseScores(u, u, p=2, skip=torch.arange(30))
        row_logsumexp(scores, chosen).sum().backward()
        gradients.append(u.grad)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)


def test_engines_are_chosen_by_device_and_errors_name_both():
    here, elsewhere = torch.zeros(2, 1), torch.zeros(2, 1, device="meta")
    assert choose_engine("auto", here) == "numba"
    assert choose_engine("auto", elsewhere) == "blockwise"
    assert [choose_engine(k, elsewhere) for k in ("dense", "blockwise")] == ["dense", "blockwise"]
    with pytest.raises(ValueError, match=r"engine='numba'.*'meta'"):
        row_logsumexp(PairwiseScores(elsewhere, elsewhere, p=1), "numba")
    with pytest.raises(ValueError, match="'auto', 'dense', 'blockwise', 'numba', got 'keops'"):
        row_logsumexp(PairwiseScores(here, here, p=1), "keops")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"u": torch.zeros(2)}, ValueError, r"u and v must have shapes"),
        ({"v": torch.zeros(3, 2)}, ValueError, r"got \(2, 1\) and \(3, 2\)"),
        ({"v": torch.zeros(0, 1)}, ValueError, r"at least 1, got \(2, 1\) and \(0, 1\)"),
        ({"u": torch.zeros(2, 1, dtype=torch.int64)}, TypeError, "u must be .*float32.*int64"),
        ({"v": torch.zeros(3, 1).double()}, TypeError, "v must be .*float32, got .*float64"),
        ({"weights": torch.ones(2)}, ValueError, r"weights must have shape \(1,\), got \(2,\)"),
        (
            {"weights": torch.zeros(1)},
            ValueError,
            r"weights must be positive and finite, got \[0.0\]",
        ),
        ({"row_potential": torch.zeros(3)}, ValueError, r"row_potential must have shape \(2,\)"),
        ({"column_potential": torch.zeros(2)}, ValueError, r"column_potential must have shape"),
        ({"row_scale": torch.ones(3)}, ValueError, r"row_scale must have shape \(2,\), got \(3,\)"),
        ({"row_scale": torch.ones(2).double()}, TypeError, "row_scale must be .*float32, got"),
        *(
            (
                {"row_scale": torch.tensor([1.0, bad])},
                ValueError,
                f"row_scale must be positive and finite, got {bad} at 1",
            )
            for bad in (0.0, -2.0, torch.inf, torch.nan)
        ),
        ({"skip": torch.tensor([0, 3])}, ValueError, r"skip must be -1 or a column below 3"),
        ({"skip": torch.tensor([0.0, 1.0])}, TypeError, "skip must be .*int64, got .*float32"),
        ({"p": 0.5}, ValueError, "p must be a finite number >= 1, got 0.5"),
        ({"u": torch.tensor([[0.0], [torch.nan]])}, ValueError, "u must be finite.*row 1"),
    ],
)
def test_errors_name_the_argument(change, error, message):
    arguments = {"u": torch.zeros(2, 1), "v": torch.zeros(3, 1), "p": 2} | change
    with pytest.raises(error, match=message):
        row_logsumexp(PairwiseScores(**arguments))


MEMORY = """
import resource, sys, torch
from isolatent.contrast.kernels import PairwiseScores, row_logsumexp
torch.set_num_threads(2)
def step(rows):
    u, v = (torch.randn(rows, 10).requires_grad_() for _ in range(2))
    row_logsumexp(PairwiseScores(u, v, p={p}), {engine!r}).sum().backward()
step(64)  # imports and compiles
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
step(16384)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(("engine", "p"), [("numba", 2), ("blockwise", None)])
def test_memory_at_batch_16384(engine, p):
    """All scores would take 1 GB."""
    script = MEMORY.format(engine=engine, p=p)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 150 * 1024  # KB


def test_importing_the_package_does_not_import_numba():
    script = "import sys, isolatent.contrast.kernels; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
