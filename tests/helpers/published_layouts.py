"""Small files in the layouts of published datasets."""

import gzip

import numpy as np


def write_idx(path, array, *, magic=None, data=None):
    """Write a byte array as an idx file, compressed if the name ends with .gz."""
    header = bytes([0, 0, 8, array.ndim]) if magic is None else magic
    content = header + np.array(array.shape, ">u4").tobytes()
    content += array.tobytes() if data is None else data
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_mnist(folder, count=20, *, suffix="", seed=0):
    """Write both parts of a small MNIST, and return images and labels by part."""
    random = np.random.default_rng(seed)
    written = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = random.integers(0, 256, (count, 28, 28), np.uint8)
        labels = random.integers(0, 10, count, np.uint8)
        write_idx(folder / f"{prefix}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte{suffix}", labels)
        written[part] = images, labels
    return written


def write_cifar10(folder, per_file, *, seed=0):
    """Write the six files of a small CIFAR-10, and return images and labels by part.

    The reader expects 10 000 images in each file: set ``isolatent.datasets.cifar.IMAGES_PER_FILE``.
    """
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    written = {"train": [], "test": []}
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        images = random.integers(0, 256, (per_file, 3, 32, 32), np.uint8)
        labels = random.integers(0, 10, (per_file, 1), np.uint8)
        records = np.concatenate([labels, images.reshape(per_file, -1)], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
        written["test" if name == "test_batch" else "train"].append((images, labels[:, 0]))
    return {
        part: tuple(np.concatenate(arrays) for arrays in zip(*files, strict=True))
        for part, files in written.items()
    }


def write_3dident(folder, count=6, *, digits=5, seed=0):
    """Write a small folder of 3DIdent, and return its latents and images (N, 224, 224, 3)."""
    from PIL import Image

    random = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    latents = random.uniform(-1, 1, (count, 10))
    np.save(folder / "raw_latents.npy", latents)
    coarse = random.integers(0, 256, (count, 7, 7, 3), np.uint8)
    images = coarse.repeat(32, axis=1).repeat(32, axis=2)
    for k, image in enumerate(images):
        Image.fromarray(image).save(folder / f"images/{k:0{digits}d}.png")
    return latents, images
