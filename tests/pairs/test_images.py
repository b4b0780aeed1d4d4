"""Images of a user: reading folders and videos, stores, and pairs by row numbers."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator

from isolatent.pairs import FinitePairSource, ImagePairs, Images, read_image_pairs, read_images
from isolatent.pairs.images import STORES, default_size

SIDE = 16


def pixels(count, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, SIDE, SIDE, channels), dtype=np.uint8)


def save(folder, images, names=None):
    folder.mkdir(parents=True, exist_ok=True)
    for k, image in enumerate(images):
        name = f"frame{k}.png" if names is None else names[k]
        Image.fromarray(image.squeeze()).save(folder / name)


def save_video(path, images, rate=10):
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("png", rate=rate)  # lossless
        stream.height, stream.width = images.shape[1:3]
        stream.pix_fmt = "rgb24"
        for image in images:
            for packet in stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def as_floats(images):
    return torch.from_numpy(np.moveaxis(images, 3, 1).astype(np.float32) / 255)


@pytest.mark.parametrize("store", STORES)
def test_every_store_returns_the_pixels_of_the_files(tmp_path, store):
    drawn = pixels(12)
    save(tmp_path, drawn)
    images = read_images(tmp_path, store=store)
    assert images.shape == (12, 3, SIDE, SIDE)
    assert images.names[1:3] == ["frame1.png", "frame2.png"]
    assert images.names[-1] == "frame11.png"  # after 9 and 10
    rows = np.array([11, 0, 3, 3])
    assert torch.equal(images.read(rows), as_floats(drawn[rows]))
    assert torch.equal(images.read(slice(2, 5)), as_floats(drawn[2:5]))


def test_what_does_not_fit_in_memory_goes_to_a_memory_map(tmp_path):
    save(tmp_path, pixels(4))
    assert isinstance(read_images(tmp_path, memory=100)._array, np.memmap)
    assert not isinstance(read_images(tmp_path)._array, np.memmap)


def test_arrays_of_all_types_are_the_same_images():
    drawn = pixels(5)
    expected = as_floats(drawn)
    first = np.moveaxis(drawn, 3, 1)
    for array, options in (
        (first, {}),
        (drawn, {"channels_last": True}),
        (first.astype(np.uint16) * 257, {}),
        (first.astype(np.float64) / 255, {}),
        (torch.from_numpy(first), {}),
    ):
        torch.testing.assert_close(Images(array, **options).read([0, 2, 4]), expected[[0, 2, 4]])
    assert Images(drawn[..., 0]).shape == (5, 1, SIDE, SIDE)


def test_folders_are_sessions_and_colours_are_kept_where_there_are_some(tmp_path):
    gray = np.repeat(pixels(3, 1), 3, axis=3)
    save(tmp_path / "b10", pixels(3))
    save(tmp_path / "b9", gray[..., :1])
    images = read_images(tmp_path)
    assert images.groups.tolist() == [0, 0, 0, 1, 1, 1]
    assert images.names[0] == "b9/frame0.png"
    assert torch.equal(images.read(slice(3)), as_floats(gray))
    assert read_images(tmp_path / "b9").shape[1] == 1
    assert read_images(tmp_path, grayscale=True).shape[1] == 1


def test_images_are_resized_by_averages(tmp_path):
    drawn = pixels(3)
    save(tmp_path, drawn)
    means = as_floats(drawn).unfold(2, 4, 4).unfold(3, 4, 4).mean((-2, -1))
    for store in ("memory", "stream"):
        images = read_images(tmp_path, size=4, store=store)
        torch.testing.assert_close(images.read([0, 1, 2]), means, atol=1 / 255 + 1e-6, rtol=0)
    assert read_images(tmp_path, size=(4, 8)).shape == (3, 3, 4, 8)
    assert default_size(tmp_path, SIDE) is None
    assert default_size(tmp_path, SIDE - 1) == (SIDE - 1, SIDE - 1)


def test_deep_images_keep_their_precision(tmp_path):
    drawn = np.arange(2 * SIDE * SIDE, dtype=np.uint16).reshape(2, SIDE, SIDE) * 100
    for k in range(2):
        Image.fromarray(drawn[k]).save(tmp_path / f"{k}.tif")
    expected = torch.from_numpy((drawn / 65535).astype(np.float32))[:, None]
    torch.testing.assert_close(read_images(tmp_path).read([0, 1]), expected)


@pytest.mark.parametrize("store", ["auto", "memory", "disk"])
def test_frames_of_videos_are_sequences(tmp_path, store):
    first, second = pixels(5), pixels(4, seed=1)
    save_video(tmp_path / "clip2.mov", first)
    save_video(tmp_path / "clip10.mov", second)
    images = read_images(tmp_path, store=store)
    assert images.groups.tolist() == [0] * 5 + [1] * 4
    assert images.names[5] == "clip10.mov:0"
    assert torch.equal(images.read(slice(9)), as_floats(np.concatenate([first, second])))
    alone = read_images(tmp_path / "clip2.mov", size=(8, 4), store=store)
    assert alone.shape == (5, 3, 8, 4)


def test_progress_counts_images(tmp_path):
    save(tmp_path, pixels(5))
    reports = []
    images = read_images(tmp_path, report=lambda *report: reports.append(report))
    assert reports[-1][:2] == (5, 5)
    assert reports[-1][2] > 0
    assert images.n_read == 0
    images.read([0, 1])
    assert images.n_read == 2


def truncated_png(path):
    Image.fromarray(pixels(1)[0]).save(path)
    path.write_bytes(path.read_bytes()[:-200])


def bomb(path):
    """A valid header of 100 000 × 100 000 pixels, without them."""

    def chunk(data):
        return struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))

    header = struct.pack(">II5B", 100_000, 100_000, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR" + header) + chunk(b"IDAT"))


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("notes.txt", lambda path: path.write_text("hello"), "neither an image nor a video"),
        ("x.png", lambda path: path.write_text("hello"), "is not a valid image"),
        ("x.png", truncated_png, "cannot be decoded"),
        ("x.png", bomb, "cannot be decoded"),
        ("x.png", lambda path: Image.new("RGB", (8, 9)).save(path), "is 9 × 8 pixels"),
        ("x.mkv", lambda path: path.write_bytes(b"no"), "must hold images or videos"),
    ],
)
def test_the_file_that_cannot_be_used_is_named(tmp_path, name, spoil, message):
    save(tmp_path, pixels(3))
    spoil(tmp_path / name)
    with pytest.raises(ValueError, match=rf"{name}(.|\n)*{message}|{message}(.|\n)*{name}"):
        read_images(tmp_path)


def test_a_file_that_breaks_while_it_is_streamed_is_named(tmp_path):
    save(tmp_path, pixels(3))
    truncated_png(tmp_path / "frame1.png")
    images = read_images(tmp_path, store="stream")
    with pytest.raises(ValueError, match=r"frame1\.png: cannot be decoded"):
        images.read([0, 1])


def test_hidden_files_are_skipped_and_broken_videos_named(tmp_path):
    save(tmp_path / "a", pixels(3))
    (tmp_path / "a" / ".DS_Store").write_bytes(b"x")
    assert len(read_images(tmp_path / "a")) == 3
    (tmp_path / "film.mp4").write_bytes(b"no video")
    with pytest.raises(ValueError, match=r"film\.mp4: cannot be decoded"):
        read_images(tmp_path / "film.mp4")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_images(tmp_path / "none")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.zeros((3, 4)),), ValueError, "pixels must have shape"),
        ((np.zeros((3, 8, 8, 3)),), ValueError, "1 to 4 channels, got 8"),
        ((np.zeros((3, 8, 8), np.int64),), TypeError, "pixels must be of type"),
        ((np.full((3, 8, 8), 255.0),), ValueError, r"in \[0, 1\] or integers, but image 0"),
        ((np.full((3, 8, 8), np.nan),), ValueError, r"in \[0, 1\]"),
    ],
)
def test_arrays_that_are_no_images_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Images(*arguments)


def test_pairs_of_a_sequence_are_neighbours_within_it():
    images = Images(np.arange(20, dtype=np.uint8)[:, None, None].repeat(8, 1).repeat(8, 2),
                    groups=[0] * 12 + [1] * 8)  # fmt: skip
    pairs = ImagePairs.from_sequences(images, lag=(1, 2))
    assert isinstance(pairs, FinitePairSource)
    assert not pairs.ordered
    assert ImagePairs.from_sequences(images).ordered
    for part in (pairs, *pairs.split(0.3, Generator().manual_seed(0))):
        x, x_pos = (
            (255 * half[:, 0, 0, 0]).round().long()
            for half in part.sample(500, Generator().manual_seed(0))
        )
        assert set((x_pos - x).tolist()) == {1, 2}
        assert torch.equal(x < 12, x_pos < 12)
    x, x_pos = pairs.all()
    assert len(x) == len(pairs) == 18


def test_a_table_of_names_makes_pairs(tmp_path):
    images = Images(pixels(4), channels_last=True, names=["a", "b", "c", "d"])
    table = tmp_path / "pairs.csv"
    table.write_text("positive,anchor,note\nb,a,1\na,d,2\nc,c,3\n")
    pairs = read_image_pairs(images, table)
    x, x_pos = pairs.all()
    assert torch.equal(x, images.read([0, 3, 2]))
    assert torch.equal(x_pos, images.read([1, 0, 2]))
    numbered = Images(pixels(4), channels_last=True)
    table.write_text("anchor,positive\n0,1\n3,0\n")
    assert len(read_image_pairs(numbered, table)) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("anchor,positive\na,b\nb,z\n", "row 1 has positive 'z', which is none of the 4 images"),
        ("anchor,other\na,b\n", "must have the columns 'anchor' and 'positive'"),
        ("anchor,positive\na,b\n", "must hold at least 2 pairs"),
    ],
)
def test_a_wrong_table_of_pairs_is_explained(tmp_path, text, message):
    images = Images(pixels(4), channels_last=True, names=["a", "b", "c", "d"])
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_image_pairs(images, tmp_path / "pairs.csv")


def test_rows_must_exist():
    images = Images(pixels(4), channels_last=True)
    with pytest.raises(ValueError, match="positives must be rows from 0 to 3, got 1 to 4"):
        ImagePairs.from_rows(images, [0, 1], [1, 4])
