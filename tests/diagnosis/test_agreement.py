"""Agreement is invariant to what the guarantee leaves open, and to nothing else."""

import numpy as np
import pytest

from isolatent.diagnosis.agreement import agreement


@pytest.fixture
def z():
    return np.random.default_rng(0).uniform(size=(2000, 3))


def test_it_ignores_affine_maps(z):
    assert agreement(z, z @ np.random.default_rng(1).normal(size=(3, 3)) + 2) > 1 - 1e-9


def test_one_to_one_agreement_ignores_order_sign_and_scale_alone(z):
    assert agreement(z, z[:, [2, 0, 1]] * [-1, 2, 3], "mcc") > 1 - 1e-9
    assert (
        agreement(z, z @ np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0], "mcc")
        < 0.95
    )


@pytest.mark.parametrize("swap", [False, True])
def test_codes_that_leave_a_factor_out_do_not_agree(z, swap):
    less = z * [1, 1, 0] + [0, 0, 1]
    assert agreement(*((less, z) if swap else (z, less))) < 0.7


def test_unrelated_codes_do_not_agree(z):
    assert agreement(z, np.random.default_rng(1).uniform(size=z.shape)) < 0.02
    assert agreement(z, np.zeros_like(z)) == 0
