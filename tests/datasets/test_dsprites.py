"""The dSprites reader, on a small file of the same layout."""

import numpy as np
import pytest
import torch

from isolatent.datasets import FactorWorld, dsprites, load_dsprites

SIZES, SIDE = (3, 2, 4, 3, 2), 8
COUNT = int(np.prod(SIZES))
IMAGES = (np.random.default_rng(0).random((COUNT, SIDE, SIDE)) < 0.5).astype(np.uint8)
CLASSES = np.stack(np.unravel_index(np.arange(COUNT), (1, *SIZES)), axis=1)


def write(path, **changed):
    arrays = {
        "metadata": np.array({"title": "pickled as in the published file"}, dtype=object),
        "imgs": IMAGES,
        "latents_classes": CLASSES,
        "latents_values": CLASSES.astype(float),
    }
    arrays = {name: array for name, array in (arrays | changed).items() if array is not None}
    np.savez_compressed(path, **arrays)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, value in (("SIZES", SIZES), ("SIDE", SIDE), ("IMAGES_AT_A_TIME", 50)):
        monkeypatch.setattr(dsprites, name, value)
    monkeypatch.setenv("ISOLATENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ISOLATENT_DATA", raising=False)
    return tmp_path


def test_images_are_in_the_order_of_the_file(folder, monkeypatch):
    path = write(folder / dsprites.FILE)
    monkeypatch.setenv("ISOLATENT_DATA", str(folder))
    for world in (load_dsprites(path), load_dsprites(folder), load_dsprites(cache=False)):
        assert isinstance(world, FactorWorld)
        assert world.names == ("shape", "scale", "orientation", "x", "y")
        assert world.observation_shape == (1, SIDE, SIDE)
        shown = world.observe(torch.from_numpy(CLASSES[:, 1:]))
        assert np.array_equal(shown[:, 0], IMAGES)
        assert world.images.nbytes < IMAGES.nbytes / 7


def test_the_second_call_reads_the_cache(folder, monkeypatch):
    path = write(folder / "small.npz")
    first = load_dsprites(path)
    monkeypatch.setattr(dsprites, "_pack", lambda *_: pytest.fail("the bits are cached"))
    assert np.array_equal(load_dsprites(path).images[:], first.images[:])
    with pytest.raises(pytest.fail.Exception):
        load_dsprites(write(path, imgs=1 - IMAGES))  # another file of the same name


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"imgs": None}, "has no array 'imgs'; it has"),
        ({"latents_classes": None}, "has no array 'latents_classes'"),
        ({"imgs": IMAGES[:-1]}, r"imgs must have shape \(144, 8, 8\) and hold uint8"),
        ({"imgs": IMAGES.astype(float)}, r"imgs must .* of float64"),
        ({"imgs": np.asfortranarray(IMAGES)}, "by columns"),
        ({"imgs": IMAGES * 255}, "imgs must hold 0 and 1, got 255"),
        ({"latents_classes": CLASSES[:, 1:]}, r"latents_classes must have shape \(144, 6\)"),
        (
            {"latents_classes": CLASSES[::-1]},
            r"latents_classes must enumerate .* got \[0, 2, 1, 3, 2, 1\] in row 0",
        ),
        ({"imgs": np.array([{}], dtype=object)}, "imgs must have shape"),
    ],
    ids=str,
)
def test_another_layout_is_refused(folder, changed, message):
    path = write(folder / "small.npz", **changed)
    with pytest.raises(ValueError, match=message):
        load_dsprites(path)
    assert not list(folder.glob("cache/*"))


def test_missing_and_damaged_files_are_refused(folder):
    with pytest.raises(ValueError, match="ISOLATENT_DATA must name that directory"):
        load_dsprites()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_dsprites(folder)
    with pytest.raises(TypeError, match=r"path must be dsprites_.* or its directory.*, got 5"):
        load_dsprites(5)
    path = write(folder / "small.npz")
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"small.npz: not a complete \.npz file"):
        load_dsprites(path)
