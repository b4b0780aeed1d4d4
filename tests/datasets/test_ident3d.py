"""The 3DIdent reader, on small folders of the same layout."""

import io

import numpy as np
import pytest
from PIL import Image

from isolatent.datasets import Ident3D, load_3dident
from published_layouts import write_3dident


@pytest.fixture(autouse=True)
def _no_data(monkeypatch):
    monkeypatch.delenv("ISOLATENT_DATA", raising=False)


def test_rows_are_those_of_the_folder(tmp_path, monkeypatch):
    latents, images = write_3dident(tmp_path / "train")
    other, _ = write_3dident(tmp_path / "test", 4, digits=6, seed=1)
    monkeypatch.setenv("ISOLATENT_DATA", str(tmp_path))
    for stored in (load_3dident(), load_3dident(tmp_path), load_3dident(tmp_path / "train")):
        assert np.array_equal(stored.latents, latents)
        shown = stored.observe([4, 0, 4])
        assert shown.shape == (3, 3, 224, 224)
        assert np.allclose(shown, images[[4, 0, 4]].transpose(0, 3, 1, 2) / 255)
    assert np.array_equal(load_3dident(part="test").latents, other)
    assert len(stored.names) == 10


def test_images_are_reduced_by_averaging(tmp_path):
    _, images = write_3dident(tmp_path)
    stored = load_3dident(tmp_path, size=56)
    mean = images.reshape(-1, 56, 4, 56, 4, 3).mean((2, 4)).transpose(0, 3, 1, 2) / 255
    assert stored.observation_shape == (3, 56, 56)
    assert np.abs(stored.observe(range(6)).numpy() - mean).max() <= 0.5 / 255 + 1e-6
    with pytest.raises(ValueError, match="size must be an integer >= 8 and <= 224, got 512"):
        load_3dident(tmp_path, size=512)


def test_opening_reads_no_image(tmp_path):
    write_3dident(tmp_path)
    for path in (tmp_path / "images").iterdir():
        path.write_bytes(b"")
    assert isinstance(load_3dident(tmp_path), Ident3D)  # the names are right


def png(size, cut=None):
    file = io.BytesIO()
    Image.fromarray(np.zeros((*size, 3), np.uint8)).save(file, "png")
    return file.getvalue()[:cut]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"plain text", "not a PNG image"),
        (b"", "not a PNG image"),
        (png((224, 224), 200), "truncated"),
        (png((100, 224)), "must be 224 x 224 pixels, got 224 x 100"),
        (png((30_000, 10_000)), "pixels, got 10000 x 30000|not a PNG image"),
        (b"GIF89a" + bytes(50), "not a PNG image"),
    ],
    ids=["text", "empty", "cut", "narrow", "huge", "gif"],
)
def test_broken_images_are_named(tmp_path, content, message):
    write_3dident(tmp_path)
    (tmp_path / "images/00003.png").write_bytes(content)
    stored = load_3dident(tmp_path)
    assert stored.observe([0, 5]).shape == (2, 3, 224, 224)
    with pytest.raises(ValueError, match=f"^images/00003.png: .*({message})"):
        stored.observe([0, 3])


def test_files_that_do_not_belong_are_named(tmp_path):
    write_3dident(tmp_path)
    (tmp_path / "images/notes.txt").write_text("")
    with pytest.raises(ValueError, match=r"^images: must hold images .* only, got notes.txt$"):
        load_3dident(tmp_path)
    (tmp_path / "images/notes.txt").rename(tmp_path / "images/00006.png")
    with pytest.raises(ValueError, match=r"one image for each of the 6 rows .*, got 7 images"):
        load_3dident(tmp_path)
    for name in ("00006.png", "00002.png"):
        (tmp_path / "images" / name).unlink()
    with pytest.raises(ValueError, match=r"got 5 images; 00002.png is missing"):
        load_3dident(tmp_path)
    (tmp_path / "images/2.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"as many digits each, got 6 images"):
        load_3dident(tmp_path)


@pytest.mark.parametrize(
    ("latents", "message"),
    [
        (np.zeros((6, 9)), r"must hold floats \(N, 10\), got float64 \(6, 9\)"),
        (np.zeros((6, 10), int), "must hold floats"),
        (np.full((6, 10), 1.5), r"latents in \[-1, 1\]"),
        (np.full((6, 10), np.nan), r"latents in \[-1, 1\]"),
        (np.zeros((0, 10)), "at least 2 rows"),
        (np.array([{}], dtype=object), "not a complete .npy file"),
        (np.zeros((5, 10)), "images: must hold one image for each of the 5 rows"),
    ],
    ids=str,
)
def test_other_latents_are_refused(tmp_path, latents, message):
    write_3dident(tmp_path)
    np.save(tmp_path / "raw_latents.npy", latents)
    with pytest.raises(ValueError, match=message):
        load_3dident(tmp_path)


def test_missing_and_truncated_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="got neither"):
        load_3dident()
    with pytest.raises(FileNotFoundError, match=r"raw_latents.npy.*Zenodo record 4502485"):
        load_3dident(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"raw_latents.npy: does not exist"):
        Ident3D(tmp_path)
    write_3dident(tmp_path)
    path = tmp_path / "raw_latents.npy"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"raw_latents.npy: not a complete .npy file"):
        load_3dident(tmp_path)
    with pytest.raises(ValueError, match="part must be one of 'train', 'test', got 'valid'"):
        load_3dident(tmp_path, "valid")


def test_wrong_rows_are_refused(tmp_path):
    write_3dident(tmp_path)
    stored = load_3dident(tmp_path)
    with pytest.raises(IndexError, match="rows must be from 0 to 5, got 2 … 6"):
        stored.observe([2, 6])
    with pytest.raises(ValueError, match="rows must be integers"):
        stored.observe([0.5])
