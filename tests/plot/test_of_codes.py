"""Figures of codes draw the codes that they should, on axes that were given."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import dates
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba

import isolatent as iso
from isolatent import plot
from isolatent.figure_data import encode_rows


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def points(ax):
    """The offsets of all points, one array for each scatter."""
    return [np.asarray(c.get_offsets()) for c in ax.collections if isinstance(c, PathCollection)]


def texts(ax):
    return [text.get_text() for text in ax.texts]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_codes_of_a_recording_by_session(recording, axes):
    model, x, groups, _ = recording
    ax = plot.codes(model, x, groups=groups, colour="session", components=(1, 0), ax=axes)
    assert ax is axes
    codes = model.transform(x, groups=groups)
    usable = np.isfinite(codes).all(axis=1)
    first, second = points(ax)
    assert np.allclose(first, codes[usable & (groups == "first")][:, ::-1])
    assert np.allclose(second, codes[usable & (groups == "second")][:, ::-1])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("code 1", "code 0")
    legend = ax.get_legend()
    assert legend.get_title().get_text() == "session"
    assert [text.get_text() for text in legend.get_texts()] == ["first", "second"]


def test_codes_of_pairs_by_relatedness(pairs, axes):
    model, x, x_pos = pairs
    ax = plot.codes(model, x, X_pos=x_pos, colour="relatedness", ax=axes)
    (scatter,) = ax.collections
    assert np.allclose(scatter.get_array(), model.relatedness(x, x_pos))
    assert ax.figure.axes[1].get_ylabel() == "probability of being related"


def test_codes_of_images(images, axes):
    model, x = images
    ax = plot.codes(model, x, ax=axes)
    assert np.allclose(points(ax)[0], model.transform(x))


def test_three_codes_in_three_dimensions(pairs, axes_3d):
    model, x, _ = pairs
    ax = plot.codes(model, x, ax=axes_3d)
    codes = model.transform(x)
    assert np.allclose(ax.collections[0]._offsets3d, codes.T)
    assert ax.get_zlabel() == "code 2"
    new = plot.codes(codes, components=(2, 0, 1))
    assert np.allclose(new.collections[0]._offsets3d, codes[:, [2, 0, 1]].T)
    mpl.pyplot.close(new.figure)


def test_colours_that_are_unknown_are_grey(axes):
    z, colour = normal(6, 2), np.array([0.0, 1, np.nan, 3, 4, 5])
    ax = plot.codes(z, colour=colour, colour_name="speed", cmap="magma", ax=axes)
    unknown, known = ax.collections
    assert np.allclose(unknown.get_offsets(), z[[2]])
    assert np.allclose(known.get_array(), np.delete(colour, 2))
    assert known.get_cmap().name == "magma"
    assert ax.figure.axes[1].get_ylabel() == "speed"


def test_dates_as_colours_have_dates_on_the_colour_bar(axes):
    days = np.arange("2024-01-01", "2024-03-01", dtype="datetime64[D]")
    ax = plot.codes(normal(60, 2), times=days, colour="time", ax=axes)
    assert np.allclose(ax.collections[0].get_array(), dates.date2num(days))
    bar = ax.figure.axes[1]
    assert isinstance(bar.yaxis.get_major_formatter(), dates.ConciseDateFormatter)


def test_many_categories_are_numbered_instead_of_named(axes):
    names = np.array([f"session {k}" for k in range(40)])
    ax = plot.codes(normal(40, 2), groups=names, colour="session", ax=axes)
    assert ax.get_legend() is None
    assert np.array_equal(ax.collections[0].get_array(), np.arange(40))


def test_what_was_left_out_is_stated(axes, axes_3d):
    z = normal(300, 3)
    for ax, components in ((axes, (0, 1)), (axes_3d, (0, 1, 2))):
        plot.codes(z, components=components, max_points=50, ax=ax)
        assert texts(ax) == ["50 of 300 rows, drawn at random with seed 0"]
    assert len(points(axes)[0]) == 50


def test_the_style_is_the_users(axes):
    with mpl.rc_context({"image.cmap": "plasma", "axes.prop_cycle": mpl.cycler(color=["k"])}):
        before = dict(mpl.rcParams)
        ax = plot.codes(normal(5, 2), colour="time", ax=axes, s=33, alpha=0.5)
        assert ax.collections[0].get_cmap().name == "plasma"
        assert ax.collections[0].get_sizes().tolist() == [33]
        over = plot.over_time(normal(5, 1), ax=axes)
        assert over.lines[0].get_color() in ("k", "C0")
        assert to_rgba(over.lines[0].get_color()) == to_rgba("k")
        assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((9, 1), {}, "codes must have at least 2 columns, got 1; isolatent.plot.over_time"),
        ((9, 2), {"components": (0, 1, 2)}, "components must be from 0 to 1"),
        ((9, 3), {"components": (0,)}, "components must be 2 or 3 numbers of codes"),
        ((9, 3), {"components": (0, 1, 2)}, "ax must have three dimensions"),
    ],
)
def test_codes_that_do_not_fit_axes_are_refused(axes, shape, options, message):
    with pytest.raises(ValueError, match=message):
        plot.codes(normal(*shape), ax=axes, **options)


def test_other_wrong_arguments_are_refused(axes, axes_3d, recording):
    model, x, groups, _ = recording
    with pytest.raises(ValueError, match="at least 3 columns, got 2"):
        plot.codes(model, x, groups=groups, ax=axes_3d)
    with pytest.raises(ValueError, match="ax must have two dimensions"):
        plot.over_time(normal(9, 2), ax=axes_3d)
    with pytest.raises(TypeError, match="ax must be axes of matplotlib, got ndarray; pass one"):
        plot.over_time(normal(9, 2), ax=np.array([axes, axes]))
    with pytest.raises(ValueError, match="features"):
        plot.codes(model, x[:, :3], ax=axes)
    with pytest.raises(ValueError, match="X must be given with a model"):
        plot.codes(model, ax=axes)
    with pytest.raises(ValueError, match="not fitted"):
        plot.codes(iso.ContrastiveICA(2), x, ax=axes)


def test_without_matplotlib_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("isolatent.plot.axes.has_matplotlib", lambda: False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'isolatent\[plot\]'"):
        plot.codes(normal(9, 2))


def test_sessions_over_time_have_gaps_and_colours(recording, axes):
    model, x, groups, _ = recording
    ax = plot.over_time(model, x, groups=groups, ax=axes)
    codes = model.transform(x, groups=groups)
    assert len(ax.lines) == 4
    assert labels(ax.yaxis) == ["code 0", "code 1"]
    for number, line in enumerate(ax.lines):
        rows, k = slice(150 * (number // 2), 150 * (number // 2) + 150), number % 2
        middle = (np.nanmin(codes[:, k]) + np.nanmax(codes[:, k])) / 2
        drawn = line.get_ydata() - ax.get_yticks()[k] + middle
        assert np.allclose(drawn, codes[rows, k], equal_nan=True)
        assert np.isnan(drawn).sum() == (5 if rows.start == 0 else 0)
        assert line.get_color() == ("C0" if rows.start == 0 else "C1")
    above, below = (np.concatenate([line.get_ydata() for line in ax.lines[k::2]]) for k in (0, 1))
    assert np.nanmin(above) > np.nanmax(below)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["first", "second"]
    assert ax.get_xlabel() == "row"


def test_one_code_over_time_keeps_its_unit(axes):
    codes, times = normal(50, 2), np.arange(50) / 10
    ax = plot.over_time(codes, components=[1], times=times, ax=axes, linewidth=3)
    (line,) = ax.lines
    assert np.array_equal(line.get_ydata(), codes[:, 1])
    assert np.array_equal(line.get_xdata(), times)
    assert (ax.get_ylabel(), ax.get_xlabel(), line.get_linewidth()) == ("code 1", "time", 3)


def test_recordings_in_a_list_are_sessions(axes):
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(120, 3)).cumsum(axis=0) for _ in range(2)]
    recipe = iso.Recipe(max_steps=5, batch_size=32, warmup=1)
    model = iso.ContrastiveICA(2, space="box", n_init=1, recipe=recipe, random_state=0).fit(parts)
    ax = plot.over_time(model, parts, ax=axes)
    first, second = ax.lines[0].get_ydata(), ax.lines[2].get_ydata()
    assert np.allclose(np.diff(np.r_[first, second]), np.diff(model.transform(parts)[:, 0]))
    assert len(ax.get_legend().get_texts()) == 2


def test_recordings_with_different_sensors(axes):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(90, 2)).cumsum(axis=0)
    parts = [z @ rng.normal(size=(2, m)) for m in (3, 5)]
    days = np.arange("2024-01-01", "2024-03-31", dtype="datetime64[D]")
    times = [days, days]
    recipe = iso.Recipe(max_steps=5, batch_size=32, warmup=1)
    model = iso.ContrastiveICA(2, space="euclidean", recipe=recipe, random_state=0)
    model.fit(parts, times=times, common="times")
    codes = model.transform(parts, times=times)
    ax = plot.codes(model, parts, times=times, colour="session", ax=axes)
    assert np.allclose(points(ax)[1], codes[90:])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        *("recording 0", "recording 1")
    ]
    ax.clear()
    plot.over_time(model, parts[1], times=days, recording=1, components=[0], ax=ax)
    assert np.allclose(ax.lines[0].get_ydata(), codes[90:, 0])
    assert np.array_equal(ax.lines[0].get_xdata(), days)
    with pytest.raises(ValueError, match="X must be one recording where recordings have different"):
        plot.traversal(model, parts, times=times, ax=ax)
    ax.clear()
    plot.traversal(model, parts[1], times=days, recording=1, component=0, ax=ax)
    assert len(ax.lines) == 5


def test_windows_of_a_recording(axes):
    x = normal(150, 3).cumsum(axis=0)
    recipe = iso.Recipe(max_steps=5, batch_size=32, warmup=1)
    model = iso.ContrastiveICA(
        2, space="box", window=5, counts=False, n_init=1, recipe=recipe, random_state=0
    ).fit(x)
    assert np.allclose(points(plot.codes(model, x, ax=axes))[0], model.transform(x))
    ax = plot.traversal(model, x, ax=axes)
    assert np.asarray(ax.images[0].get_array()).shape == (2, 3)  # columns of a row, not of a window


def test_codes_against_factors(recording, axes):
    model, x, _, z = recording
    ax = plot.against_factors(model, x, factors=z, factor_names=["sine", "cosine"], ax=axes)
    codes = model.transform(x)
    usable = np.isfinite(codes).all(axis=1)
    drawn = np.asarray(ax.images[0].get_array())
    expected = np.abs(np.corrcoef(z[usable].T, codes[usable].T)[:2, 2:])
    order = [int(name.split()[1]) for name in labels(ax.xaxis)]
    assert np.allclose(drawn, expected[:, order])
    assert np.trace(drawn) >= np.trace(drawn[:, ::-1])
    assert texts(ax) == [f"{value:.2f}" for value in drawn.ravel()]
    r2 = iso.linear_r2(z[usable], codes[usable], per_factor=True)
    assert labels(ax.yaxis) == [f"sine (R² {r2[0]:.2f})", f"cosine (R² {r2[1]:.2f})"]
    assert f"MCC {iso.mcc(z[usable], codes[usable]):.3f}" in ax.get_title()


def test_numbers_are_legible_on_their_cells(axes):
    z = normal(200, 2)
    ax = plot.against_factors(z, factors=z, ax=axes, cmap="gray")
    assert [text.get_color() for text in ax.texts] == ["black", "white", "white", "black"]
    with pytest.raises(ValueError, match=r"factors must have shape \(200, F\)"):
        plot.against_factors(z, factors=z[:9], ax=axes)


def test_columns_along_a_code(recording, axes):
    model, x, groups, _ = recording
    names = ["a", "b", "c", "d"]
    ax = plot.traversal(model, x, groups=groups, component=0, column_names=names, ax=axes)
    assert [line.get_label() for line in ax.lines] == names
    low, high = np.nanpercentile(model.transform(x)[:, 0], (5, 95))
    assert ax.lines[0].get_xdata()[[0, -1]] == pytest.approx([low, high])
    assert all(line.get_ydata()[4] == 0 for line in ax.lines)  # the middle of the code
    assert ax.get_title().startswith("decoder explains ")


def test_all_codes_as_a_matrix_of_changes(axes):
    z = normal(300, 2)
    x = np.stack([z[:, 0], z[:, 1], -z[:, 1]], axis=1)
    ax = plot.traversal(z, x, ax=axes)
    drawn = np.asarray(ax.images[0].get_array())
    assert (np.abs(drawn).argmax(axis=0) == [0, 1, 1]).all()
    assert drawn[1, 1] > 2
    assert drawn[1, 2] < -2
    assert ax.images[0].get_clim() == (-np.abs(drawn).max(), np.abs(drawn).max())
    assert labels(ax.yaxis) == ["code 0", "code 1"]


def test_images_along_codes(images, axes, monkeypatch):
    monkeypatch.setattr("isolatent.training.decoder.DECODER_STEPS", 4)
    model, x = images
    ax = plot.traversal(model, x, ax=axes)
    height = x.shape[-1]
    assert ax.images[0].get_array().shape == (2 * height, 9 * height)
    assert labels(ax.yaxis) == ["code 0", "code 1"]


def test_the_decoder_of_a_model_is_used(axes):
    x = normal(200, 3).cumsum(axis=0)
    model = iso.baselines.SlowVAE(2, max_steps=5, random_state=0).fit(x)
    ax = plot.traversal(model, x, component=1, ax=axes)
    codes = model.transform(x)
    scaled = (codes - np.median(codes, axis=0)) / codes.std(axis=0)
    along = np.repeat(codes[[np.square(scaled).sum(axis=1).argmin()]], 9, axis=0)
    along[:, 1] = ax.lines[0].get_xdata()
    decoded = model.decode(along)[:, 0]
    assert ax.lines[0].get_ydata() * x[:, 0].std() == pytest.approx(decoded - decoded[4], abs=1e-4)


def test_prepared_rows_are_drawn_as_they_are(axes):
    rows = encode_rows(normal(20, 2), groups=np.repeat([0, 1], 10))
    assert len(points(plot.codes(rows, colour="session", ax=axes))) == 2
    with pytest.raises(ValueError, match="groups must not be given with encoded rows"):
        plot.over_time(rows, groups=np.zeros(20), ax=axes)
