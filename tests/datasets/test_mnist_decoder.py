"""The decoder of digits as a mixing: its file, its inverse, and the command that trains it."""

import gzip

import numpy as np
import pytest
import torch

from isolatent.baselines import mnist_vae
from isolatent.datasets import MNISTDecoder
from isolatent.datasets.mnist_decoder import DECODER_FILE, DECODER_SHA256, TENSORS
from isolatent.files import digest_file
from isolatent.worlds import AnisotropicNormal, Sphere, Uniform, World


def world(path=None, radius=10**0.5):
    conditional = AnisotropicNormal([5.0] * 5 + [50.0] * 5)
    return World(Sphere(10), Uniform(), conditional, MNISTDecoder(radius, path), seed=0)


def test_the_committed_decoder_is_the_one_that_results_were_made_with():
    assert digest_file(DECODER_FILE) == DECODER_SHA256
    assert DECODER_FILE.stat().st_size < 500_000


@pytest.mark.parametrize("radius", [1.0, 10**0.5])
def test_latents_come_back_from_their_images(radius):
    digits = world(radius=radius)
    z = digits.sample_anchors(500).double()
    x = digits.observe(z)
    assert x.shape == (500, 784)
    torch.testing.assert_close(digits.mixing.inverse(x), z)


def test_single_precision_differs_by_rounding_only():
    digits = world()
    z = digits.sample_anchors(200)
    assert z.dtype == digits.observe(z).dtype == torch.float32
    double = digits.observe(z.double())
    torch.testing.assert_close(digits.observe(z).double(), double, atol=1e-5, rtol=0)


def test_decoded_images_look_like_digits():
    """White on black, few pixels in the margin, and none of two images alike."""
    images = world().sample_pairs(300)[0].view(-1, 28, 28)
    ink = images.mean((1, 2))
    assert 0.02 < float(ink.min()) < float(ink.max()) < 0.3
    margin = torch.cat([images[:, :2].flatten(1), images[:, -2:].flatten(1)], dim=1)
    assert float(margin.mean()) < 0.01
    distances = torch.cdist(images.flatten(1), images.flatten(1)) + 100 * torch.eye(300)
    assert float(distances.min()) > 0.5


def test_a_changed_or_foreign_file_is_refused(tmp_path, monkeypatch):
    from safetensors.torch import load_file, save_file

    tensors = load_file(DECODER_FILE)
    changed = tmp_path / "changed.safetensors"
    tensors["bias_0"] += 1
    save_file(tensors, changed)
    assert world(changed).n_observed == 784  # by its path, it is the user's own
    monkeypatch.setattr("isolatent.datasets.mnist_decoder.DECODER_FILE", changed)
    with pytest.raises(ValueError, match="must have the SHA-256"):
        world()
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="must hold the tensors"):
        world(tmp_path / "other.safetensors")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        world(tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match="n must be 10 for"):
        World(Sphere(9), Uniform(), AnisotropicNormal(5.0), MNISTDecoder(), seed=0)


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.tobytes()))


def test_the_command_writes_a_decoder(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for part in ("train", "t10k"):
        images = rng.integers(0, 256, (300, 28, 28), dtype=np.uint8)
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", np.zeros(300, np.uint8))
    digests = []
    for k in range(2):
        out = tmp_path / f"decoder{k}.safetensors"
        mnist_vae.train_decoder([str(tmp_path), str(out), "--steps", "3"])
        assert f"SHA-256 {digest_file(out)}" in capsys.readouterr().out
        digests.append(digest_file(out))
    assert digests[0] == digests[1]  # the seed determines it
    mixing = MNISTDecoder(path=out).build(10, torch.Generator())
    assert {name: tuple(mixing.get_buffer(name).shape) for name in TENSORS} == TENSORS


def test_the_decoder_of_the_vae_is_the_mixing(tmp_path):
    """At √10 z, up to the rounding of weights to half precision."""
    from safetensors.torch import save_file

    x = np.random.default_rng(0).random((200, 784), np.float32)
    model = mnist_vae.DigitVAE(10, max_steps=3, random_state=0).fit(x)
    save_file(mnist_vae.decoder_weights(model), tmp_path / "d.safetensors")
    z = torch.nn.functional.normalize(torch.randn(50, 10), dim=1)
    shown = world(tmp_path / "d.safetensors").observe(z)
    decoded = model.decode((10**0.5 * z).numpy())
    np.testing.assert_allclose(shown, decoded, atol=2e-3)
    with pytest.raises(ValueError, match=r"X must have shape \(N, 784\)"):
        mnist_vae.DigitVAE(10, max_steps=3).fit(x[:, :100])
