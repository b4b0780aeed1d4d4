"""Folders of images, videos and arrays of images on the command line."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator

from isolatent.datasets import render_sprites
from isolatent.pairs import Augmentations, AugmentedPairs, ImagePairs, read_images
from isolatent.pairs import images as images_module
from isolatent.training import ContrastiveICA

SHORT = ("--n-components", "2", "--max-steps", "4", "--batch-size", "16", "--quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two sequences of a sprite that moves about, 16 × 16 pixels."""
    folder = tmp_path_factory.mktemp("films")
    generator = Generator().manual_seed(0)
    for name in ("first", "second"):
        (folder / name).mkdir()
        steps = 0.1 * torch.randn(30, 2, generator=generator)
        x, y = ((0.5 + steps.cumsum(0)) % 1).T
        for k, image in enumerate(render_sprites("heart", 1.0, 0.0, x, y, size=16)):
            pixels = (255 * image[0].numpy()).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{k}.png")
    return folder


def source_of(folder, which):
    images = read_images(folder)
    if which == "sequences":
        return ImagePairs.from_sequences(images, (1, 2))
    if which == "table":
        return ImagePairs.from_rows(images, np.arange(40), np.arange(40) + 10)
    return AugmentedPairs(images, Augmentations.only(["crop", "brightness"]))


@pytest.mark.parametrize("which", ["sequences", "table", "augmentations"])
def test_a_folder_is_fitted_and_encoded(isolatent, tmp_path, folder, which):
    options = {
        "sequences": ("--lag", "2"),
        "table": ("--pairs", tmp_path / "pairs.csv"),
        "augmentations": ("--augment", "crop,brightness"),
    }[which]
    names = read_images(folder).names
    rows = [f"{names[k]},{names[k + 10]}" for k in range(40)]
    (tmp_path / "pairs.csv").write_text("\n".join(["anchor,positive", *rows]))
    out, codes = tmp_path / "model", tmp_path / "h.npy"
    done = isolatent("fit", folder, *options, *SHORT, "--out", out)
    assert done.code == 0, done.err
    assert (out / "report.html").is_file()
    assert isolatent("transform", out, folder, "--out", codes).code == 0
    model = ContrastiveICA.load(out)
    assert model.observation_shape_ == (1, 16, 16)
    images = read_images(folder)
    h = model.transform(images.read(slice(60)).numpy())
    np.testing.assert_array_equal(np.load(codes), h)
    # The command trains as the same settings do in a program.
    again = ContrastiveICA(**model.get_params()).fit(source_of(folder, which))
    np.testing.assert_allclose(again.transform(images.read(slice(60)).numpy()), h, atol=1e-5)


def test_an_array_of_images_is_fitted_like_its_folder(isolatent, tmp_path, folder):
    images = read_images(folder / "first")
    np.save(tmp_path / "x.npy", np.round(255 * images.read(slice(30)).numpy()).astype(np.uint8))
    codes = []
    for data in (folder / "first", tmp_path / "x.npy"):
        out, h = tmp_path / f"model{len(codes)}", tmp_path / f"h{len(codes)}.npy"
        assert isolatent("fit", data, *SHORT, "--out", out).code == 0
        assert isolatent("transform", out, data, "--out", h).code == 0
        codes.append(np.load(h))
    np.testing.assert_array_equal(*codes)


def test_the_first_lines_say_what_was_read(isolatent, tmp_path, folder):
    done = isolatent("fit", folder, *SHORT[:-1], "--image-size", "20x24", "--out", tmp_path / "m")
    assert done.code == 0, done.err
    assert "60 images of 1 × 20 × 24, 58 pairs, 2 sequences\n2 components; nothing" in done.out
    assert "decoded 60 of 60 images" in done.err
    assert "images/s" in done.err.splitlines()[-1]


def test_codes_of_images_are_scored_and_reported(isolatent, tmp_path, folder):
    out, z = tmp_path / "m", tmp_path / "z.npy"
    assert isolatent("fit", folder, *SHORT, "--out", out).code == 0
    np.save(z, np.random.default_rng(0).normal(size=(60, 2)))
    done = isolatent("evaluate", out, folder, "--truth", z)
    assert done.code == 0, done.err
    assert "linear_r2" in done.out
    done = isolatent("report", out, "--data", folder, "--truth", z)
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--augment", "blur"), "--augment must be one of 'all', 'crop'"),
        (("--augment", "hue"), "hue must be 0 for images with 1 channels"),
        (("--augment", "all", "--lag", "2"), "--augment and --lag exclude each other"),
        (("--image-size", "big"), "--image-size must be a number of pixels, or two as 48x64"),
        (("--encoder", "mlp"), "--encoder must be one of 'pooled', 'conv', 'residual'"),
        (("--session", "day"), "--session is for tables and arrays of rows"),
        (("--lag", "40"), "--lag must be shorter than the longest sequence, 30 images"),
        (("--pairs", "none.csv"), "none.csv: does not exist"),
    ],
)
def test_wrong_options_are_explained_in_one_line(isolatent, tmp_path, folder, options, message):
    done = isolatent("fit", folder, *SHORT, *options, "--out", tmp_path / "m")
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "m" / "model.json").exists()


def test_options_of_images_are_refused_for_tables(isolatent, files, tmp_path):
    done = isolatent("fit", files / "x.npy", *SHORT, "--augment", "crop", "--out", tmp_path / "m")
    assert done.code == 2
    assert "--augment is for a folder of images or a video" in done.err


@pytest.mark.parametrize(
    ("shape", "options", "named"),
    [
        ((30, 16, 16), (), True),
        ((30, 16, 16), ("--encoder", "pooled"), False),
        ((30, 16, 16), ("--encoder", "mlp"), False),
        ((30, 3, 16, 16), (), False),
    ],
)
def test_an_array_that_may_hold_trials_is_said_to_be_taken_for_images(
    isolatent, tmp_path, shape, options, named
):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.save(tmp_path / "x.npy", pixels)
    done = isolatent("fit", tmp_path / "x.npy", *SHORT[:-1], *options, "--out", tmp_path / "m")
    assert done.code == 0, done.err
    assert ("if the axes are trials, time and columns, use --encoder mlp" in done.out) == named
    as_trials = "30 trials of 16 rows" in done.out
    assert as_trials == ("mlp" in options)


def test_a_stray_file_is_named_before_anything_is_written(isolatent, tmp_path, folder):
    stray = tmp_path / "films"
    stray.mkdir()
    (stray / "0.png").write_bytes((folder / "first" / "0.png").read_bytes())
    (stray / "notes.txt").write_text("hello")
    done = isolatent("fit", stray, *SHORT, "--out", tmp_path / "m")
    assert done.code == 2
    assert "notes.txt: is neither an image nor a video" in done.err
    assert not (tmp_path / "m").exists()


def test_a_model_of_images_takes_images_of_its_size_only(isolatent, tmp_path, folder, model, files):
    out = tmp_path / "images"
    assert isolatent("fit", folder, *SHORT, "--out", out).code == 0
    np.save(tmp_path / "x.npy", np.zeros((3, 8, 8), np.uint8))
    done = isolatent("transform", out, tmp_path / "x.npy")
    assert "must hold images of 1 × 16 × 16 like the training data, got 1 × 8 × 8" in done.err
    done = isolatent("transform", out, files / "x.npy")
    assert "must have 256 columns like the training data" in done.err
    done = isolatent("transform", model, folder)
    assert "must be a file like the training data, got images" in done.err


def test_images_beyond_the_memory_are_kept_on_disk(isolatent, folder, monkeypatch):
    places = []
    placed = images_module._place

    def place(*given):
        places.append(placed(*given))
        return places[-1]

    monkeypatch.setattr(images_module, "_place", place)
    assert isolatent("fit", folder, *SHORT, "--out", "model", "--max-memory", "1kB").code == 0
    words = ("transform", "model", folder, "--max-memory")
    assert isolatent(*words, "1kB", "--out", "a.npy").code == 0
    assert isolatent(*words, "1MB", "--out", "b.npy").code == 0
    assert places == ["disk", "disk", "memory"]
    np.testing.assert_array_equal(np.load("a.npy"), np.load("b.npy"))
    done = isolatent("transform", "model", folder, "--max-memory", "much", "--out", "c.npy")
    assert (done.code, "--max-memory must be a size" in done.err) == (2, True)
