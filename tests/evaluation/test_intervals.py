"""Laws of the bootstrap: coverage, agreement with the score, and no row both fitted and scored."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from isolatent.evaluation import Interval, block_mcc, block_r2, bootstrap, linear_r2, mcc

BLOCKS = [[0, 1], [2]]
NOISE = 0.5
SHOWN = np.array([2, 0, 1])  # code j shows factor [2, 0, 1][j]
SCALES = np.array([-1.0, 2.0, 3.0])
R2 = 1 / (1 + NOISE**2)
SCORES = {
    "linear_r2": (linear_r2, {}, R2),
    "linear_r2 in sample": (linear_r2, {"held_out": False}, R2),
    "mcc": (mcc, {}, R2**0.5),
    "mcc spearman": (mcc, {"method": "spearman"}, 6 / np.pi * np.arcsin(R2**0.5 / 2)),
    "block_r2": (block_r2, {"blocks": BLOCKS}, R2),
    "block_mcc": (block_mcc, {"blocks": BLOCKS}, R2**0.5),
}
every_score = pytest.mark.parametrize(("score", "options", "truth"), SCORES.values(), ids=SCORES)


def noisy_codes(seed, rows):
    """Gaussian factors with noise on each: every score's population value is known."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 3))
    return z, (z + NOISE * rng.normal(size=z.shape))[:, SHOWN] * SCALES


def population_r2_of_this_fit(z, h, seed, groups):
    """R² on infinitely many new rows of the fits that see half of these rows, factor by factor."""
    fitted = np.random.default_rng(seed).permutation(len(z))[: len(z) // 2]
    scores = []
    for f, codes in enumerate(groups):
        fit = LinearRegression().fit(h[fitted][:, codes], z[fitted, f])
        recovered = np.zeros(3)  # the prediction is recovered @ (z + noise) + intercept
        recovered[SHOWN[codes]] = fit.coef_ * SCALES[codes]
        wrong = np.square(np.eye(3)[f] - recovered).sum() + NOISE**2 * np.square(recovered).sum()
        scores.append(1 - wrong - fit.intercept_**2)
    return np.mean(scores)


@every_score
def test_intervals_cover_the_population_value_as_often_as_they_say(score, options, truth):
    # 120 samples of 300 rows. A right 90 % interval is hit 108 ± 3.3 times; seeds are fixed, and
    # with others the bounds below (three standard errors) would be left once in 370 times.
    hits = 0
    for seed in range(120):
        z, h = noisy_codes(seed, 300)
        interval = bootstrap(
            score, z, h, confidence_level=0.9, n_resamples=60, random_state=seed, **options
        )
        if score is linear_r2 and not options:
            truth = population_r2_of_this_fit(z, h, seed, [[0, 1, 2]] * 3)
        elif score is block_r2:
            truth = population_r2_of_this_fit(z, h, seed, [[1, 2], [1, 2], [0]])
        hits += interval.low <= truth <= interval.high
    assert 98 <= hits <= 118


@every_score
@pytest.mark.parametrize("given", ["block_rows", "groups"])
def test_repeated_rows_are_no_further_evidence(score, options, truth, given):
    """An interval over blocks is as wide for rows that are repeated as for each of them once."""
    z, h = noisy_codes(0, 400)
    repeated = [np.repeat(part, 10, axis=0) for part in (z, h)]
    how = {"block_rows": 100} if given == "block_rows" else {"groups": np.repeat(range(400), 10)}
    once = bootstrap(score, z, h, n_resamples=400, **options)
    naive = bootstrap(score, *repeated, n_resamples=400, **options)
    found = bootstrap(score, *repeated, n_resamples=400, **how, **options)
    widths = [one.high - one.low for one in (once, naive, found)]
    assert found.value == naive.value
    assert widths[1] < 0.6 * widths[0]
    is_split = score in (linear_r2, block_r2) and options.get("held_out", True)
    scored = 2**0.5 if is_split else 1  # nearly all rows have a copy in the held-out half
    assert widths[2] * scored == pytest.approx(widths[0], rel=0.3)


def test_blocks_of_one_row_are_rows():
    z, h = noisy_codes(0, 200)
    assert bootstrap(mcc, z, h, block_rows=1) == bootstrap(mcc, z, h)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_rows": 0}, "block_rows must be"),
        ({"block_rows": 200}, "block_rows must be less than the number of rows, 200, got 200"),
        ({"groups": np.zeros(10)}, "groups must hold one id for each of the 200 rows"),
        ({"groups": np.zeros(200)}, "groups must hold two or more ids"),
        ({"groups": np.arange(200), "block_rows": 2}, "block_rows must be 1 with groups"),
    ],
)
def test_blocks_that_cannot_be_drawn(options, message):
    with pytest.raises(ValueError, match=message):
        bootstrap(mcc, *noisy_codes(0, 200), **options)


@every_score
def test_the_value_is_the_score_and_lies_inside(score, options, truth):
    z, h = noisy_codes(0, 500)
    split = {"random_state": 7} if score in (linear_r2, block_r2) else {}
    interval = bootstrap(score, z, h, random_state=7, **options)
    assert interval.value == score(z, h, **options, **split)
    assert interval.low < interval.value < interval.high
    assert interval.confidence_level == 0.95
    assert all(type(x) is float for x in (interval.value, interval.low, interval.high))


@every_score
def test_one_seed_gives_one_interval_and_another_a_similar_one(score, options, truth):
    z, h = noisy_codes(0, 2000)
    first, again = (bootstrap(score, z, h, random_state=1, **options) for _ in range(2))
    assert first == again
    other = bootstrap(score, z, h, random_state=2, **options)
    assert other != first
    assert other.high - other.low == pytest.approx(first.high - first.low, rel=0.4)


@every_score
def test_intervals_narrow_with_the_square_root_of_the_rows_and_widen_with_the_level(
    score, options, truth
):
    def width(rows, level):
        interval = bootstrap(
            score, *noisy_codes(0, rows), confidence_level=level, n_resamples=400, **options
        )
        return interval.high - interval.low

    assert width(400, 0.9) / width(6400, 0.9) == pytest.approx(4, rel=0.4)
    assert width(400, 0.9) / width(400, 0.5) == pytest.approx(1.645 / 0.674, rel=0.3)


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_with_nothing_to_choose_it_is_scoring_again_the_resampled_rows(method):
    z, h = (x[:, :1].round(1) for x in noisy_codes(0, 100))
    h = h - 2 * z
    interval = bootstrap(
        mcc, z, h, n_resamples=19, confidence_level=0.9, random_state=3, method=method
    )
    draws = np.random.default_rng([3, 1]).integers(100, size=(19, 100))
    again = [mcc(z[rows], h[rows], method=method) for rows in draws]
    # 19 resamples cut the line in 20 parts, so that 90 % lie between the first and the last.
    assert [interval.low, interval.high] == pytest.approx([min(again), max(again)], abs=1e-12)


@pytest.mark.parametrize(
    ("score", "options"), [(linear_r2, {}), (block_r2, {"blocks": [list(range(30))]})]
)
def test_no_row_is_both_fitted_and_scored(score, options):
    # Thirty codes of noise fit a third of 100 rows' variance: a leak would lift the interval.
    rng = np.random.default_rng(0)
    z, h = rng.normal(size=(200, 30)), rng.normal(size=(200, 30))
    assert bootstrap(score, z, h, **options).high < 0
    assert score(z, h, held_out=False, **options) > 0.1


def test_a_perfect_recovery_has_an_interval_of_no_width():
    z = np.random.default_rng(0).normal(size=(300, 3))
    for score, options, _ in SCORES.values():
        interval = bootstrap(score, z, z[:, ::-1], **options)
        assert [interval.low, interval.high] == pytest.approx([1, 1], abs=1e-12)


def test_dead_codes_have_an_interval_at_0():
    z = np.random.default_rng(0).normal(size=(300, 3))
    for score, options, _ in (SCORES[k] for k in ("mcc", "mcc spearman", "block_mcc")):
        assert bootstrap(score, z, np.zeros((300, 3)), **options) == Interval(0, 0, 0, 0.95)


def test_a_factor_constant_in_a_resample_is_left_out_of_it():
    z = np.random.default_rng(0).normal(size=(30, 2))
    z[:, 1] = np.arange(30) == 3  # missing in a third of the resamples
    z[:, 1] += np.arange(30) == 9
    interval = bootstrap(mcc, z, z)
    assert [interval.low, interval.high] == pytest.approx([1, 1])


def test_a_factor_constant_in_every_resample_is_rejected():
    rare, seed = np.arange(1000) == 0, 7
    draws = np.random.default_rng([seed, 1]).integers(1000, size=(2, 1000))
    assert draws.min() > 0  # neither resample holds the one row that differs
    with pytest.raises(ValueError, match="factors must vary in resamples"):
        bootstrap(mcc, rare, np.arange(1000), n_resamples=2, random_state=seed)


def test_a_code_constant_in_a_resample_counts_0_in_it():
    z = np.random.default_rng(0).normal(size=30)
    spike = (np.arange(30) == np.argmax(z)).astype(float)
    assert bootstrap(mcc, z, spike).low == 0.0


def test_tensors_and_arrays_have_the_same_interval():
    z, h = noisy_codes(0, 200)
    assert bootstrap(mcc, torch.tensor(z), torch.tensor(h)) == bootstrap(mcc, z, h)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.98712, 0.98513, 0.98921, 0.95), "0.987 [0.985, 0.989]"),
        (Interval(0.5, 0.2, 0.8, 0.95), "0.500 [0.200, 0.800]"),
        (Interval(0.99998, 0.99996, 0.99999, 0.95), "0.99998 [0.99996, 0.99999]"),
        (Interval(1.0, 1.0, 1.0, 0.95), "1.000 [1.000, 1.000]"),
        (Interval(1 - 1e-12, 1 - 2e-12, 1.0, 0.95), "1.000000 [1.000000, 1.000000]"),
    ],
)
def test_intervals_print_readably(interval, text):
    assert str(interval) == text


def test_intervals_are_frozen():
    with pytest.raises(AttributeError):
        Interval(1.0, 1.0, 1.0, 0.95).value = 2.0


@pytest.mark.parametrize(
    ("score", "options", "error", "message"),
    [
        (np.mean, {}, ValueError, "score must be one of linear_r2, mcc, block_r2, block_mcc"),
        ("mcc", {}, ValueError, "score must be one of .* got 'mcc'"),
        (
            mcc,
            {"confidence_level": 1.0},
            ValueError,
            "confidence_level must be .* > 0 and < 1, got 1.0",
        ),
        (mcc, {"confidence_level": 0.0}, ValueError, "confidence_level must be"),
        (mcc, {"n_resamples": 1}, ValueError, "n_resamples must be an integer >= 2, got 1"),
        (mcc, {"random_state": -1}, ValueError, "random_state must be an integer >= 0, got -1"),
        (mcc, {"per_factor": True}, ValueError, "per_factor must be left out"),
        (block_mcc, {"per_block": True}, ValueError, "per_block must be left out"),
        (mcc, {"method": "kendall"}, ValueError, "method must be one of"),
        (linear_r2, {"method": "pearson"}, TypeError, r"linear_r2\(\) got an unexpected keyword"),
        (block_mcc, {}, TypeError, r"block_mcc\(\) missing .* 'blocks'"),
    ],
)
def test_bootstrap_rejects_bad_arguments_by_name(score, options, error, message):
    z, h = noisy_codes(0, 50)
    with pytest.raises(error, match=message):
        bootstrap(score, z, h, **options)
