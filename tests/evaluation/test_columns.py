"""Laws of the checked columns: what is let in, and what is refused with which words."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from isolatent.evaluation import block_mcc, block_r2, linear_r2, mcc
from isolatent.evaluation.columns import as_columns, dense_ranks, mid_ranks, spread, standardise

SCORES = [
    linear_r2,
    mcc,
    lambda z, h: block_r2(z, h, [[0]]),
    lambda z, h: block_mcc(z, h, [[0]]),
]
GOOD = np.arange(20.0)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.arange(6, dtype=np.float32).reshape(3, 2), "float32"),
        (np.arange(6).reshape(3, 2), "int"),
        (np.arange(6).reshape(3, 2).tolist(), "list"),
        (torch.arange(6).reshape(3, 2), "int tensor"),
        (torch.arange(6.0, dtype=torch.bfloat16).reshape(3, 2), "bfloat16 tensor"),
        (torch.arange(6.0, requires_grad=True).reshape(3, 2), "tensor with a gradient"),
    ],
)
def test_every_kind_of_array_becomes_the_same_float64_columns(values, kind):
    columns = as_columns("z", values)
    assert columns.dtype == np.float64
    np.testing.assert_array_equal(columns, np.arange(6.0).reshape(3, 2))


def test_one_axis_is_one_column():
    assert as_columns("z", torch.arange(3)).shape == (3, 1)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("z", "h", "error", "message"),
    [
        (GOOD, GOOD[:19], ValueError, r"h must have as many rows as z \(20\), got 19"),
        (GOOD.reshape(5, 2, 2), GOOD, ValueError, r"z must have shape .* got shape \(5, 2, 2\)"),
        (GOOD, GOOD.reshape(20, 1, 1), ValueError, r"h must have shape .* got shape \(20, 1, 1\)"),
        (GOOD, np.float64(3), ValueError, r"h must have shape .* got shape \(\)"),
        (GOOD, np.empty((20, 0)), ValueError, r"h must have at least one column, got .*\(20, 0\)"),
        (np.empty((20, 0)), GOOD, ValueError, r"z must have at least one column, got .*\(20, 0\)"),
        (GOOD[:1], GOOD[:1], ValueError, r"z must have at least 2 rows, got 1"),
        (GOOD, np.empty(0), ValueError, r"h must have at least 2 rows, got 0"),
        (GOOD, np.where(GOOD > 6, np.inf, 0), ValueError, r"h must be finite, got inf in row 7"),
        (np.where(GOOD == 3, np.nan, 1), GOOD, ValueError, r"z must be finite, got nan in row 3"),
        (GOOD * 0 + 0.1, GOOD, ValueError, r"z must vary in every column, got constant column 0"),
        (GOOD + 0j, GOOD, TypeError, r"z must hold real numbers, got dtype complex128"),
        (GOOD, ["a"] * 20, TypeError, r"h must hold real numbers, got dtype <U1"),
    ],
)
def test_every_score_refuses_bad_arrays_by_name(score, z, h, error, message):
    with pytest.raises(error, match=message):
        score(z, h)


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
    squares = spread(columns, counts.astype(float))[1]
    np.testing.assert_allclose(squares, repeated.var(axis=0) * counts.sum())


def test_spread_of_a_column_constant_where_it_counts_is_exactly_0():
    columns = np.array([[0.1], [0.1], [0.1], [7.0]])
    assert spread(columns, np.array([1.0, 1.0, 1.0, 0.0]))[1] == 0


def test_import_is_cheap():
    code = "import sys, isolatent.evaluation; print({'sklearn', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
