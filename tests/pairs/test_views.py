"""Two views with different columns, and an encoder each."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from sklearn.base import clone

import isolatent as iso
from isolatent.encoders import MLP, RecordingEncoders
from isolatent.pairs import ArrayPairs, FinitePairSource, ViewPairs
from isolatent.report import page_of_fit


def views_of(n=600):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 2))
    z_pos = 0.9 * z + np.sqrt(1 - 0.81) * rng.normal(size=(n, 2))
    return z, z @ rng.normal(size=(2, 3)), z_pos @ rng.normal(size=(2, 5))


def test_pairs_are_those_of_arrays_with_the_number_of_the_view():
    _, x, x_pos = views_of(20)
    ours, theirs = ViewPairs(x, x_pos), ArrayPairs(x, x)
    assert isinstance(ours, FinitePairSource)
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    a, b = ours.sample(7, generators[0])
    expected, _ = theirs.sample(7, generators[1])
    torch.testing.assert_close(a[:, 1:4], expected, rtol=0, atol=0)
    assert (a[:, 0].unique().tolist(), b[:, 0].unique().tolist()) == ([0], [1])
    assert not a[:, 4:].any()
    torch.testing.assert_close(ours.view(x_pos, 1), ours.all()[1], rtol=0, atol=0)


def test_two_encoders_share_one_space_of_codes():
    z, x, x_pos = views_of()
    views = ViewPairs(x, x_pos)
    both = RecordingEncoders([MLP(width, 2, ()) for width in views.widths], views.widths)
    recipe = iso.Recipe(max_steps=400, batch_size=128)
    model = iso.ContrastiveICA(2, space="euclidean", encoder=both, recipe=recipe, random_state=0)
    model.fit(views)
    codes = [model.transform(views.view(part, k)) for k, part in enumerate((x, x_pos))]
    assert iso.linear_r2(z, codes[0]) > 0.95
    assert np.corrcoef(codes[0][:, 0], codes[1][:, 0])[0, 1] > 0.7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: ViewPairs(x, y[1:]), "the same number of rows, got 20 and 19"),
        (lambda x, y: ViewPairs(x[:, :, None], y), r"x must have shape \(N, columns\)"),
        (lambda x, y: ViewPairs(x, y).view(x, 2), "number must be 0 or 1, got 2"),
        (lambda x, y: ViewPairs(x, y).view(x, 1), r"x must have shape \(N, 5\), got \(20, 3\)"),
    ],
)
def test_wrong_views(call, message):
    _, x, x_pos = views_of(20)
    with pytest.raises(ValueError, match=message):
        call(x, x_pos)


@pytest.mark.parametrize("width", [5, 3])
def test_a_pair_of_encoders_is_that_of_view_pairs(width, tmp_path):
    """encoder=(a, b) is ViewPairs with RecordingEncoders, whose codes it has, also when loaded."""
    _, x, x_pos = views_of()
    x_pos = x_pos[:, :width]
    given = tuple(MLP(k, 2, (8,)) for k in (3, width))
    recipe = iso.Recipe(max_steps=20, batch_size=64)
    options = {"space": "euclidean", "recipe": recipe, "random_state": 0}
    views = ViewPairs(x, x_pos)
    both = RecordingEncoders([deepcopy(one) for one in given], views.widths)
    expected = iso.ContrastiveICA(2, encoder=both, **options).fit(views)
    codes = [expected.transform(views.view(part, k)) for k, part in enumerate((x, x_pos))]
    model = clone(iso.ContrastiveICA(2, encoder=given, **options)).fit(x, x_pos)
    model.save(tmp_path / "model")
    new = tuple(MLP(k, 2, (8,)) for k in (3, width))
    for one in (model, iso.ContrastiveICA.load(tmp_path / "model", encoder=new)):
        for k, part in enumerate((x, x_pos)):
            found = one.transform(part, recording=k)
            np.testing.assert_allclose(found, codes[k], rtol=1e-5, atol=1e-6)
            if width != 3:  # told by the number of columns
                np.testing.assert_array_equal(one.transform(part), found)
        assert one.score(x, x_pos) == pytest.approx(expected.score(views))
    if width == 3:
        with pytest.raises(ValueError, match="recording must be 0 or 1, the view that X is of"):
            model.transform(x)


def test_views_of_different_widths_name_the_way():
    _, x, x_pos = views_of(40)
    model = iso.ContrastiveICA(2, space="euclidean")
    with pytest.raises(ValueError, match=r"two views .* pass encoder=\(a, b\)"):
        model.fit(x, x_pos)
    pair = (MLP(3, 2), MLP(5, 2))
    with pytest.raises(ValueError, match=r"X_pos must be given with encoder=\(a, b\)"):
        iso.ContrastiveICA(2, encoder=pair).fit(x)
    with pytest.raises(TypeError, match="or a pair of modules such as"):
        iso.ContrastiveICA(2, encoder=("mlp", "mlp")).fit(x, x_pos)
    with pytest.raises(ValueError, match="groups must be None"):
        iso.ContrastiveICA(2, encoder=pair).fit(x, x_pos, groups=np.zeros(40))


def test_figures_take_either_view():
    _, x, x_pos = views_of(200)
    recipe = iso.Recipe(max_steps=5, batch_size=64)
    pair = (MLP(3, 2), MLP(5, 2))
    model = iso.ContrastiveICA(2, space="euclidean", encoder=pair, recipe=recipe).fit(x, x_pos)
    for part in (x, x_pos):
        rows = page_of_fit(model, part).sections[0].rows
        np.testing.assert_array_equal(rows.codes, model.transform(part))
