"""A strip goes along one code, and its picture is what was drawn."""

import base64
import io

import numpy as np
import pytest

from isolatent.datasets import FactorArray, LaplaceTransitions, Sprites, synthetic_transitions
from isolatent.experiments.images import _correlation, _correlation_ratio
from isolatent.experiments.latent_traversal import COLUMNS, DEAD, png, strips
from isolatent.pairs import FactorPairs

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_is_read_back_as_it_was(channels):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    read = np.asarray(Image.open(io.BytesIO(png(pixels))))
    np.testing.assert_array_equal(read.reshape(pixels.shape), pixels)


def pixels_of(row):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(row))))


class Brightness:
    """Codes are the brightness of the left and of the right pixel."""

    def transform(self, x):
        return np.asarray(x).reshape(len(x), 2)


class Painter(Brightness):
    def decode(self, z):
        return np.asarray(z).reshape(-1, 1, 1, 2)


@pytest.mark.parametrize("model", [Brightness(), Painter()])
def test_one_pixel_grows_and_the_other_stays(model):
    levels = np.linspace(0, 1, 11)
    images = np.stack(np.meshgrid(levels, levels, indexing="ij"), -1).reshape(121, 1, 1, 2)
    world = FactorArray(images.astype(np.float32), (11, 11))
    shown = strips(model, FactorPairs(world, LaplaceTransitions()), seed=0)
    assert shown["columns"] == COLUMNS
    for code, row in enumerate(shown["rows"]):
        picture = pixels_of(row).reshape(COLUMNS, 2)
        moving, still = picture[:, code].astype(int), picture[:, 1 - code]
        assert (np.diff(moving) >= 0).all()
        assert moving[0] <= 10
        assert moving[-1] >= 245
        assert len(set(still.tolist())) == 1


class WithNoise(Brightness):
    """A third code that hardly varies, and by chance."""

    def transform(self, x):
        codes = super().transform(x)
        noise = np.random.default_rng(0).normal(size=(len(codes), 1))
        return np.concatenate([codes, 1e-3 * noise], axis=1)


@pytest.mark.parametrize("noisy", [False, True])
def test_a_code_that_is_almost_dead_chooses_no_images(noisy):
    """The rows of the others are as without it, and along itself nothing happens."""
    levels = np.sort(np.random.default_rng(1).random(11))
    images = np.stack(np.meshgrid(levels, levels, indexing="ij"), -1).reshape(121, 1, 1, 2)
    pairs = FactorPairs(FactorArray(images.astype(np.float32), (11, 11)), LaplaceTransitions())
    shown = strips(WithNoise() if noisy else Brightness(), pairs, seed=0)
    without = strips(Brightness(), pairs, seed=0)
    assert shown["rows"][:2] == without["rows"]
    assert max(shown["spreads"]) == 1
    assert (np.array(shown["spreads"]) < DEAD).tolist() == [False, False, True][: 2 + noisy]
    if noisy:
        still = pixels_of(shown["rows"][2]).reshape(COLUMNS, 2)
        assert (still == still[0]).all()


class Twice(Brightness):
    """Both codes are the brightness of the left pixel; the third is that of the right one."""

    def transform(self, x):
        left, right = super().transform(x).T
        return np.stack([left, left, right], axis=1)


def test_a_code_moves_though_another_knows_the_same():
    images = np.stack(np.meshgrid(*[np.linspace(0, 1, 11)] * 2, indexing="ij"), -1)
    world = FactorArray(images.reshape(121, 1, 1, 2).astype(np.float32), (11, 11))
    shown = strips(Twice(), FactorPairs(world, LaplaceTransitions()), seed=0)
    for row in shown["rows"][:2]:
        left, right = pixels_of(row).reshape(COLUMNS, 2).T.astype(int)
        # Nine of ten parts of the way: 3² against 1.
        assert np.ptp(left) == pytest.approx(0.9 * 255, abs=26)
        assert len(set(right)) == 1


class Shape:
    """One code tells the second of three values from the others; one tells nothing."""

    def transform(self, x):
        return np.stack([np.asarray(x)[:, 0, 0, 0] == 1, np.zeros(len(x))], axis=1).astype(float)


def test_a_category_correlates_in_any_order():
    """The rank correlation of such a code is about 0, though the category determines it."""
    images = np.repeat([0.0, 1.0, 0.5], 4).reshape(12, 1, 1, 1).astype(np.float32)
    world = FactorArray(images, (3, 4), categorical=(True, False))
    matrix = _correlation(Shape(), FactorPairs(world, LaplaceTransitions()), seed=0)
    assert matrix[0] == [1.0, 0.0]  # the class determines the code
    assert matrix[1][0] < 0.05
    y = np.array([0, 0, 1, 1])
    ranks = np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    assert _correlation_ratio(y, ranks).tolist() == [0.0, 1.0]
    three = np.array([[2.0], [0.0], [0.0], [-2.0]]) / np.sqrt(2)  # means 1 and -1 over root 2
    assert _correlation_ratio(y, three) == pytest.approx([np.sqrt(0.5)])


class Size:
    """Codes are two sums over all pixels, which binary images and anti-aliased ones differ in."""

    def __init__(self):
        self.seen = []

    def transform(self, x):
        pixels = np.asarray(x).reshape(len(x), -1)
        self.seen.append(bool(((pixels > 0) & (pixels < 1)).any()))
        return np.stack([pixels.mean(1), pixels[:, ::2].mean(1)], 1)


@pytest.mark.parametrize("continuous", [False, True])
def test_images_are_of_the_kind_that_the_model_was_trained_on(continuous, monkeypatch):
    monkeypatch.setattr("isolatent.experiments.latent_traversal.POOL", 100)
    monkeypatch.setattr("isolatent.experiments.images.TEST_POINTS", 100)
    pairs = FactorPairs(Sprites(), synthetic_transitions(), continuous=continuous)
    model = Size()
    rows = strips(model, pairs, seed=0)["rows"]
    assert np.shape(_correlation(model, pairs, seed=0)) == (5, 2)
    assert set(model.seen) == {continuous}
    assert all((len(np.unique(pixels_of(row))) > 2) == continuous for row in rows)
