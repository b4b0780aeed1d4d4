"""The page of a fitted model, with and without true factors."""

import numpy as np
import pandas as pd
import pytest

import isolatent as iso
from isolatent.report import page_of_fit, render_page


@pytest.fixture(scope="module")
def fitted():
    world = iso.World(iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(9.0), iso.Linear(), seed=0)
    recipe = iso.Recipe(max_steps=20, batch_size=64)
    model = iso.ContrastiveICA(3, recipe=recipe, random_state=0).fit(world)
    z, _ = world.sample_latents(5000)
    return model, world.observe(z).numpy(), z.numpy()


def test_without_observations_the_page_shows_the_model_alone(fitted):
    (section,) = page_of_fit(fitted[0]).sections
    assert (section.codes, section.scores, section.scatter) == ((), (), None)
    assert section.guarantee == fitted[0].guarantee_.to_dict()
    assert section.curves[0][-1]["number"] == 20


def test_without_true_factors_the_page_shows_codes(fitted):
    model, x, _ = fitted
    (section,) = page_of_fit(model, x).sections
    assert np.shape(section.codes) == (4096, 3)  # of 5000, evenly spaced
    assert set(map(tuple, section.codes)) <= set(map(tuple, model.transform(x).tolist()))
    assert section.scores == ()


def test_with_true_factors_the_page_shows_scores(fitted):
    model, x, z = fitted
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
    assert page_of_fit(model, pd.DataFrame(x)) == page_of_fit(model, x)


def test_factors_need_observations_of_the_same_length(fitted):
    model, x, z = fitted
    with pytest.raises(ValueError, match="X must be given with factors"):
        page_of_fit(model, factors=z)
    with pytest.raises(ValueError, match=r"factors must have as many rows as X \(5000\), got 9"):
        page_of_fit(model, x, z[:9])
