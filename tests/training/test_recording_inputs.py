"""Trials of equal length, and data frames with columns of session ids and of times."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
import xarray as xr

import isolatent as iso
from isolatent.figure_data import encode_rows
from isolatent.report import explore, page_of_fit

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3)).cumsum(axis=0)
TRIALS = X.reshape(12, 20, 3)
DAY = np.repeat(["mon", "tue"], 120)
TIME = np.tile(np.arange(120) * 0.5, 2)
RECIPE = iso.Recipe(max_steps=5, batch_size=32)


def estimator(**options):
    return iso.ContrastiveICA(2, space="euclidean", recipe=RECIPE, random_state=0, **options)


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_trials_are_the_list_of_their_recordings(window, kind):
    whole = estimator(window=window).fit(kind(TRIALS))
    listed = estimator(window=window).fit([*TRIALS], separate=False)
    expected = listed.transform([*TRIALS])
    np.testing.assert_array_equal(whole.transform(kind(TRIALS)), expected)
    assert expected.shape == (240, 2)


def test_trials_may_have_times():
    times = np.arange(20) * 0.1
    one = estimator().fit(TRIALS, times=times).transform(TRIALS)
    each = estimator().fit(TRIALS, times=np.tile(times, (12, 1))).transform(TRIALS)
    np.testing.assert_array_equal(one, each)
    with pytest.raises(ValueError, match=r"times must have shape \(20,\) or \(12, 20\) for trials"):
        estimator().fit(TRIALS, times=np.arange(240))
    with pytest.raises(ValueError, match="groups must be None when X has shape"):
        estimator().fit(TRIALS, groups=np.arange(12))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_columns_of_a_frame_may_be_sessions_and_times(frame):
    table = frame({"u": X[:, 0], "day": DAY, "v": X[:, 1], "t": TIME, "w": X[:, 2]})
    model = estimator(window=3).fit(table, groups="day", times="t")
    assert [*model.feature_names_in_] == ["u", "v", "w"]
    codes = model.transform(table, groups="day", times="t")
    plain = estimator(window=3).fit(X, groups=DAY, times=TIME)
    np.testing.assert_array_equal(codes, plain.transform(X, groups=DAY, times=TIME))
    with pytest.raises(ValueError, match="X has no column 'Day' for groups; did you mean 'day'"):
        estimator().fit(table, groups="Day")
    with pytest.raises(TypeError, match="groups must be an array unless X is a data frame"):
        estimator().fit(X, groups="day")


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("window", [1, 3])
def test_a_fit_knows_its_columns_of_sessions_and_times(frame, window, tmp_path):
    """They are named once: later, and after loading, a frame with them is that of the fit."""
    table = frame({"u": X[:, 0], "day": DAY, "v": X[:, 1], "t": TIME, "w": X[:, 2]})
    model = estimator(window=window).fit(table, groups="day", times="t")
    model.save(tmp_path / "model")
    expected = estimator(window=window).fit(X, groups=DAY, times=TIME)
    codes = expected.transform(X, groups=DAY, times=TIME)
    for one in (model, iso.ContrastiveICA.load(tmp_path / "model")):
        np.testing.assert_array_equal(one.transform(table), codes)
        assert one.score(table) == expected.score(X, groups=DAY, times=TIME)
        for given in ({}, {"groups": "day", "times": "t"}):
            rows = encode_rows(one, table, **given)
            np.testing.assert_array_equal(rows.codes, codes)
            assert rows.session_names == ("mon", "tue")
            np.testing.assert_array_equal(rows.times, TIME)
    rest = frame({"u": X[:, 0], "v": X[:, 1], "w": X[:, 2]})
    if window == 1:
        np.testing.assert_array_equal(model.transform(rest), codes)
    model.fit(rest)
    with pytest.raises(ValueError, match="day"):
        model.transform(table)


def test_figures_and_pages_take_names_of_columns(tmp_path):
    table = pd.DataFrame({"u": X[:, 0], "day": DAY, "v": X[:, 1], "t": TIME, "w": X[:, 2]})
    model = estimator().fit(table, groups="day", times="t")
    for given in ({}, {"groups": "day", "times": "t"}):
        page = page_of_fit(model, table, **given)
        assert page.sections[0].rows.session_names == ("mon", "tue")
        assert [*page.sections[0].columns] == ["u", "v", "w"]
        assert page.sections[0].changes is not None
        assert iso.plot.codes(model, table, **given) is not None
        assert iso.plot.traversal(model, table, **given) is not None
        assert explore(model, table, **given).layout.updatemenus[0].buttons[1].label == "session"


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_column_of_text_is_named(frame):
    table = frame({"u": X[:, 0], "day": DAY, "v": X[:, 1]})
    message = "X must hold real numbers, but column 'day' does not; .*groups='day'"
    with pytest.raises(ValueError, match=message):
        estimator().fit(table)
    model = estimator().fit(table, groups="day")
    wrong = frame({"u": DAY, "v": X[:, 1]})
    with pytest.raises(ValueError, match="column 'u' does not"):
        model.transform(wrong)


def test_a_labelled_array_is_an_array():
    data = xr.DataArray(X, dims=("time", "channel"), coords={"time": np.arange(240)})
    np.testing.assert_array_equal(
        estimator().fit(data).transform(data), estimator().fit(X).transform(X)
    )


@pytest.mark.parametrize("encoder", ["conv", "pooled", "residual"])
@pytest.mark.parametrize("shape", [(16, 16), (20, 33), (1, 16, 24), (3, 40, 17)])
def test_images_of_any_size_and_without_channels(encoder, shape, tmp_path):
    x = np.random.default_rng(0).random((40, *shape), dtype=np.float32)
    recipe = iso.Recipe(max_steps=2, batch_size=8)
    model = iso.ContrastiveICA(
        2, space="euclidean", encoder=encoder, recipe=recipe, random_state=0
    ).fit(x, x + 0.1)
    codes = model.transform(x)
    assert codes.shape == (40, 2)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(iso.ContrastiveICA.load(tmp_path / "model").transform(x), codes)
