"""Recordings with missing rows, time stamps and windows, and several of them, given to fit."""

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.checks import IsolatentWarning

SHORT = iso.Recipe(max_steps=3, batch_size=16, warmup=1)
SESSION = np.repeat([0, 1], 60)
IGNORE = pytest.mark.filterwarnings("ignore::isolatent.checks.IsolatentWarning")
pytestmark = pytest.mark.filterwarnings("ignore:pairs were found to share only")


def walk(n_rows=120, seed=0):
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.normal(size=(n_rows, 3)), 0)


X = walk()


def with_missing(*rows):
    x = X.copy()
    x[list(rows), 1] = np.nan
    return x


def small(**options):
    options = {"recipe": SHORT, "relax": (), "axes": None, "random_state": 0} | options
    return iso.ContrastiveICA(2, **options)


def same(model, other):
    state, expected = model.encoder_.state_dict(), other.encoder_.state_dict()
    return all(torch.equal(state[name], expected[name]) for name in expected)


@pytest.mark.parametrize("window", [1, 5])
def test_rows_left_out_are_said_once_and_have_no_codes(window):
    x = with_missing(10, 50, 51)
    model = small(window=window)
    with pytest.warns(IsolatentWarning) as warned:
        model.fit(x, groups=SESSION)
    said = [str(one.message) for one in warned if "NaN" in str(one.message)]
    assert said == ["x: 3 of 120 rows hold NaN and are left out"]
    assert all(parameter.isfinite().all() for parameter in model.encoder_.parameters())
    codes = model.transform(x, groups=SESSION)
    assert np.flatnonzero(np.isnan(codes).any(1)).tolist() == [10, 50, 51]
    filled = model.transform(x, groups=SESSION, max_gap=1)
    assert np.flatnonzero(np.isnan(filled).any(1)).tolist() == [50, 51]


@IGNORE
def test_values_of_rows_left_out_do_not_matter():
    x, other = with_missing(10, 50), with_missing(10, 50)
    other[[10, 50], 0] = 1e6
    assert same(small().fit(x), small().fit(other))


@IGNORE
def test_axes_are_looked_for_where_no_run_of_rows_is_as_long_as_the_lag():
    x = with_missing(*range(2, 120, 3))
    model = small(axes="auto", lag=(3, 3)).fit(x)
    assert np.isfinite(model.transform(X)).all()


def test_models_of_pairs_still_refuse_nan():
    model = small().fit(X, X + 0.1)
    for refused in (lambda: small().fit(with_missing(3), X), lambda: model.transform(X * np.nan)):
        with pytest.raises(ValueError, match="Input X contains NaN"):
            refused()


def test_a_list_is_the_concatenation_with_groups():
    parts = [X[:60], X[60:]]
    model, other = small(window=3).fit(parts), small(window=3).fit(X, groups=SESSION)
    assert same(model, other)
    np.testing.assert_array_equal(model.transform(parts), other.transform(X, groups=SESSION))
    timed = small().fit(parts, times=[np.arange(60), np.arange(60)])
    assert same(timed, small().fit(X, groups=SESSION))


def test_a_gap_in_time_is_the_end_of_a_session():
    times = np.arange(120.0) + 5 * SESSION
    model = small(window=3).fit(X, times=times)
    assert same(model, small(window=3).fit(X, groups=SESSION))
    np.testing.assert_array_equal(
        model.transform(X, times=times), model.transform(X, groups=SESSION)
    )


def test_a_window_is_a_stack_of_rows():
    model = small(window=3).fit(X, groups=SESSION)
    assert (model.n_features_in_, model.encoder_.training) == (3, False)
    index = np.arange(120)[:, None] + [-1, 0, 1]
    index[[0, 60], 0], index[[59, 119], 2] = [0, 60], [59, 119]
    stacked = torch.from_numpy(X[index].reshape(120, 9)).float()
    with torch.no_grad():
        expected = model.encoder_(stacked).numpy()
    codes = model.transform(X, groups=SESSION)
    np.testing.assert_allclose(codes, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(model.transform(X) - codes).max(1).nonzero()[0].tolist() == [59, 60]


@IGNORE
@pytest.mark.parametrize("window", [1, 3])
def test_saved_models_keep_window_and_missing_rows(window, tmp_path):
    x = with_missing(7)
    model = small(window=window).fit(x, groups=SESSION)
    model.save(tmp_path)
    loaded = iso.ContrastiveICA.load(tmp_path)
    assert (loaded.window, loaded.n_features_in_) == (window, 3)
    np.testing.assert_array_equal(
        loaded.transform(x, groups=SESSION), model.transform(x, groups=SESSION)
    )
    assert loaded.score(X, groups=SESSION) == model.score(X, groups=SESSION)


def test_fit_transform_keeps_sessions():
    codes = small(window=3).fit_transform(X, groups=SESSION)
    model = small(window=3).fit(X, groups=SESSION)
    np.testing.assert_array_equal(codes, model.transform(X, groups=SESSION))


def test_a_window_shows_more_factors_than_columns():
    model = iso.ContrastiveICA(4, window=3, recipe=SHORT, relax=(), axes=None, random_state=0)
    assert model.fit(X).transform(X).shape == (120, 4)


WORLD = iso.World(iso.Box(3), iso.Uniform(), iso.Normal(0.1), iso.Identity(), seed=0)


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({}, lambda m: m.fit(X, X, times=SESSION), "times must be None when X_pos is given"),
        ({}, lambda m: m.fit(X, X, max_gap=2), "max_gap must be 0 when X_pos is given"),
        ({}, lambda m: m.fit(WORLD, max_gap=2), "max_gap must be 0 when X is a world"),
        ({"window": 3}, lambda m: m.fit(X, X), "window must be 1 when X_pos is given"),
        ({"window": 3}, lambda m: m.fit(WORLD), "window must be 1 when X is a world"),
        ({"window": 2}, lambda m: m.fit(X), "window must be an odd number"),
        ({}, lambda m: m.fit([X, X], [X, X]), "X_pos must be None when X is a list"),
        ({}, lambda m: m.fit([X, X], groups=[0, 1]), "groups must be None when X is a list"),
        (
            {},
            lambda m: m.fit([X, X[:, :2]], separate=False),
            "separate=None or True gives each an encoder",
        ),
        ({}, lambda m: m.fit(X * np.nan), "none is left: 120 of 120 rows hold NaN"),
        ({}, lambda m: m.fit(X, times=-np.arange(120)), "times must increase within each session"),
        (
            {},
            lambda m: m.fit(X, X + 1).transform(X, groups=SESSION),
            "groups must be None when X_pos",
        ),
    ],
)
def test_wrong_arguments(options, call, message):
    with pytest.raises(ValueError, match=message):
        call(small(**options))


def oscillating(n_rows=1500):
    """Factors with dynamics of their own, and what three sensors of other widths see of them."""
    rng = np.random.default_rng(0)
    z = np.zeros((n_rows, 2))
    for t in range(1, n_rows):
        z[t] = [0.95, 0.7] * z[t - 1] + rng.laplace(size=2)
    z /= z.std(0)
    return z, [np.tanh(z @ rng.normal(size=(2, m)) / 2) + 0.3 * z @ rng.normal(size=(2, m))
               for m in (5, 3, 7)]  # fmt: skip


Z, SENSORS = oscillating()
TIMES = [np.arange(len(Z)) * 0.1] * 3
SHARED = iso.Recipe(max_steps=250, batch_size=192, warmup=20)


@pytest.mark.parametrize("common", ["times", "labels"])
def test_common_moments_give_recordings_one_space_of_codes(common):
    moments = "times" if common == "times" else [np.arange(len(Z))] * 3
    model = small(recipe=SHARED).fit(SENSORS, times=TIMES, common=moments)
    codes = [model.transform(x, recording=k) for k, x in enumerate(SENSORS)]
    assert iso.linear_r2(np.concatenate([Z] * 3), np.concatenate(codes)) > 0.9
    np.testing.assert_array_equal(np.concatenate(codes), model.transform(SENSORS))
    assert "one space of codes" in str(model.guarantee_)
    assert "rows of recordings with the same" in str(model.guarantee_)
    assert model.n_features_per_recording_ == (5, 3, 7)


def test_recordings_without_common_moments_are_not_said_to_share_codes():
    with pytest.warns(IsolatentWarning, match="codes of different recordings must not be compared"):
        model = small(axes="auto").fit(SENSORS)
    assert "no pairs across all recordings" in model.guarantee_.recordings
    assert model.guarantee_.axes == "not looked for: recordings do not share their codes"


@IGNORE
@pytest.mark.parametrize("options", [{}, {"window": 3}, {"encoder": "paper"}, {"space": "box"}])
def test_saved_encoders_of_recordings_are_those_that_were_fitted(options, tmp_path):
    x = [one[:200].copy() for one in SENSORS]
    x[1][17] = np.nan
    model = small(**options).fit(x, common=[np.arange(200)] * 3)
    model.save(tmp_path)
    loaded = iso.ContrastiveICA.load(tmp_path)
    for k, one in enumerate(x):
        codes = model.transform(one, recording=k)
        np.testing.assert_array_equal(loaded.transform(one, recording=k), codes)
        assert np.isnan(codes).any(1).nonzero()[0].tolist() == ([17] if k == 1 else [])
    assert str(loaded.guarantee_) == str(model.guarantee_)
    assert loaded.score(x) == model.score(x)


def test_recordings_with_the_same_columns_get_encoders_of_their_own_if_asked():
    parts = [X[:60], X[60:]]
    with pytest.warns(IsolatentWarning, match="must not be compared"):
        model = small().fit(parts, separate=True)
    assert len(model.encoder_[0].encoders) == 2
    assert len(list(small().fit(parts, separate=False).encoder_)) == 2


@IGNORE
def test_other_moments_are_another_run(tmp_path):
    x = [one[:200] for one in SENSORS[:2]]
    small().fit(x, common=[np.arange(200)] * 2, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="resume must hold a run with the same data"):
        small().fit(x, common=[np.arange(200), np.arange(200)[::-1]], resume=tmp_path)
    small().fit(x, common=[np.arange(200)] * 2, resume=tmp_path)


@IGNORE
def test_one_encoder_again_after_several():
    model = small().fit([one[:99] for one in SENSORS])
    model.fit(X)
    assert same(model, small().fit(X))
    assert model.transform(X).shape == (120, 2)


PARTS = [one[:90] for one in SENSORS]
LABELS = [np.arange(90)] * 3


@pytest.mark.filterwarnings("ignore:the encoder overfitted")
@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({}, lambda m: m.fit(X, common="times"), "common must be None unless X is a list"),
        ({}, lambda m: m.fit(X, separate=True), "separate must be False unless X is a list"),
        ({}, lambda m: m.fit([X], separate=True), "separate must be False for fewer than two"),
        (
            {},
            lambda m: m.fit(PARTS, common=LABELS, separate=False),
            "separate must be True or None with common",
        ),
        ({}, lambda m: m.fit(PARTS, common="times"), "times must be given with common='times'"),
        ({}, lambda m: m.fit(PARTS, common="time"), "common must be 'times', a list of labels"),
        ({}, lambda m: m.fit(PARTS, common=LABELS[:2]), "common must be 'times' or a list of 3"),
        (
            {},
            lambda m: m.fit(PARTS, common=[LABELS[0], LABELS[0], LABELS[0][:5]]),
            r"recording 2 has 90 rows and labels of shape \(5,\)",
        ),
        (
            {},
            lambda m: m.fit(PARTS, common=[LABELS[0], LABELS[0], LABELS[0] + 500]),
            "no pair of recording 2 has a positive at a moment that another",
        ),
        ({}, lambda m: m.fit(PARTS, times=LABELS[:2]), "times must be a list of 3 arrays"),
        ({}, lambda m: m.fit(PARTS, groups=LABELS), "groups must be None when X is a list"),
        ({"encoder": "conv"}, lambda m: m.fit(PARTS), "encoder must be 'mlp' or 'paper' for"),
        ({"devices": 2}, lambda m: m.fit(PARTS), "devices must be 1 for recordings"),
        ({"counts": True}, lambda m: m.fit(PARTS), "X of recording 0 must not be negative"),
        (
            {"lag": (95, 95)},
            lambda m: m.fit(PARTS),
            "recording 0: lag must be shorter than some session",
        ),
        (
            {"recipe": iso.Recipe(max_steps=3, batch_size=5)},
            lambda m: m.fit(PARTS),
            "recipe must have a batch_size of at least 6 for 3 recordings",
        ),
        (
            {},
            lambda m: m.fit([PARTS[0], np.ones((90, 4))]),
            r"\[0, 1, 2, 3\] of recording 1 are constant",
        ),
        ({}, lambda m: m.partial_fit(PARTS), "the same columns for partial_fit"),
        (
            {},
            lambda m: m.fit(X).transform(X, recording=1),
            "recording must be None for a model with one encoder",
        ),
    ],
)
def test_wrong_arguments_of_separate_recordings(options, call, message):
    with pytest.raises(ValueError, match=message):
        call(small(**options))


@IGNORE
def test_wrong_recordings_to_encode():
    model = small().fit(PARTS)
    for call, message in (
        (lambda: model.transform(PARTS[0]), "recording must be a number from 0 to 2, or X a list"),
        (lambda: model.transform(PARTS[:2]), "recording must be a number from 0 to 2, or X a list"),
        (lambda: model.transform(PARTS[0], recording=3), "recording must be from 0 to 2, got 3"),
        (lambda: model.transform(PARTS[0], recording=1), "recording 1 must have 3 columns, got 5"),
        (lambda: model.score(PARTS[:2]), "X must be recordings for 3 encoders"),
        (lambda: model.score(PARTS[0]), "X must be a list of 3 recordings"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="recording must be an integer >= 0, got 'a'"):
        model.transform(PARTS[0], recording="a")
