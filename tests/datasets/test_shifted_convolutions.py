"""Images that differ by a shift: encoded together they have the codes of the single images."""

import numpy as np
import pytest
import torch
from torch import nn

from isolatent.datasets import PackedImages, Sprites
from isolatent.datasets.shifted_convolutions import encode_shifted_images
from isolatent.encoders import BoxHead, ConvEncoder


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
    expected = module(torch.from_numpy(images[:])[:, None].float()).detach()
    torch.testing.assert_close(encode_shifted_images(module, images), expected, atol=1e-6, rtol=0)


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
def test_other_layers_and_sprites_at_the_border_are_not_encoded_together(module, images):
    assert encode_shifted_images(module, images) is None


class Negative(nn.Module):
    """A module with one child, whose input it changes."""

    def __init__(self):
        super().__init__()
        self.network = ConvEncoder(2)

    def forward(self, x):
        return self.network(1 - x)


def test_a_module_that_does_more_than_its_layers_is_not_encoded_together():
    assert encode_shifted_images(Negative(), drawn((32, 32), [(3, 4)])) is None


def test_dropout_is_off_and_the_mode_of_the_module_is_kept():
    module = encoder(nn.Dropout(0.5)).train()
    images = drawn((32, 32), [(3, 4), (8, 9)])
    codes = encode_shifted_images(module, images)
    assert module.training
    expected = module[0](torch.from_numpy(images[:])[:, None].float()).detach()
    torch.testing.assert_close(codes, expected, atol=1e-6, rtol=0)


class Windows(Sprites):
    """Three windows at 36 places."""

    names, sizes, categorical = ("window", "row", "column"), (3, 6, 6), (True, False, False)

    def __init__(self):
        places = np.stack(np.meshgrid(range(1, 7), range(1, 7), indexing="ij"), -1).reshape(-1, 2)
        self.images = drawn((32, 32), places)

    def __len__(self):
        return len(self.images)

    def grid(self, *, cache=True):
        return self.images

    def factors_at(self, index):
        return torch.stack(torch.unravel_index(index, self.sizes), 1)

    def observe(self, factors):
        index = factors @ torch.tensor([36, 6, 1])
        return torch.from_numpy(self.images[index.numpy()])[:, None].float()


def test_sprites_encode_their_grid_together():
    world, module = Windows(), encoder()
    expected = module(world.observe(world.factors_at(torch.arange(108)))).detach()
    torch.testing.assert_close(world.encode_grid(module), expected, atol=1e-6, rtol=0)


def test_a_subclass_that_shows_other_images_does_not():
    class Inverted(Windows):
        def observe(self, factors):
            return 1 - super().observe(factors)

    assert Inverted().encode_grid(encoder()) is None
