"""The page of a fitted model, with and without true factors."""

import copy
import dataclasses

import numpy as np
import pandas as pd
import pytest

import isolatent as iso
from html_outline import Outline
from isolatent.report import Page, page_of_fit, render_page
from isolatent.report.fits import RELAXATION_MEANINGS
from isolatent.theory import NAMED_RELAXATIONS, derive_guarantee

NOISE = 0.1 * np.random.default_rng(0).normal(size=(5000, 3))


@pytest.fixture(scope="module")
def fitted():
    world = iso.World(iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(9.0), iso.Linear(), seed=0)
    recipe = iso.Recipe(max_steps=80, batch_size=64, warmup=10)
    model = iso.ContrastiveICA(3, space="sphere", recipe=recipe, random_state=0).fit(world)
    z, _ = world.sample_latents(5000)
    return model, world.observe(z).numpy(), z.numpy()


def test_without_observations_the_page_shows_the_model_alone(fitted):
    (section,) = page_of_fit(fitted[0]).sections
    assert (section.rows, section.scores, section.scatter) == (None, (), None)
    assert section.guarantee == fitted[0].guarantee_.to_dict()
    assert section.curves[0][-1]["number"] == 80


def test_without_true_factors_the_page_shows_codes(fitted):
    model, x, _ = fitted
    (section,) = page_of_fit(model, x).sections
    np.testing.assert_allclose(section.rows.codes, model.transform(x), atol=1e-6)
    assert list(section.columns) == [f"column {k}" for k in range(x.shape[1])]
    assert section.scores == ()


def test_with_true_factors_the_page_shows_scores(fitted):
    model, x, z = copy.copy(fitted[0]), *fitted[1:]
    model.guarantee_ = derive_guarantee(model.beliefs_)  # hardly trained, it claims nothing
    page = page_of_fit(model, x, z, truth=[9.0])
    (section,) = page.sections
    assert [(score.metric, score.label) for score in section.scores] == [
        ("linear_r2", "raw observations"),
        ("mcc", "raw observations"),
        ("linear_r2", "recovered"),
        ("mcc", "recovered"),
    ]
    (bold,) = (score for score in section.scores if score.guaranteed)
    assert (bold.metric, bold.label) == (model.guarantee_.metric, "recovered")
    assert np.shape(section.correlations) == (3, 3)
    assert section.alignment == "linear"
    assert section.truth == (9.0,)
    assert "In bold: R² (linear), the metric of the guarantee." in render_page(page)


def test_a_data_frame_gives_the_page_of_its_array(fitted):
    model, x, _ = fitted
    named = pd.DataFrame(x, columns=[f"column {k}" for k in range(x.shape[1])])
    assert render_page(page_of_fit(model, named)) == render_page(page_of_fit(model, x))


def test_factors_need_observations_of_the_same_length(fitted):
    model, x, z = fitted
    with pytest.raises(ValueError, match="X must be given with factors"):
        page_of_fit(model, factors=z)
    with pytest.raises(ValueError, match=r"factors must have as many rows as X \(5000\), got 9"):
        page_of_fit(model, x, z[:9])


@pytest.fixture(scope="module")
def relaxed(fitted):
    """A model with two relaxations in use and one that was compared."""
    model = iso.ContrastiveICA(
        3,
        space="sphere",
        recipe=iso.Recipe(max_steps=2, batch_size=16),
        relax=["pairing", "marginal"],
    )
    model.fit(fitted[1], fitted[1] + NOISE)
    model.gains_ = {"dynamics": (-0.0012, 0.003), "pairing": (0.58, 0.02)}
    return model


def test_relaxations_in_use_come_first(relaxed):
    (section,) = page_of_fit(relaxed).sections
    pairing, marginal, dynamics = section.relaxations
    assert pairing.name == "pairing: some pairs are unrelated"
    assert pairing.learned == relaxed.guarantee_.learned[0]
    assert pairing.gain == "0.580 ± 0.020"
    assert (marginal.used, marginal.learned, marginal.gain) == (True, "", "")
    assert (dynamics.used, dynamics.gain) == (False, "-0.001 ± 0.003")


def test_every_relaxation_has_a_meaning():
    assert set(RELAXATION_MEANINGS) == set(NAMED_RELAXATIONS)


def test_a_model_without_relaxations_has_no_table(fitted):
    (section,) = page_of_fit(fitted[0]).sections
    assert section.relaxations == ()
    assert "Learned instead of assumed" not in render_page(page_of_fit(fitted[0]))


def test_the_card_and_a_table_show_what_was_learned(relaxed):
    html = render_page(page_of_fit(relaxed))
    (sentence,) = relaxed.guarantee_.learned
    assert html.count(sentence) >= 2
    assert f"<dt>Learned</dt><dd>{sentence}</dd>" in html
    assert "Learned instead of assumed" in html
    assert "as declared" in html  # dynamics


def test_gains_are_shown_where_relaxations_were_compared(relaxed):
    page = page_of_fit(relaxed)
    assert "Gain (nats)" in render_page(page)
    named = tuple(dataclasses.replace(r, gain="") for r in page.sections[0].relaxations)
    section = dataclasses.replace(page.sections[0], relaxations=named)
    assert "Gain (nats)" not in render_page(dataclasses.replace(page, sections=(section,)))


def test_weights_of_the_codes_are_those_of_the_loss(fitted):
    """Those of the similarity times the learned ratios."""
    recipe = iso.Recipe(max_steps=3, batch_size=64)
    model = iso.ContrastiveICA(
        3, space="sphere", recipe=recipe, relax=["factor_scale"], random_state=0
    )
    model.fit(fitted[1], fitted[1] + NOISE)
    (section,) = page_of_fit(model).sections
    expected = model.loss_.coordinate_weights(3).detach().tolist()
    assert section.learned == pytest.approx(expected)
    assert len(set(section.learned)) == 3


@pytest.fixture(scope="module")
def aligned():
    """A model with two axes that have time scales of their own."""
    rng = np.random.default_rng(0)
    z, noise = np.zeros((2000, 2)), rng.normal(size=(2000, 2))
    for t in range(1, 2000):
        z[t] = np.array([0.95, 0.5]) * z[t - 1] + noise[t]
    recipe = iso.Recipe(max_steps=3, batch_size=64)
    options = {"axes": "dynamics", "relax": (), "recipe": recipe, "random_state": 0}
    return iso.ContrastiveICA(2, **options).fit(z @ [[1.0, 0.4], [-0.5, 1.0]])


def test_the_page_has_a_table_of_axes(aligned):
    page = page_of_fit(aligned)
    assert page.sections[0].axes == aligned.axes_.codes
    (table,) = (e for e in Outline(render_page(page)).all("table") if "Stability" in e["text"])
    for axis in aligned.axes_.codes:
        assert axis.time_scale_text in table["text"]
        assert f"{axis.stability:.2f}" in table["text"]
    assert f"Axes: {aligned.axes_.choice}." in render_page(page)
    assert f"<dt>Axes</dt><dd>{aligned.guarantee_.axes}</dd>" in render_page(page).replace(
        ' class="wide"', ""
    )


def test_a_model_without_axes_has_no_table_of_them(fitted):
    assert page_of_fit(fitted[0]).sections[0].axes == ()
    assert "<h3>Axes</h3>" not in render_page(page_of_fit(fitted[0]))


def test_texts_of_axes_are_escaped(aligned):
    page = page_of_fit(aligned)
    axes = (dataclasses.replace(page.sections[0].axes[0], unit="<b>"),)
    section = dataclasses.replace(page.sections[0], axes=axes, axes_choice="<i>")
    html = render_page(dataclasses.replace(page, sections=(section,)))
    assert "[&lt;b&gt;]" in html
    assert "Axes: &lt;i&gt;." in html


@pytest.mark.filterwarnings("ignore::isolatent.checks.IsolatentWarning")
@pytest.mark.parametrize("columns", [(4, 4), (4, 5)])
def test_several_recordings_are_sessions(columns):
    """Of equal or other columns, in which case each has an encoder of its own."""
    rng = np.random.default_rng(0)
    recordings = [rng.normal(size=(200, m)).cumsum(axis=0) for m in columns]
    model = iso.ContrastiveICA(2, recipe=iso.Recipe(max_steps=3, batch_size=32), random_state=0)
    (section,) = page_of_fit(model.fit(recordings), recordings).sections
    assert section.rows.codes.shape == (400, 2)
    assert section.rows.session_names == ("recording 0", "recording 1")
    assert section.is_recording
    assert section.changes is None
    render_page(Page("p", sections=(section,)))


def test_thinned_rows_have_no_pauses(fitted, monkeypatch):
    monkeypatch.setattr("isolatent.report.fits.MAX_ENCODED", 4000)
    model, x, _ = fitted
    (section,) = page_of_fit(model, x).sections
    assert len(x) == 5000
    assert set(np.diff(section.rows.times)) == {2}


def test_many_rows_are_encoded_evenly(fitted, monkeypatch):
    monkeypatch.setattr("isolatent.report.fits.MAX_ENCODED", 100)
    model, x, z = fitted
    groups = np.repeat(["a", "b"], 2500)
    (section,) = page_of_fit(model, x, z, groups=groups, columns={"first": x[:, 0]}).sections
    np.testing.assert_allclose(section.rows.codes, model.transform(x[::50]), atol=1e-6)
    assert section.rows.times.tolist() == list(range(0, 5000, 50))
    assert section.rows.sessions.tolist() == [0] * 50 + [1] * 50
    np.testing.assert_array_equal(section.columns["first"], x[::50, 0])
    assert np.shape(section.correlations) == (3, 3)
