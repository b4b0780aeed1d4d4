"""KITTI Masks: the reader, on small files of the same layout, and the stand-in."""

import os
import pickle

import numpy as np
import pytest
from scipy.stats import kurtosis

from isolatent.datasets import load_kitti_masks, synthetic_kitti_masks

RANDOM = np.random.default_rng(0)
LENGTHS = (2, 5, 3)
VIDEOS = [RANDOM.random((length, 64, 64)) < 0.1 for length in LENGTHS]
LATENTS = [RANDOM.random((length, 3)).astype(np.float32) for length in LENGTHS]


def write(folder, **changed):
    content = {"pedestrians": VIDEOS, "pedestrians_latents": LATENTS} | changed
    path = folder / "kitti_peds_v2.pickle"
    path.write_bytes(pickle.dumps({k: v for k, v in content.items() if v is not None}))
    return path


@pytest.fixture(autouse=True)
def _no_data(monkeypatch):
    monkeypatch.delenv("ISOLATENT_DATA", raising=False)


def test_frames_and_factors_are_those_of_the_file(tmp_path, monkeypatch):
    path = write(tmp_path)
    monkeypatch.setenv("ISOLATENT_DATA", str(tmp_path))
    for masks in (load_kitti_masks(), load_kitti_masks(path), load_kitti_masks(tmp_path)):
        assert masks.starts.tolist() == [0, 2, 7, 10]
        assert (len(masks), masks.n_sequences, masks.n_factors) == (10, 3, 3)
        shown = masks.observe(np.arange(10))
        assert shown.shape == (10, 1, 64, 64)
        assert np.array_equal(shown[:, 0], np.concatenate(VIDEOS))
        assert np.array_equal(masks.latents, np.concatenate(LATENTS))
        assert masks.images.nbytes < 10 * 64 * 64 / 7
        assert "synthetic" not in repr(masks)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pedestrians_latents": None}, r"must be a dictionary with .*, got \['pedestrians'\]"),
        ({"pedestrians": []}, "lists of one length, at least 1"),
        ({"pedestrians": VIDEOS[:2]}, "lists of one length"),
        ({"pedestrians": np.zeros((3, 64, 64))}, "lists of one length"),
        ({"pedestrians": [v[:, 1:] for v in VIDEOS]}, r"pedestrians\[0\] .*got \(2, 63, 64\)"),
        ({"pedestrians": [VIDEOS[0], None, VIDEOS[2]]}, r"pedestrians\[1\] .*got NoneType"),
        ({"pedestrians": [v * 1.0 for v in VIDEOS]}, "must hold booleans, got float64 up to 1"),
        ({"pedestrians": [v * np.uint8(255) for v in VIDEOS]}, "booleans, got uint8 up to 255"),
        ({"pedestrians": [v[:0] for v in VIDEOS]}, r"pedestrians\[0\] .*got \(0, 64, 64\)"),
        ({"pedestrians_latents": LATENTS[::-1]}, r"latents\[0\] must be an array \(2, 3\)"),
        ({"pedestrians_latents": [a[:, :2] for a in LATENTS]}, r"got \(2, 2\)"),
        ({"pedestrians_latents": [a * np.nan for a in LATENTS]}, r"latents\[0\] must be finite"),
    ],
)
def test_another_layout_is_refused(tmp_path, changed, message):
    with pytest.raises(ValueError, match=f"^kitti_peds_v2.pickle: .*{message}"):
        load_kitti_masks(write(tmp_path, **changed))


def test_a_payload_never_runs(tmp_path):
    class Payload:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/ran",)

    path = write(tmp_path, pedestrians_latents=[*LATENTS[:2], Payload()])
    with pytest.raises(ValueError, match=r"kitti_peds_v2.pickle: refused, since it names .*system"):
        load_kitti_masks(path)
    assert not (tmp_path / "ran").exists()


def test_truncated_and_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"does not exist.*Zenodo record 3931823"):
        load_kitti_masks(tmp_path)
    with pytest.raises(ValueError, match="ISOLATENT_DATA must name that directory; got neither"):
        load_kitti_masks()
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ValueError, match=r"^kitti_peds_v2.pickle: not a complete pickle"):
        load_kitti_masks(path)


def test_factors_of_the_stand_in_are_measured():
    masks = synthetic_kitti_masks(20, seed=1)
    assert "synthetic stand-in" in repr(masks)
    shown = masks.observe(np.arange(len(masks)))[:, 0].double().numpy()
    area = shown.sum((1, 2))
    rows = np.arange(64)
    y = (shown * rows[:, None]).sum((1, 2)) / area
    x = (shown * rows).sum((1, 2)) / area
    assert masks.latents == pytest.approx(np.stack([y, x, area], axis=1), rel=1e-6)
    assert not shown[:, [0, -1]].any()  # no figure is cut off
    assert not shown[:, :, [0, -1]].any()


def test_the_stand_in_has_sequences_with_sparse_heavy_tailed_steps():
    masks = synthetic_kitti_masks(150)
    lengths = np.diff(masks.starts)
    assert lengths.min() >= 2
    assert len(set(lengths)) > 20
    parts = [masks.latents[a:b] for a, b in zip(masks.starts, masks.starts[1:], strict=False)]
    steps = np.concatenate([np.diff(part, axis=0) for part in parts])
    assert (kurtosis(steps) > 2).all()  # 0 for a normal, 3 for a Laplace distribution
    # Paths are smooth: steps are small against the range of a factor.
    assert (np.median(abs(steps), axis=0) < 0.05 * np.ptp(masks.latents, axis=0)).all()
    assert (abs(np.corrcoef(masks.latents.T) - np.eye(3)) < 0.25).all()


def test_a_seed_determines_the_stand_in():
    one, again, other = (synthetic_kitti_masks(3, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.latents, again.latents)
    assert np.array_equal(one.images[:], again.images[:])
    assert len(one) != len(other) or not np.array_equal(one.latents, other.latents)
    with pytest.raises(ValueError, match="sequences must be an integer >= 1"):
        synthetic_kitti_masks(0)


def test_tails_of_the_steps_grow_with_their_spread():
    """Kurtosis of how far figures walk: 3 for a normal step, less for steps of one size."""
    found = []
    for options in ({"spread": 0.0}, {"spread": 0.6}, {}):
        masks = synthetic_kitti_masks(150, seed=0, **options)
        within = np.setdiff1d(np.arange(len(masks) - 1), masks.starts[1:] - 1)
        found.append(kurtosis(np.diff(masks.latents[:, 1])[within], fisher=False))
    assert found[0] < 3 < found[1] < found[2]


@pytest.mark.parametrize("spread", [-1.0, float("nan"), "1"])
def test_invalid_spreads_are_refused(spread):
    with pytest.raises((ValueError, TypeError), match="spread must be"):
        synthetic_kitti_masks(1, spread=spread)
