"""The vectorisable functions are those of NumPy to a few ulp."""

import numpy as np
import pytest
from numba import njit, vectorize

from isolatent.contrast.kernels import arithmetic
from isolatent.contrast.kernels.forms import form_of

EPS = np.finfo(np.float32).eps


def test_exp():
    function = vectorize("float32(float32)")(njit(lambda x: arithmetic.exp(x)).py_func)
    x = np.linspace(-63.9, 0, 100_001, dtype=np.float32)
    np.testing.assert_allclose(function(x), np.exp(x.astype(float)), rtol=2 * EPS)
    assert function(np.float32([-64.1, -1e30, -np.inf, 0.0])).tolist() == [0, 0, 0, 1]


def test_log1p():
    function = vectorize("float32(float32)")(lambda y: arithmetic.log1p(y))
    y = np.concatenate([np.linspace(0, 1, 50_001), np.logspace(-27, 0, 5001)]).astype(np.float32)
    np.testing.assert_allclose(function(y), np.log1p(y.astype(float)), rtol=3 * EPS)


@pytest.mark.parametrize("q", [0.01, 0.7, 1.3, 6.3])
def test_power(q):
    function = vectorize("float32(float32, float32, float32)")(
        lambda x, q, coarse: arithmetic.power(x, q, coarse)
    )
    form = form_of(q + 1, np.dtype(np.float32))
    x = np.logspace(-5, 5, 50_001).astype(np.float32)
    expected = x.astype(float) ** float(form.q)
    np.testing.assert_allclose(function(x, form.q, form.coarse), expected, rtol=4 * EPS)
    assert function(np.float32(0), form.q, form.coarse) == 0
