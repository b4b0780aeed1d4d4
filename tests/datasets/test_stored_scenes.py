"""Stored renders: in memory and in files alike, and files are checked."""

import numpy as np
import pytest

import isolatent as iso
from isolatent.datasets import RenderedScenes, Scene3D, stored_scenes

WORLD = iso.World(iso.Box(10, -1, 1), iso.Uniform(), iso.Normal(0.1), Scene3D(16), seed=0)


def test_files_hold_what_memory_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_scenes, "RENDERED_AT_A_TIME", 7)
    inside = RenderedScenes.of(WORLD, 20)
    for stored in (
        RenderedScenes.of(WORLD, 20, folder=tmp_path / "a"),
        RenderedScenes.open(tmp_path / "a"),
    ):
        assert isinstance(stored.images, np.memmap)
        assert np.array_equal(stored.images, inside.images)
        assert np.array_equal(stored.latents, inside.latents)
    shown = WORLD.observe(inside.latents[[4, 2]])
    assert (inside.observe([4, 2]) - shown).abs().max() <= 0.5 / 255 + 1e-6
    other = RenderedScenes.of(WORLD, 20, seed=1)
    assert not np.array_equal(other.latents, inside.latents)


def test_an_interrupted_run_leaves_no_images(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_scenes, "_fill", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        RenderedScenes.of(WORLD, 20, folder=tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError, match=r"raw_latents.npy: does not exist"):
        RenderedScenes.open(tmp_path)


def test_wrong_files_and_arguments(tmp_path):
    RenderedScenes.of(WORLD, 5, folder=tmp_path)
    with pytest.raises(ValueError, match="folder must be empty or missing"):
        RenderedScenes.of(WORLD, 5, folder=tmp_path)
    np.save(tmp_path / "raw_latents.npy", np.zeros((4, 10)))
    with pytest.raises(ValueError, match=r"latents must be floats \(5, n\)"):
        RenderedScenes.open(tmp_path)
    np.save(tmp_path / "raw_latents.npy", np.zeros((5, 10)))
    images = tmp_path / "images.npy"
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"images.npy: not a complete .npy file"):
        RenderedScenes.open(tmp_path)
    plane = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Identity(), seed=0)
    with pytest.raises(ValueError, match="world must show images"):
        RenderedScenes.of(plane, 5)
    with pytest.raises(ValueError, match="images must be uint8"):
        RenderedScenes(np.zeros((2, 3)), np.zeros((2, 1, 8, 8)))
    with pytest.raises(ValueError, match="count must be an integer >= 2"):
        RenderedScenes.of(WORLD, 1)
