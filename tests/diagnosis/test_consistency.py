"""Consistency of runs: up to the guarantee, with its control."""

import json

import numpy as np
import pytest

import isolatent as iso
from isolatent.theory import derive_guarantee


@pytest.fixture
def z():
    return np.random.default_rng(0).uniform(size=(1000, 3))


def noisy(z, seed, std=0.05):
    return z + std * np.random.default_rng(seed).normal(size=z.shape)


def test_the_interval_holds_the_agreement_of_noisy_runs(z):
    found = iso.consistency([noisy(z, 1), noisy(z, 2) @ np.diag([1, 2, 3]), noisy(z, 3)])
    assert len(found.pairs) == 3
    assert found.low < found.value < found.high
    share = 1 / (1 + 0.05**2 * 12)  # of the variance of a run that is not noise
    assert found.value == pytest.approx(share**2, abs=0.01)


def test_shuffled_runs_are_at_their_control(z):
    shuffled = z[np.random.default_rng(5).permutation(len(z))]
    for guarantee in (None, derive_guarantee(iso.Beliefs("box", conditional="laplace"))):
        found = iso.consistency([z, shuffled], guarantee)
        assert found.value < found.control + 0.03
        assert found.low < found.control < 0.1


def test_the_guarantee_decides_how_codes_are_compared(z):
    turned = z @ np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    aligned = derive_guarantee(iso.Beliefs("box", conditional="laplace"))
    assert iso.consistency([z, turned]).value > 0.999
    assert iso.consistency([z, turned], aligned).value < 0.95


def test_the_result_is_plain_json_and_repeats(z):
    records = [iso.consistency([z, noisy(z, 1)]).to_dict() for _ in range(2)]
    assert json.loads(json.dumps(records[0])) == records[1]


def test_random_walks_agree_no_more_than_by_chance():
    beyond = 0
    for seed in range(10):
        steps = np.random.default_rng(seed).normal(size=(2, 2000, 3))
        found = iso.consistency([*steps.cumsum(axis=1)])
        assert found.control > 0.1  # where single rows are shuffled there is next to none
        beyond += found.low > found.control
    assert beyond <= 1


def test_an_interval_is_wider_for_slow_codes(z):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 1000, 1))
    slow = np.array([np.convolve(one[:, 0], np.ones(50), "same") for one in noise])[..., None]
    widths = []
    for rest in (noise, slow / slow.std() * noise.std()):
        found = iso.consistency([z[:, :1] * 12**0.5, z[:, :1] * 12**0.5 + rest[0]])
        widths.append(found.high - found.low)
    assert widths[1] > 1.5 * widths[0]


@pytest.mark.parametrize(
    "guarantee", [None, derive_guarantee(iso.Beliefs("box", conditional="laplace"))]
)
def test_constant_codes_are_left_out(z, guarantee):
    constant = np.column_stack([z, np.ones(len(z))])
    assert iso.consistency([constant, z], guarantee).value == pytest.approx(1.0)
    nothing = iso.consistency([np.ones((1000, 2)), z], guarantee)
    assert (nothing.value, nothing.low, nothing.control) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("runs", "options", "error", "message"),
    [
        ([np.zeros((5, 2))], {}, ValueError, "two or more"),
        (
            {"a": np.zeros((50, 2)), "b": np.zeros((50, 2))},
            {},
            TypeError,
            "runs must be .*got dict",
        ),
        ([np.full((50, 2), np.nan)] * 2, {}, ValueError, "at least 10 rows .*got 0 of 50"),
        ([np.zeros((0, 2))] * 2, {}, ValueError, "at least 10 rows .*got 0 of 0"),
        ([np.zeros((1, 2))] * 2, {}, ValueError, "at least 10 rows .*got 1 of 1"),
        ([np.zeros((50, 2)), np.full((50, 2), np.inf)], {}, ValueError, "got inf in run 1"),
        ([np.zeros((5, 2)), np.zeros((6, 2))], {}, ValueError, "same rows"),
        ([np.zeros((5, 2)), iso.ContrastiveICA(2)], {}, TypeError, "all models or all codes"),
        ([iso.ContrastiveICA(2), iso.ContrastiveICA(2)], {}, ValueError, "x must be given"),
        ([np.zeros((5, 2))] * 2, {"x": np.zeros((5, 2))}, ValueError, "x must be None"),
        ([np.zeros((5, 2))] * 2, {"guarantee": "affine"}, TypeError, "guarantee"),
    ],
)
def test_bad_input(runs, options, error, message):
    with pytest.raises(error, match=message):
        iso.consistency(runs, **options)
