"""Pairs in a pipeline: as one array, or routed as metadata; a scale of X alone is refused."""

import numpy as np
import pytest
import sklearn
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import isolatent as iso
from isolatent.baselines import AdaGVAE
from isolatent.checks import IsolatentWarning

SHORT = iso.Recipe(max_steps=3, batch_size=32, warmup=1)
UNITS, ORIGIN = np.array([0.01, 1.0, 40.0]), np.array([5.0, 0.0, -3.0])


def box(rows=1000):
    world = iso.World(iso.Box(3), iso.Uniform(), iso.Normal(0.1), iso.Linear(), seed=0)
    pairs = world.sample_pairs(rows)
    return [np.asarray(part, float) * UNITS + ORIGIN for part in pairs]


X, X_POS = box()
STACKED = np.stack([X, X_POS], axis=1)


def model(recipe=SHORT, **options):
    return iso.ContrastiveICA(3, space="box", recipe=recipe, random_state=0, **options)


def test_a_stack_is_fitted_as_the_two_arrays():
    expected = model().fit(X, X_POS)
    found = model().fit(STACKED)
    assert np.array_equal(found.transform(X), expected.transform(X))
    codes = found.transform(STACKED)
    assert codes.shape == (1000, 2, 3)
    assert np.array_equal(codes[:, 1], expected.transform(X_POS))
    assert found.n_features_in_ == 3
    assert found.score(STACKED) == expected.score(X, X_POS)
    again = model().fit(torch.tensor(STACKED))
    assert np.array_equal(again.transform(X), codes[:, 0])
    partial = [model().partial_fit(*data).transform(X) for data in ((X, X_POS), (STACKED,))]
    assert np.array_equal(*partial)


def test_a_pipeline_scales_both_sides_of_stacked_pairs():
    line = make_pipeline(iso.PairedTransformer(StandardScaler()), model())
    codes = line.fit(STACKED).transform(X)
    scaler = StandardScaler().fit(np.concatenate([X, X_POS]))
    by_hand = model().fit(scaler.transform(X), scaler.transform(X_POS))
    np.testing.assert_allclose(codes, by_hand.transform(scaler.transform(X)), atol=1e-3)
    assert np.array_equal(line.fit_transform(STACKED)[:, 0], codes)


def test_routed_positives_are_scaled_as_anchors_are():
    with sklearn.config_context(enable_metadata_routing=True):
        ica = model().set_fit_request(X_pos=True).set_score_request(X_pos=True)
        line = Pipeline([("scale", StandardScaler()), ("ica", ica)], transform_input=["X_pos"])
        codes = line.fit(X, X_pos=X_POS).transform(X)
    scaler = StandardScaler().fit(X)
    by_hand = model().fit(scaler.transform(X), scaler.transform(X_POS))
    assert np.array_equal(codes, by_hand.transform(scaler.transform(X)))


def test_routed_sessions_reach_the_fit():
    with sklearn.config_context(enable_metadata_routing=True):
        ica = iso.ContrastiveICA(2, recipe=SHORT, random_state=0)
        line = make_pipeline(StandardScaler(), ica.set_fit_request(groups=True))
        with pytest.raises(ValueError, match="lag must be shorter than some session"):
            line.fit(X, groups=np.arange(len(X)))


def test_a_scaler_that_sees_x_alone_is_refused():
    line = make_pipeline(StandardScaler(), model())
    with pytest.raises(ValueError, match=r"(?s)X alone is scaled.*PairedTransformer"):
        line.fit(X, X_POS)
    with pytest.raises(ValueError, match="X_pos alone is scaled"):
        model().fit(X, StandardScaler().fit_transform(X_POS))
    with pytest.raises(ValueError, match="X alone is scaled"):
        AdaGVAE(2, max_steps=2).fit(StandardScaler().fit_transform(X), X_POS)


@pytest.mark.filterwarnings("ignore:pairs were found to share only")  # after so few steps
def test_other_differences_are_warned_of():
    line = make_pipeline(FunctionTransformer(lambda x: x / 7), model())
    with pytest.warns(IsolatentWarning, match="different preprocessing: 3 of 3 columns"):
        line.fit(X, X_POS)


def test_a_paired_transformer_refuses_positives_beside_x():
    paired = iso.PairedTransformer(StandardScaler())
    with pytest.raises(ValueError, match="X_pos must be None for a PairedTransformer"):
        make_pipeline(paired, model()).fit(X, X_POS)
    with pytest.raises(ValueError, match=r"must have shape \(N, 2, m\)"):
        paired.fit(np.zeros((4, 3, 2)))


def test_a_paired_transformer_is_undone():
    paired = iso.PairedTransformer(StandardScaler()).fit(STACKED)
    scaled = paired.transform(STACKED)
    np.testing.assert_allclose(scaled.reshape(-1, 3).std(0), 1)
    np.testing.assert_allclose(paired.inverse_transform(scaled), STACKED)
    assert np.array_equal(paired.transform(X), scaled[:, 0])


def test_a_grid_search_takes_stacked_pairs():
    line = make_pipeline(iso.PairedTransformer(StandardScaler()), model())
    search = GridSearchCV(line, {"contrastiveica__n_components": [1, 2]}, cv=2, error_score="raise")
    assert search.fit(STACKED[:200]).best_score_ == search.best_score_


def test_rows_of_two_channels_are_left_to_a_module():
    """Without a pair in sight: a recording of two channels for an encoder of the user's own."""
    encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 2))
    recording = np.random.default_rng(0).normal(size=(100, 2, 3)).cumsum(0)
    found = iso.ContrastiveICA(2, encoder=encoder, recipe=SHORT, axes=None, relax=())
    assert found.fit(recording).transform(recording).shape == (100, 2)


def test_bfloat16_is_read_as_float32():
    x, x_pos = (torch.tensor(part, dtype=torch.bfloat16) for part in (X, X_POS))
    found = model().fit(x, x_pos)
    assert np.array_equal(found.transform(x), found.transform(x.float()))
