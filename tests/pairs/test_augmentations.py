"""Augmentations: each against its definition, image by image, and the pairs they make."""

import colorsys
import math

import numpy as np
import pytest
import torch
from torch import Generator
from torch.nn.functional import interpolate

from isolatent.pairs import (
    AUGMENTATIONS,
    Augmentations,
    AugmentedPairs,
    FinitePairSource,
    Images,
    augment,
)
from isolatent.pairs.augmentations import colour_matrices

LUMA = torch.tensor([0.299, 0.587, 0.114])


def images(count=6, channels=3, height=16, width=16):
    return torch.rand(count, channels, height, width, generator=Generator().manual_seed(1))


def draw(count, names=None, seed=0, **options):
    chosen = Augmentations(**options) if names is None else Augmentations.only(names)
    return chosen.draw(count, Generator().manual_seed(seed))


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_only_what_was_applied_changes_images(name):
    x, drawn = images(200), draw(200, [name])
    changed = (augment(x, drawn) - x).abs().flatten(1).amax(1) > 1e-6
    assert torch.equal(changed, drawn.applied()[name])
    assert changed.any()
    others = {other: int(which.sum()) for other, which in drawn.applied().items() if other != name}
    assert set(others.values()) == {0}


def test_draws_have_their_distributions():
    drawn = draw(20_000)
    share = {name: float(which.float().mean()) for name, which in drawn.applied().items()}
    expected = {"flip": 0.5, "grayscale": 0.2} | dict.fromkeys(
        ("brightness", "contrast", "saturation", "hue"), 0.8
    )
    for name, probability in expected.items():
        assert share[name] == pytest.approx(probability, abs=0.015), name
    top, left, height, width = drawn.crop.T
    assert float(torch.stack([top, left, height, width]).min()) >= 0
    assert float((top + height).max()) <= 1 + 1e-6
    assert float((left + width).max()) <= 1 + 1e-6
    area = height * width
    assert 0.17 < float(area.min()) < 0.2 + 0.01  # a window wider than the image is cut
    assert float(area.mean()) == pytest.approx(0.6, abs=0.03)
    ratio = (width / height).log()
    assert float(ratio.abs().max()) <= math.log(4 / 3) + 1e-6
    changed = drawn.brightness[drawn.brightness != 1]
    assert float(changed.min()) == pytest.approx(0.6, abs=1e-2)
    assert float(changed.max()) == pytest.approx(1.4, abs=1e-2)


def test_parameters_of_one_augmentation_do_not_depend_on_the_others():
    alone, together = draw(50, ["hue"]), draw(50)
    assert torch.equal(alone.hue, together.hue)


@pytest.mark.parametrize("size", [(16, 16), (24, 16)])
def test_a_window_is_resampled_bilinearly(size):
    x = images(height=size[0], width=size[1])
    drawn = draw(6, ["crop"])._replace(
        crop=torch.tensor([[0.25, 0.5, 0.5, 0.25]]).expand(6, 4),
    )
    height, width = size
    window = x[:, :, height // 4 : 3 * height // 4, width // 2 : 3 * width // 4]
    expected = interpolate(window, size=size, mode="bilinear", align_corners=False)
    # At its border a window shows the pixels around it, which interpolation of the window lacks.
    inner = (..., slice(2, -2), slice(3, -3))
    torch.testing.assert_close(augment(x, drawn)[inner], expected[inner], atol=1e-5, rtol=0)


def test_a_flip_mirrors_columns():
    x, drawn = images(), draw(6, ["flip"])
    expected = torch.where(drawn.flip.view(-1, 1, 1, 1), x.flip(3), x)
    torch.testing.assert_close(augment(x, drawn), expected, atol=1e-6, rtol=0)


def test_colours_change_as_defined_pixel_by_pixel():
    x = 0.3 + 0.3 * images()  # so that nothing is clipped
    drawn = draw(6, jitter=1.0, crop=1.0, flip=0.0, brightness=0.2, grayscale=0.5, hue=0.0)
    for k, image in enumerate(x.double()):
        expected = image * drawn.brightness[k]
        luma = LUMA.double()
        mean = torch.einsum("c,chw->hw", luma, expected).mean()
        expected = drawn.contrast[k] * expected + (1 - drawn.contrast[k]) * mean
        gray = torch.einsum("c,chw->hw", luma, expected)
        if drawn.grayscale[k]:
            expected = gray.expand(3, -1, -1)
        else:
            expected = gray + drawn.saturation[k] * (expected - gray)
        shown = augment(x[k : k + 1], drawn.rows(slice(k, k + 1)))[0]
        torch.testing.assert_close(shown, expected.clamp(0, 1).float(), atol=1e-4, rtol=0)
    assert drawn.grayscale.any()
    assert not drawn.grayscale.all()


def test_hue_turns_as_on_the_colour_wheel_and_keeps_luma():
    turns = torch.tensor([0.05, -0.05, 0.2, 0.3])
    count = len(turns)
    matrices = colour_matrices(torch.ones(count), turns, torch.zeros(count, dtype=torch.bool))
    grey = torch.full((3,), 0.4, dtype=torch.float64)
    torch.testing.assert_close(LUMA.double() @ matrices, LUMA.double().expand(count, 3))
    torch.testing.assert_close(matrices @ grey, grey.expand(count, 3))
    torch.testing.assert_close(matrices[0] @ matrices[1], torch.eye(3, dtype=torch.float64))
    for colour in ((0.6, 0.3, 0.3), (0.3, 0.6, 0.3), (0.35, 0.3, 0.6)):
        turned = matrices @ torch.tensor(colour, dtype=torch.float64)
        before = colorsys.rgb_to_hsv(*colour)[0]
        moved = [colorsys.rgb_to_hsv(*after)[0] - before for after in turned.tolist()]
        for turn, found in zip(turns.tolist(), moved, strict=True):
            assert (found + 0.5) % 1 - 0.5 == pytest.approx(turn, abs=0.06)


def test_grayscale_removes_colour_and_saturation_scales_it():
    none, some = torch.tensor([True]), torch.tensor([False])
    (gray,) = colour_matrices(torch.ones(1), torch.full((1,), 0.1), none)
    torch.testing.assert_close(gray, LUMA.double().expand(3, 3))
    (twice,) = colour_matrices(torch.full((1,), 2.0), torch.zeros(1), some)
    torch.testing.assert_close(twice, 2 * torch.eye(3).double() - LUMA.double().expand(3, 3))


def test_images_of_one_channel_have_brightness_and_contrast():
    x = 0.3 + 0.3 * images(channels=1)
    suited = Augmentations.for_channels(1)
    assert not suited.uses("hue")
    drawn = suited.draw(6, Generator().manual_seed(0))._replace(
        crop=torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(6, 4), flip=torch.zeros(6).bool()
    )
    b, c = (part.view(-1, 1, 1, 1) for part in (drawn.brightness, drawn.contrast))
    expected = c * b * x + (1 - c) * (b * x).mean((1, 2, 3), keepdim=True)
    torch.testing.assert_close(augment(x, drawn), expected.clamp(0, 1))


def test_chunks_do_not_matter():
    x, drawn = images(600, height=8, width=8), draw(600)
    whole = augment(x, drawn)
    parts = [augment(x[k : k + 100], drawn.rows(slice(k, k + 100))) for k in range(0, 600, 100)]
    torch.testing.assert_close(whole, torch.cat(parts))
    assert float(whole.min()) >= 0
    assert float(whole.max()) <= 1


def test_pairs_are_views_of_one_image_with_known_parameters():
    pixels = np.random.default_rng(0).random((40, 3, 16, 16)).astype(np.float32)
    pairs = AugmentedPairs(Images(pixels))
    assert isinstance(pairs, FinitePairSource)
    assert len(pairs) == 40
    known = pairs.sample_known(16, Generator().manual_seed(3))
    x, x_pos = pairs.sample(16, Generator().manual_seed(3))
    assert torch.equal(known.x, x)
    assert torch.equal(known.x_pos, x_pos)
    assert len(set(known.rows.tolist())) == 16
    originals = torch.from_numpy(pixels[known.rows])
    assert torch.equal(augment(originals, known.parameters), x)
    assert torch.equal(augment(originals, known.parameters_pos), x_pos)
    most, rest = pairs.split(0.25, Generator().manual_seed(0))
    seen = [
        set(part.sample_known(200, Generator().manual_seed(0)).rows.tolist())
        for part in (most, rest)
    ]
    assert (len(seen[0]), len(seen[1])) == (30, 10)
    assert not seen[0] & seen[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": 0.0}, "crop must be a finite number > 0"),
        ({"crop": 1.5}, "crop must be a share of the area, at most 1, got 1.5"),
        ({"hue": 0.6}, "hue must be at most 0.5"),
        ({"flip": -0.1}, "flip must be a finite number >= 0"),
        ({"crop": 1.0, "flip": 0.0, "jitter": 0.0, "grayscale": 0.0}, "must change something"),
    ],
)
def test_wrong_parameters_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Augmentations(**options)


def test_colours_of_gray_images_cannot_change():
    gray = Images(np.zeros((4, 16, 16), np.uint8))
    with pytest.raises(ValueError, match="saturation must be 0 for images with 1 channels, got "):
        AugmentedPairs(gray, Augmentations())
    with pytest.raises(ValueError, match="names must be one of 'crop'"):
        Augmentations.only(["blur"])
