"""Two views with different columns, and an encoder each."""

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.encoders import MLP, RecordingEncoders
from isolatent.pairs import ArrayPairs, FinitePairSource, ViewPairs


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
