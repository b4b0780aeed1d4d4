"""Laws of the checked columns, and of every score of arrays: what it reads and what it rejects."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from isolatent.evaluation import block_mcc, block_r2, linear_r2, mcc
from isolatent.evaluation.columns import (
    as_columns,
    dense_ranks,
    mid_ranks,
    standardise,
    weighted_deviations,
)

SCORES = {
    "linear_r2": linear_r2,
    "mcc": mcc,
    "block_r2": lambda z, h: block_r2(z, h, [range(np.shape(z)[1] if np.ndim(z) == 2 else 1)]),
    "block_mcc": lambda z, h: block_mcc(z, h, [range(np.shape(z)[1] if np.ndim(z) == 2 else 1)]),
}
every_score = pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
GOOD = np.arange(20.0)


def noisy_mixture(rows=60):
    """Three factors, and three codes that are noisy mixtures of them."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, 3))
    return z, z @ rng.normal(size=(3, 3)) + 0.3 * rng.normal(size=(rows, 3))


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6, dtype=np.float32).reshape(3, 2),
        np.arange(6).reshape(3, 2),
        np.arange(6).reshape(3, 2).tolist(),
        torch.arange(6).reshape(3, 2),
        torch.arange(6.0, dtype=torch.bfloat16).reshape(3, 2),
        torch.arange(6.0, requires_grad=True).reshape(3, 2),
    ],
    ids=["float32", "int", "list", "int tensor", "bfloat16 tensor", "tensor with a gradient"],
)
def test_every_kind_of_array_becomes_the_same_float64_columns(values):
    columns = as_columns("codes", values)
    assert columns.dtype == np.float64
    np.testing.assert_array_equal(columns, np.arange(6.0).reshape(3, 2))


def test_a_one_dimensional_array_is_one_column():
    assert as_columns("codes", torch.arange(3)).shape == (3, 1)


@every_score
@pytest.mark.parametrize(
    ("factors", "codes", "error", "message"),
    [
        (GOOD, GOOD[:19], ValueError, r"codes must have as many rows as factors \(20\), got 19"),
        (GOOD.reshape(5, 4, 1), GOOD, ValueError, r"factors must have shape .* \(5, 4, 1\)"),
        (GOOD, GOOD.reshape(20, 1, 1), ValueError, r"codes must have shape .* \(20, 1, 1\)"),
        (GOOD, np.float64(3), ValueError, r"codes must have shape .* got shape \(\)"),
        (GOOD, np.empty((20, 0)), ValueError, r"codes must have at least one column, got .*0\)"),
        (np.empty((20, 0)), GOOD, ValueError, r"factors must have at least one column, got .*0\)"),
        (GOOD[:1], GOOD[:1], ValueError, r"factors must have at least 2 rows, got 1"),
        (GOOD, np.empty(0), ValueError, r"codes must have at least 2 rows, got 0"),
        (GOOD, np.where(GOOD > 6, np.inf, 0), ValueError, r"codes must be finite, got inf in row"),
        (np.where(GOOD == 3, np.nan, 1), GOOD, ValueError, r"factors must be finite, got nan in"),
        (GOOD * 0 + 0.1, GOOD, ValueError, r"factors must vary .*, got constant column 0"),
        (GOOD + 0j, GOOD, TypeError, r"factors must hold real numbers, got dtype complex128"),
        (GOOD, ["a"] * 20, TypeError, r"codes must hold real numbers, got dtype <U1"),
    ],
)
def test_every_score_rejects_bad_arrays_by_name(score, factors, codes, error, message):
    with pytest.raises(error, match=message):
        score(factors, codes)


@every_score
@pytest.mark.parametrize("scale", [1e-310, 1e300])
def test_scores_do_not_depend_on_units(score, scale):
    z, h = noisy_mixture()
    assert score(z * scale, h * scale) == pytest.approx(score(z, h), abs=1e-6)


@every_score
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_and_arrays_score_the_same(score, dtype):
    z, h = (torch.tensor(part, dtype=dtype) for part in noisy_mixture())
    tensors = score(z, h.clone().requires_grad_())
    assert type(tensors) is float
    assert tensors == score(z.numpy(), h.numpy())


@every_score
def test_scores_do_not_modify_their_arguments(score):
    z, h = noisy_mixture()
    before = z.copy(), h.copy()
    score(z, h)
    np.testing.assert_array_equal(z, before[0])
    np.testing.assert_array_equal(h, before[1])


@pytest.mark.parametrize("score", [linear_r2, mcc, partial(block_r2, blocks=[[0, 2], [1]])])
def test_scores_are_floats_or_one_value_per_factor(score):
    z, h = noisy_mixture()
    each = score(z, h, per_factor=True)
    assert each.shape == (3,)
    assert type(score(z, h)) is float
    assert score(z, h) == pytest.approx(each.mean())


def test_standardised_columns_have_mean_0_and_mean_square_1_in_any_units():
    columns = np.random.default_rng(0).normal(size=(50, 1))
    for scale in (1e-320, 1e-200, 1.0, 1e200):
        result = standardise(columns * scale + 3 * scale)
        np.testing.assert_allclose([result.mean(), np.square(result).mean()], [0, 1], atol=1e-12)
    assert (standardise(np.full((7, 1), 0.1)) == 0).all()


def test_counts_mean_repeated_rows():
    rng = np.random.default_rng(1)
    columns, counts = rng.integers(0, 8, size=(30, 3)).astype(float), rng.integers(0, 4, size=30)
    repeated = np.repeat(columns, counts, axis=0)
    ranks = mid_ranks(dense_ranks(columns), counts.astype(float))
    np.testing.assert_allclose(np.repeat(ranks, counts, axis=0), rankdata(repeated, axis=0))
    squares = weighted_deviations(columns, counts.astype(float))[1]
    np.testing.assert_allclose(squares, repeated.var(axis=0) * counts.sum())


def test_the_squares_of_a_column_that_is_constant_where_it_counts_are_exactly_0():
    columns = np.array([[0.1], [0.1], [0.1], [7.0]])
    assert weighted_deviations(columns, np.array([1.0, 1.0, 1.0, 0.0]))[1] == 0


def test_import_is_cheap():
    code = "import sys, isolatent.evaluation; print({'sklearn', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
