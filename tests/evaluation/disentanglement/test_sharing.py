"""Images that differ by a shift: encoded together they have the codes they have one by one."""

import numpy as np
import pytest
import torch
from torch import nn

from isolatent.datasets import FactorArray, PackedImages, Sprites
from isolatent.encoders import BoxHead, ConvEncoder
from isolatent.evaluation import EncodedGrid
from isolatent.evaluation.disentanglement.grid import SAMPLED
from isolatent.evaluation.disentanglement.sharing import shared_encoder


def drawn(window, places, count=3, seed=0):
    """Random windows whose outermost pixels are black."""
    pixels = np.random.default_rng(seed).random((count, *window)) < 0.4
    pixels[:, [0, -1]] = pixels[:, :, [0, -1]] = False
    return PackedImages(np.packbits(pixels.reshape(count, -1), axis=1), window, (64, 64), places)


def encoder(*after, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(ConvEncoder(5), *after).eval()


@pytest.mark.parametrize("window", [(8, 16), (32, 32), (60, 64)])
def test_codes_are_those_of_the_whole_images(window):
    room = np.subtract((64, 64), window) + 1
    places = np.random.default_rng(1).integers(room, size=(40, 2))
    corners = [(0, 0), (room[0] - 1, room[1] - 1)]  # where only the margin is beside the border
    images = drawn(window, np.concatenate([places, corners]))
    module = encoder(BoxHead())
    encode = shared_encoder(module, images)
    for number in range(3):
        shown = images[np.arange(42) + 42 * number]
        expected = module(torch.from_numpy(shown)[:, None].float()).detach()
        np.testing.assert_allclose(encode(number), expected, atol=1e-6)


class Windows(Sprites):
    """Three windows at 36 places, and how often an image was drawn on its own."""

    names, sizes, categorical = ("window", "row", "column"), (3, 6, 6), (True, False, False)

    def __init__(self):
        places = np.stack(np.meshgrid(range(1, 7), range(1, 7), indexing="ij"), -1).reshape(-1, 2)
        self.images, self.drawn = drawn((32, 32), places), 0

    def __len__(self):
        return len(self.images)

    def grid(self, *, cache=True):
        return self.images

    def factors_at(self, index):
        return torch.stack(torch.unravel_index(index, self.sizes), 1)

    def observe(self, factors):
        self.drawn += len(factors)
        index = factors @ torch.tensor([36, 6, 1])
        return torch.from_numpy(self.images[index.numpy()])[:, None].float()


def test_a_grid_is_encoded_that_way_if_most_of_it_is_asked_for():
    world, module = Windows(), encoder()
    shared, single = EncodedGrid(module, world, 0), EncodedGrid(module.forward, world, 0)
    some, most = np.arange(0, 108, 3), np.arange(90)
    shared.encode(some)
    assert world.drawn == shared.encoded == len(some)
    shared.encode(some, most)
    assert world.drawn == len(some) + SAMPLED
    assert shared.encoded == len(np.union1d(some, most))
    np.testing.assert_allclose(shared.codes_at(most), single.codes_at(most), atol=1e-6)


def test_a_grid_of_other_images_than_the_world_shows_is_not_used():
    class Negative(Windows):
        def observe(self, factors):
            return 1 - super().observe(factors)

    world, module = Negative(), encoder()
    shared, single = EncodedGrid(module, world, 0), EncodedGrid(module.forward, world, 0)
    index = np.arange(len(world))
    np.testing.assert_allclose(shared.codes_at(index), single.codes_at(index), atol=1e-6)


class WithTuple(FactorArray):
    grid = (3, 4)


class WithArguments(FactorArray):
    def grid(self, rows, columns):
        raise AssertionError("nobody asked for it")


@pytest.mark.parametrize("kind", [WithTuple, WithArguments])
def test_what_other_worlds_call_a_grid_is_their_own(kind):
    world, module = kind(np.random.default_rng(0).random((12, 64, 64)), (3, 4)), encoder()
    shown = module(world.observe(world.factors_at(np.arange(12)))).detach()
    codes = EncodedGrid(module, world, 0).codes_at(np.arange(12))
    np.testing.assert_allclose(codes, shown, atol=1e-6)


@pytest.mark.parametrize(
    ("module", "images"),
    [
        (nn.Sequential(nn.Upsample(scale_factor=1), ConvEncoder(2)), drawn((32, 32), [(3, 4)])),
        (ConvEncoder(2, channels=3), drawn((32, 32), [(3, 4)])),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 4)), drawn((8, 8), [(3, 4)])),
        (nn.Flatten(), drawn((32, 32), [(3, 4)])),
        (ConvEncoder(2), PackedImages(np.full((1, 8), 255, np.uint8), (8, 8), (64, 64), [(0, 5)])),
        (ConvEncoder(2), PackedImages(np.full((1, 8), 255, np.uint8), (8, 8), (64, 64), [(5, 56)])),
    ],
)
def test_other_layers_and_sprites_at_the_border_are_not_shared(module, images):
    assert shared_encoder(module, images) is None
