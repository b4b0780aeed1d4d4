"""Aligned codes have the scores of linear_r2 and mcc."""

import numpy as np
import pytest

from isolatent.evaluation import align_codes, correlation_matrix, linear_r2, mcc

rng = np.random.default_rng(0)
Z = rng.normal(size=(500, 4))
NOISY = Z[:, [2, 0, 3, 1]] * [1, -2, 3, -4] + 0.3 * rng.normal(size=Z.shape)


def test_one_by_one_the_diagonal_is_the_mcc_and_signs_agree():
    factors, codes = align_codes(Z, NOISY, one_by_one=True)
    assert np.diag(correlation_matrix(factors, codes)).mean() == pytest.approx(mcc(Z, NOISY))
    assert ((factors * codes).sum(axis=0) > 0).all()


def test_linear_the_residuals_are_those_of_r2():
    mixed = NOISY @ rng.normal(size=(4, 6))
    factors, codes = align_codes(Z, mixed, one_by_one=False, random_state=3)
    r2 = 1 - ((factors - codes) ** 2).sum(0) / ((factors - factors.mean(0)) ** 2).sum(0)
    assert r2.mean() == pytest.approx(linear_r2(Z, mixed, random_state=3))


def test_a_factor_without_a_code_gets_zeros():
    _, codes = align_codes(Z, Z[:, 1], one_by_one=True)
    assert codes.shape == Z.shape
    assert (codes[:, [0, 2, 3]] == 0).all()
    assert (correlation_matrix(Z, codes)[:, 0] == 0).all()
