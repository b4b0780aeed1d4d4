"""A latent traversal moves one code at a time, and its PNG files hold the images."""

import base64
import io

import numpy as np
import pytest
import torch
from torch import Generator

from isolatent.datasets import (
    FactorArray,
    LaplaceTransitions,
    MNISTDecoder,
    Scene3D,
    SpriteMixing,
    Sprites,
    synthetic_transitions,
)
from isolatent.experiments.image_execution import _correlation
from isolatent.experiments.latent_traversal import (
    COLUMNS,
    DEAD,
    encode_png,
    latent_traversal,
    rendered_traversal,
)
from isolatent.pairs import FactorPairs
from isolatent.worlds import Box, InvertibleMLP, Normal, Uniform, World

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_file_holds_the_image(channels):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    read = np.asarray(Image.open(io.BytesIO(encode_png(pixels))))
    np.testing.assert_array_equal(read.reshape(pixels.shape), pixels)


def pixels_of(row):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(row))))


class Brightness:
    """Codes are the brightness of the left and of the right pixel."""

    def transform(self, x):
        return np.asarray(x).reshape(len(x), 2)


class Decoder(Brightness):
    def decode(self, z):
        return np.asarray(z).reshape(-1, 1, 1, 2)


def pixel_pairs(levels):
    """Pairs of images with two pixels, whose brightness takes 11 levels each."""
    images = np.stack(np.meshgrid(levels, levels, indexing="ij"), -1).reshape(121, 1, 1, 2)
    return FactorPairs(FactorArray(images.astype(np.float32), (11, 11)), LaplaceTransitions())


@pytest.mark.parametrize("model", [Brightness(), Decoder()])
def test_the_pixel_of_the_moved_code_grows_and_the_other_stays(model):
    shown = latent_traversal(model, pixel_pairs(np.linspace(0, 1, 11)), seed=0)
    assert shown["columns"] == COLUMNS
    for code, row in enumerate(shown["rows"]):
        picture = pixels_of(row).reshape(COLUMNS, 2)
        moving, still = picture[:, code].astype(int), picture[:, 1 - code]
        assert (np.diff(moving) >= 0).all()
        assert moving[0] <= 10
        assert moving[-1] >= 245
        assert len(set(still.tolist())) == 1


class WithNoise(Brightness):
    """A third code that is noise of small variance."""

    def transform(self, x):
        codes = super().transform(x)
        noise = np.random.default_rng(0).normal(size=(len(codes), 1))
        return np.concatenate([codes, 1e-3 * noise], axis=1)


@pytest.mark.parametrize("noisy", [False, True])
def test_a_dead_code_does_not_determine_images(noisy):
    """The rows of the other codes are unchanged, and the row of the dead code is constant."""
    pairs = pixel_pairs(np.sort(np.random.default_rng(1).random(11)))
    shown = latent_traversal(WithNoise() if noisy else Brightness(), pairs, seed=0)
    without = latent_traversal(Brightness(), pairs, seed=0)
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


def test_a_code_moves_although_another_encodes_the_same_factor():
    shown = latent_traversal(Twice(), pixel_pairs(np.linspace(0, 1, 11)), seed=0)
    for row in shown["rows"][:2]:
        left, right = pixels_of(row).reshape(COLUMNS, 2).T.astype(int)
        # The optimum is at 9/10 of the range: weights 3² against 1.
        assert np.ptp(left) == pytest.approx(0.9 * 255, abs=26)
        assert len(set(right)) == 1


class Size:
    """Codes are two sums over all pixels, which binary images and anti-aliased ones differ in."""

    def __init__(self):
        self.seen = []

    def transform(self, x):
        pixels = np.asarray(x).reshape(len(x), -1)
        self.seen.append(bool(((pixels > 0) & (pixels < 1)).any()))
        return np.stack([pixels.mean(1), pixels[:, ::2].mean(1)], 1)


@pytest.mark.parametrize("continuous", [False, True])
def test_images_are_drawn_as_those_for_training(continuous, monkeypatch):
    monkeypatch.setattr("isolatent.experiments.latent_traversal.CANDIDATES", 100)
    monkeypatch.setattr("isolatent.experiments.image_execution.TEST_POINTS", 100)
    pairs = FactorPairs(Sprites(), synthetic_transitions(), continuous=continuous)
    model = Size()
    rows = latent_traversal(model, pairs, seed=0)["rows"]
    assert np.shape(_correlation(model, pairs, seed=0)) == (5, 2)
    assert set(model.seen) == {continuous}
    assert all((len(np.unique(pixels_of(row))) > 2) == continuous for row in rows)


def test_rendered_images_move_with_one_factor():
    """Codes that are the factors, up to affine maps, give images that only that factor changes."""
    mixing = Scene3D(size=16)
    world = World(Box(10, -1, 1), Uniform(), Normal(0.1), mixing, seed=0)
    z = world.sample_anchors(400).numpy()
    shown = rendered_traversal(world, z, 3 - 2 * z)
    assert (shown["kind"], shown["columns"], shown["size"]) == ("rendered", COLUMNS, 16)
    assert shown["spreads"] == pytest.approx([1] * 10, abs=0.1)
    pictures = [pixels_of(row).reshape(16, COLUMNS, 16, 3) for row in shown["rows"]]
    assert all(np.ptp(picture.astype(int), axis=1).max() > 10 for picture in pictures)
    # Of the last factor, the hue of the floor, only colours change: the last column has red floors,
    # since codes fall as factors grow.
    first, last = pictures[9][15, 0, 0].astype(int), pictures[9][15, -1, 0].astype(int)
    assert last[0] - last[2] > first[0] - first[2]


def test_worlds_without_images_have_no_strips():
    world = World(Box(2), Uniform(), Normal(0.1), InvertibleMLP(), seed=0)
    z = world.sample_anchors(50).numpy()
    assert rendered_traversal(world, z, z) is None


@pytest.mark.parametrize(
    ("mixing", "shape"),
    [
        (Scene3D(size=16), (3, 16, 16)),
        (Scene3D(size=20, flat=True), (3, 20, 20)),
        (MNISTDecoder(), (1, 28, 28)),
        (SpriteMixing(), (1, 64, 64)),
    ],
)
def test_the_shape_of_images_is_that_of_what_is_observed(mixing, shape):
    n = 4 if isinstance(mixing, SpriteMixing) else 10
    built = mixing.build(n, Generator().manual_seed(0))
    assert built.image_shape == shape
    assert built(torch.zeros(2, n)).reshape(2, *shape).numel() == 2 * np.prod(shape)
