"""A strip goes along one code, and its picture is what was drawn."""

import base64
import io

import numpy as np
import pytest

from isolatent.experiments.strips import COLUMNS, png, strips
from isolatent.worlds import FactorArray

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_is_read_back_as_it_was(channels):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype=np.uint8)
    read = np.asarray(Image.open(io.BytesIO(png(pixels))))
    np.testing.assert_array_equal(read.reshape(pixels.shape), pixels)


class Brightness:
    """Codes are the brightness of the left and of the right pixel."""

    def transform(self, x):
        return np.asarray(x).reshape(len(x), 2)


class Painter(Brightness):
    def decode(self, z):
        return np.asarray(z).reshape(-1, 1, 1, 2)


@pytest.mark.parametrize("model", [Brightness(), Painter()])
def test_one_pixel_grows_and_the_other_stays(model):
    levels = np.linspace(0, 1, 11)
    images = np.stack(np.meshgrid(levels, levels, indexing="ij"), -1).reshape(121, 1, 1, 2)
    world = FactorArray(images.astype(np.float32), (11, 11))
    shown = strips(model, world, seed=0)
    assert shown["columns"] == COLUMNS
    for code, row in enumerate(shown["rows"]):
        picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(row)))).reshape(COLUMNS, 2)
        moving, still = picture[:, code].astype(int), picture[:, 1 - code]
        assert (np.diff(moving) >= 0).all()
        assert moving[0] <= 10
        assert moving[-1] >= 245
        assert len(set(still.tolist())) == 1
