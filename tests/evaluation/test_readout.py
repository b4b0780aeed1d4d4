"""Linear readouts: invariant to linear maps, honest about chance, scored on other observations."""

import numpy as np
import pytest

from isolatent.evaluation import readout_accuracy, readout_r2


@pytest.fixture
def codes():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2000, 4)), rng.normal(size=(1000, 4)), rng


def test_what_is_linear_is_read_out_and_the_rest_is_not(codes):
    h, test, rng = codes
    weights = rng.normal(size=(4, 2))

    def numbers(x):
        return np.column_stack([x @ weights, np.abs(x[:, 0]), rng.normal(size=len(x))])

    r2 = readout_r2(h, numbers(h), test, numbers(test))
    np.testing.assert_allclose(r2[:2], 1.0, atol=1e-4)
    np.testing.assert_allclose(r2[2:], 0.0, atol=0.02)


def test_noise_bounds_the_r2(codes):
    h, test, rng = codes
    noisy = [x[:, :1] + rng.normal(size=(len(x), 1)) for x in (h, test)]
    assert float(readout_r2(h, noisy[0], test, noisy[1])[0]) == pytest.approx(0.5, abs=0.06)


def test_labels_are_read_out_if_they_are_linear(codes):
    h, test, rng = codes

    def classes(x):
        return np.argmax(x[:, :3], axis=1)

    assert readout_accuracy(h, classes(h), test, classes(test)) > 0.95
    chance = readout_accuracy(h, rng.integers(0, 2, 2000), test, rng.integers(0, 2, 1000))
    assert chance == pytest.approx(0.5, abs=0.06)


def test_readouts_do_not_depend_on_scales_and_constants(codes):
    h, test, _ = codes
    y, y_test = (x[:, :1] + 0.5 * x[:, 1:2] ** 2 for x in (h, test))
    labels, expected = (y[:, 0] > 0.3, y_test[:, 0] > 0.3)
    scale = np.array([1e3, 1e-3, 1.0, 7.0])
    moved, moved_test = (np.column_stack([5 + scale * x, np.ones(len(x))]) for x in (h, test))
    np.testing.assert_allclose(
        readout_r2(h, y, test, y_test), readout_r2(moved, y, moved_test, y_test), atol=1e-8
    )
    assert readout_accuracy(h, labels, test, expected) == pytest.approx(
        readout_accuracy(moved, labels, moved_test, expected), abs=2e-3
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(3), np.zeros((3, 1)), np.zeros((3, 1)), np.zeros((3, 1))), "h must be finite"),
        ((np.zeros((3, 2)), np.zeros((3, 1)), np.zeros((3, 1)), np.zeros((3, 1))), "as many col"),
        ((np.zeros((3, 2)), np.zeros((2, 1)), np.zeros((3, 2)), np.zeros((3, 1))), "y must have"),
        ((np.zeros((3, 2)), np.ones((3, 1)), np.zeros((3, 2)), np.ones((3, 1))), "y_test must var"),
    ],
)
def test_wrong_arrays_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        readout_r2(*arguments)


def test_one_label_cannot_be_read_out():
    with pytest.raises(ValueError, match="y must hold at least two labels"):
        readout_accuracy(np.zeros((3, 2)), np.zeros(3), np.zeros((3, 2)), np.zeros(3))
