"""ContrastiveICA follows the contract of scikit-learn, with positives in place of targets."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import isolatent as iso

RECIPE = iso.Recipe(max_steps=150, batch_size=64, warmup=10)
SHORT = iso.Recipe(max_steps=3, batch_size=8, warmup=1)


class Unpaired(iso.ContrastiveICA):
    """For scikit-learn's checks, which pass targets y where ContrastiveICA has positives."""

    def fit(self, X, y=None):
        return super().fit(X)

    def partial_fit(self, X, y=None):
        return super().partial_fit(X)

    def score(self, X, y=None):
        return super().score(X)


UNPAIRED = Unpaired(2, space="euclidean", recipe=SHORT, random_state=0)
CHECKS = list(estimator_checks_generator(UNPAIRED, mark="skip"))


@pytest.mark.filterwarnings("ignore:pairs were found to share only")  # the checks' data are noise
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(
    ("estimator", "check"), CHECKS, ids=[getattr(c, "func", c).__name__ for _, c in CHECKS]
)
def test_contract(estimator, check):
    check(estimator)


def circle(rows=600, seed=0, width=0.2):
    """Return points on a circle, and pairs of observations with columns of different scales."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, rows)
    near = angle + width * rng.normal(size=rows)
    mixing = np.random.default_rng(9).normal(size=(2, 4)) * [1, 10, 100, 1]
    z, z_pos = (np.stack([np.cos(a), np.sin(a)], 1) for a in (angle, near))
    return z, z @ mixing, z_pos @ mixing


Z, X, X_POS = circle()


@pytest.fixture(scope="module")
def model():
    return iso.ContrastiveICA(2, space="sphere", recipe=RECIPE, random_state=0).fit(X, X_POS)


def test_a_pipeline_accepts_a_recording():
    rng = np.random.default_rng(0)
    angle = np.cumsum(0.3 * rng.normal(size=1500))
    z = np.stack([np.cos(angle), np.sin(angle)], 1)
    recording = z @ rng.normal(size=(2, 3)) * [1, 1e3, 1e-3] + [0, 50, 0]
    line = make_pipeline(
        StandardScaler(),
        iso.ContrastiveICA(2, space="sphere", recipe=RECIPE, random_state=0, lag=2),
    )
    codes = line.fit(recording).transform(recording)
    assert codes.shape == (1500, 2)
    assert iso.linear_r2(z, codes) > 0.95
    assert line.get_feature_names_out().tolist() == ["contrastiveica0", "contrastiveica1"]
    assert np.array_equal(line.fit_transform(recording), codes)


def test_a_pipeline_accepts_sessions():
    """Where each row is its own session there are no pairs."""
    line = Pipeline([("scale", StandardScaler()), ("ica", iso.ContrastiveICA(recipe=SHORT))])
    with pytest.raises(ValueError, match="lag must be shorter than some session"):
        line.fit(X, ica__groups=np.arange(len(X)))


def test_a_clone_has_the_same_parameters_and_is_not_fitted(model):
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "encoder_")
    assert np.array_equal(twin.fit(X, X_POS).transform(X), model.transform(X))
    own = iso.ContrastiveICA(
        2, space="sphere", encoder=torch.nn.Linear(4, 2), loss=iso.InfoNCE(iso.Dot())
    )
    assert clone(own).encoder is not own.encoder


def test_a_model_can_be_pickled(model):
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.transform(X), model.transform(X))


def test_a_pickled_model_of_partial_fit_continues_with_the_same_bits():
    begun = iso.ContrastiveICA(2, space="sphere", recipe=SHORT, random_state=0).partial_fit(
        X, X_POS
    )
    again = pickle.loads(pickle.dumps(begun))
    assert np.array_equal(
        again.partial_fit(X, X_POS).transform(X), begun.partial_fit(X, X_POS).transform(X)
    )


def test_a_grid_search_selects_the_right_space():
    search = GridSearchCV(
        iso.ContrastiveICA(
            2,
            space="sphere",
            recipe=iso.Recipe(max_steps=100, batch_size=64, warmup=10),
            random_state=0,
        ),
        [
            {"space": ["sphere"], "n_components": [2, 3]},
            {"space": ["box"], "conditional": ["normal"], "n_components": [1]},
        ],
        cv=2,
        error_score="raise",
    ).fit(X, X_POS)
    assert search.best_params_["space"] == "sphere"
    found = search.cv_results_
    scores = dict(zip(found["param_n_components"], found["mean_test_score"], strict=True))
    assert scores[1] < scores[2] - 0.3  # a circle cannot be mapped to a line
    assert search.best_estimator_.transform(X).shape[1] == search.best_params_["n_components"]


def test_cross_validation_scores_the_information_of_pairs():
    estimator = iso.ContrastiveICA(2, space="sphere", recipe=RECIPE, random_state=0)
    scores = cross_val_score(estimator, X, X_POS, cv=2)
    # A circle and a normal step of width 0.2 share log(2π / 0.2) - ½ log(2πe) = 2.03 nats.
    assert ((scores > 1.6) & (scores < 2.2)).all()


def test_right_pairs_score_higher_than_wrong_ones(model):
    right = model.score(X, X_POS)
    wrong = model.score(X, np.roll(X_POS, 1, 0))
    assert right > 1.5
    assert wrong < 0
    assert right <= math.log(512)


@pytest.mark.parametrize(
    "rows",
    [
        2,
        100,
        512,
        700,
        2000,
        5000,
    ],
)
def test_a_score_is_at_most_the_logarithm_of_512(rows):
    """Even where pairs are equal, on a fine grid, and the scale is very large."""
    model = iso.ContrastiveICA(2, space="sphere", recipe=SHORT, random_state=0).fit(X, X_POS)
    model.encoder_ = torch.nn.Linear(4, 2).requires_grad_(True)
    with torch.no_grad():
        model.encoder_.weight.zero_()
        model.encoder_.weight[:, :2] = torch.eye(2)
        model.encoder_.bias.zero_()
        model.loss_.similarity.log_scale.fill_(math.log(1e7))
    angle = 2 * np.pi * np.arange(rows) / rows
    x = np.stack([np.cos(angle), np.sin(angle), 0 * angle, 0 * angle], 1).astype(np.float32)
    score = model.score(x, x)
    assert score <= math.log(min(rows, 512)) + 1e-4
    assert score > 0.75 * math.log(min(rows, 512))


def test_data_frames_are_accepted_and_returned():
    frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(len(X)) + 5)
    estimator = iso.ContrastiveICA(2, space="sphere", recipe=SHORT, random_state=0).set_output(
        transform="pandas"
    )
    codes = estimator.fit(frame, pd.DataFrame(X_POS, columns=list("abcd"))).transform(frame)
    assert estimator.feature_names_in_.tolist() == list("abcd")
    assert list(codes.columns) == ["contrastiveica0", "contrastiveica1"]
    assert codes.index.equals(frame.index)
    plain = iso.ContrastiveICA(2, space="sphere", recipe=SHORT, random_state=0).fit(X, X_POS)
    assert np.array_equal(codes.to_numpy(), plain.transform(X))
    with pytest.raises(ValueError, match="feature names"):
        estimator.transform(frame.rename(columns={"a": "z"}))
    estimator.fit(frame)  # a recording
    assert np.isfinite(estimator.score(frame))


def test_data_frames_are_returned_for_arrays():
    estimator = iso.ContrastiveICA(2, space="sphere", recipe=SHORT, random_state=0).set_output(
        transform="pandas"
    )
    codes = estimator.fit(X, X_POS).transform(X)
    assert list(codes.columns) == ["contrastiveica0", "contrastiveica1"]
    assert codes.shape == (len(X), 2)


def test_partial_fits_continue_one_model():
    estimator = iso.ContrastiveICA(
        2, space="sphere", recipe=iso.Recipe(batch_size=50, warmup=5), random_state=0
    )
    r2 = []
    for k in range(12):
        z, x, x_pos = circle(500, seed=k)
        estimator.partial_fit(x, x_pos)
        assert len(estimator.history_) == 10 * (k + 1)
        r2.append(iso.linear_r2(z, estimator.transform(x)))
    assert r2[-1] > 0.9
    assert [step.number for step in estimator.history_] == list(range(1, 121))
    assert estimator.guarantee_.withdrawn == "orthogonal map"
    with pytest.raises(ValueError, match="X has 3 features, but ContrastiveICA is expecting 4"):
        estimator.partial_fit(X[:, :3], X_POS[:, :3])


def test_a_partial_fit_claims_nothing_since_it_checks_nothing():
    estimator = iso.ContrastiveICA(2, space="sphere", recipe=SHORT, random_state=0)
    card = estimator.partial_fit(X, X_POS[::-1].copy()).guarantee_
    assert (card.equivalence, card.withdrawn) == (None, "orthogonal map")
    assert "not checked" in str(card)


def test_fit_starts_a_new_model():
    estimator = iso.ContrastiveICA(2, space="sphere", recipe=SHORT, random_state=0)
    estimator.partial_fit(X, X_POS)
    estimator.fit(X[:, :3], X_POS[:, :3])
    estimator.partial_fit(X[:, :3], X_POS[:, :3])
    assert estimator.n_features_in_ == 3
    assert estimator.transform(X[:, :3]).shape == (len(X), 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transform_of_a_memory_map(tmp_path, model, dtype):
    """In several chunks, with the same bits as of an array."""
    rows = np.random.default_rng(0).normal(size=(20_000, 4)).astype(dtype)
    np.save(tmp_path / "x.npy", rows)
    expected = model.transform(rows)
    assert expected.dtype == dtype
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # see the next test
        codes = model.transform(mapped)
    assert np.array_equal(codes, expected)
    assert codes.dtype == dtype
    with pytest.raises(ValueError, match=r"X must have shape \(N, 4\), got \(20000, 3\)"):
        model.transform(mapped[:, :3])


def test_transform_of_a_memory_map_does_not_warn(tmp_path, model):
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.transform(mapped)
    finally:
        torch.set_warn_always(False)
    assert not [str(w.message) for w in caught]


@pytest.mark.parametrize("kind", ["array", "map"])
def test_arrays_tensors_and_memory_maps_give_the_same_model(tmp_path, kind):
    x, x_pos = X.astype(np.float32), X_POS.astype(np.float32)
    expected = (
        iso.ContrastiveICA(2, space="sphere", recipe=SHORT, random_state=0)
        .fit(x, x_pos)
        .transform(x)
    )
    if kind == "map":
        for name, rows in (("x", x), ("y", x_pos)):
            np.save(tmp_path / f"{name}.npy", rows)
        x, x_pos = (np.load(tmp_path / f"{name}.npy", mmap_mode="r+") for name in "xy")
    else:
        x, x_pos = torch.from_numpy(x), torch.from_numpy(x_pos)
    ours = (
        iso.ContrastiveICA(2, space="sphere", recipe=SHORT, random_state=0)
        .fit(x, x_pos)
        .transform(x)
    )
    assert np.array_equal(ours, expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(np.float64, np.float64), (np.float32, np.float32), (np.int32, np.float64)],
)
def test_codes_have_the_precision_of_the_data(model, given, expected):
    assert model.transform(X.astype(given)).dtype == expected
    assert model.transform(torch.from_numpy(X.astype(given))).dtype == expected


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e9])
def test_small_signals_on_large_offsets_are_recovered(offset):
    """float32 has seven digits; these need up to twelve."""
    estimator = iso.ContrastiveICA(2, space="sphere", recipe=RECIPE, random_state=0)
    size = 1.0 if abs(offset) == 1e9 else 1e-2
    codes = estimator.fit(size * X + offset, size * X_POS + offset).transform(size * X + offset)
    assert iso.linear_r2(Z, codes) > 0.97


def test_a_recording_too_short_to_hold_rows_out_is_used_whole():
    """150 rows at a lag of 20: a tenth of them holds no pair."""
    estimator = iso.ContrastiveICA(2, space="sphere", recipe=SHORT, lag=(20, 20), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X[:150])
    assert estimator.transform(X).shape == (len(X), 2)
