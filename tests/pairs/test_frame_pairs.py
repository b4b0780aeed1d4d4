"""Pairs of frames stay in their sequence, at the papers' distances."""

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.datasets import KittiMasks, PackedImages, synthetic_kitti_masks
from isolatent.pairs import FinitePairSource, FramePairs, SplitError

LENGTHS = (2, 1, 7, 30, 3)
STARTS = np.cumsum([0, *LENGTHS])
COUNT = int(STARTS[-1])
BITS = np.random.default_rng(0).integers(0, 256, (COUNT, 512), np.uint8)
FACTORS = np.random.default_rng(1).random((COUNT, 3)).astype(np.float32)
FRAMES = KittiMasks(PackedImages(BITS, (64, 64)), FACTORS, STARTS, "random bits")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sequence_of(frames):
    return np.searchsorted(STARTS, frames, side="right")


@pytest.mark.parametrize("max_lag", [1, 5])
def test_positives_are_at_the_papers_distances(max_lag):
    pairs = FramePairs(FRAMES, max_lag)
    drawn = [pairs.sample_frames(len(pairs), generator(seed)) for seed in range(400)]
    for anchors, positives in drawn[:5]:
        assert len(set(anchors)) == len(pairs) == sum(n - 1 for n in LENGTHS)  # all but the last
        assert np.array_equal(sequence_of(anchors), sequence_of(positives))
        assert ((positives - anchors >= 1) & (positives - anchors <= max_lag)).all()
    anchors, positives = map(np.concatenate, zip(*drawn, strict=True))
    # The second last frame but one of the longest sequence: d = 1, or the last for every other d.
    steps = (positives - anchors)[anchors == STARTS[4] - 3]
    shares = np.bincount(steps, minlength=3)[1:3] / len(steps)
    assert shares == pytest.approx([1 / max_lag, 1 - 1 / max_lag], abs=0.08)
    inside = (positives - anchors)[anchors == STARTS[3] + 2]
    assert np.bincount(inside)[1:] / len(inside) == pytest.approx(1 / max_lag, abs=0.08)


def test_images_and_factors_are_those_of_the_frames():
    pairs = FramePairs(FRAMES, 5)
    known = pairs.sample_known(20, generator())
    anchors, positives = pairs.sample_frames(20, generator())
    assert torch.equal(known.x, FRAMES.observe(anchors))
    assert torch.equal(pairs.sample(20, generator())[1], FRAMES.observe(positives))
    assert np.array_equal(known.y, FACTORS[anchors])
    assert np.array_equal(known.y_pos, FACTORS[positives])


def test_parts_share_no_sequence():
    pairs = FramePairs(synthetic_kitti_masks(30), 5)
    assert isinstance(pairs, FinitePairSource)
    most, rest = pairs.split(0.2, generator())
    assert len(most) + len(rest) == len(pairs)
    assert 0.2 <= len(rest) / len(pairs) < 0.35
    starts = pairs.frames.starts
    both = [np.concatenate(part.sample_frames(2000, generator())) for part in (most, rest)]
    seen = [set(np.searchsorted(starts, frames, side="right")) for frames in both]
    assert not seen[0] & seen[1]
    with pytest.raises(SplitError, match="in whole sequences"):
        FramePairs(synthetic_kitti_masks(1)).split(0.5, generator())


def test_order_and_beliefs():
    assert FramePairs(FRAMES, 1).ordered
    assert not FramePairs(FRAMES, 5).ordered
    beliefs = iso.Beliefs.of(FramePairs(FRAMES, 5))
    assert beliefs == iso.Beliefs.of(FRAMES)
    assert "recorded steps" in beliefs.conditional
    model = iso.ContrastiveICA(10, space="euclidean", conditional="laplace")
    assert "no theorem covers" in model.guarantee_for(FramePairs(FRAMES, 1)).gap


def test_wrong_arguments():
    with pytest.raises(TypeError, match="frames must be KittiMasks"):
        FramePairs(np.zeros((3, 64, 64)))
    with pytest.raises(ValueError, match="max_lag must be an integer >= 1, got 0"):
        FramePairs(FRAMES, 0)
    single = KittiMasks(PackedImages(BITS[:2], (64, 64)), FACTORS[:2], np.arange(3), "two")
    with pytest.raises(ValueError, match="at least 2 frames, got none"):
        FramePairs(single)
