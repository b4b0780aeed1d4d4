"""Images per second of the readers of published datasets, against plain NumPy, pickle and Pillow.

Files of the published layouts and sizes, with random content, are written to a temporary directory
first; of KITTI Masks and 3DIdent a part. The plain versions check nothing: that of a pickle would
run whatever the file names. Both read from the system's cache of files.

Run: .venv/bin/python benchmarks/loading.py [--repeats 5] [--quick] [--out FILE]
Writes results/benchmarks/loading.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from isolatent.datasets import (
    cifar,
    load_3dident,
    load_cifar10,
    load_kitti_masks,
    load_mnist,
)

OUT = Path(__file__).parents[1] / "results/benchmarks/loading.json"
QUICK = 50  # times fewer images


def write_files(folder: Path, share: int) -> dict[str, int]:
    """Write files of all datasets and return how many images each has."""
    random = np.random.default_rng(0)
    counts = {
        "MNIST": 60_000 // share,
        "CIFAR-10": 5 * (10_000 // share),
        "KITTI Masks": 20_000 // share,
        "3DIdent": 1000 // share,
    }
    digits, labels = counts["MNIST"], random.integers(0, 10, counts["MNIST"], np.uint8)
    for name, shape, data in (
        ("images-idx3", (digits, 28, 28), random.integers(0, 256, digits * 784, np.uint8)),
        ("labels-idx1", (digits,), labels),
    ):
        header = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
        (folder / f"train-{name}-ubyte").write_bytes(header + data.tobytes())
    cifar.IMAGES_PER_FILE = 10_000 // share
    for k in range(5):
        records = random.integers(0, 256, (cifar.IMAGES_PER_FILE, 3073), np.uint8)
        records[:, 0] %= 10
        (folder / f"data_batch_{k + 1}.bin").write_bytes(records.tobytes())
    videos = [random.random((40, 64, 64)) < 0.1 for _ in range(counts["KITTI Masks"] // 40)]
    counts["KITTI Masks"] = 40 * len(videos)
    latents = [random.random((40, 3)).astype(np.float32) for _ in videos]
    content = {"pedestrians": videos, "pedestrians_latents": latents}
    (folder / "kitti_peds_v2.pickle").write_bytes(pickle.dumps(content))
    (folder / "train/images").mkdir(parents=True)
    np.save(folder / "train/raw_latents.npy", random.uniform(-1, 1, (counts["3DIdent"], 10)))
    for k in range(counts["3DIdent"]):
        coarse = random.integers(0, 256, (28, 28, 3), np.uint8)
        Image.fromarray(coarse.repeat(8, 0).repeat(8, 1)).save(folder / f"train/images/{k:06d}.png")
    return counts


def plain_mnist(folder: Path) -> NDArray[Any]:
    data = np.fromfile(folder / "train-images-idx3-ubyte", np.uint8)
    return data[16:].reshape(-1, 1, 28, 28)


def plain_cifar(folder: Path) -> NDArray[Any]:
    files = [np.fromfile(folder / f"data_batch_{k}.bin", np.uint8) for k in range(1, 6)]
    return np.concatenate(files).reshape(-1, 3073)[:, 1:].reshape(-1, 3, 32, 32)


def plain_kitti(folder: Path) -> NDArray[Any]:
    content = pickle.loads((folder / "kitti_peds_v2.pickle").read_bytes())
    return np.concatenate(content["pedestrians"])


def plain_3dident(folder: Path) -> NDArray[Any]:
    paths = sorted((folder / "train/images").iterdir())
    images = np.stack([np.asarray(Image.open(path)) for path in paths])
    return images.transpose(0, 3, 1, 2).astype(np.float32) / 255


def ways(folder: Path) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return for each dataset how we read its images, and how plain code does."""
    stored = load_3dident(folder)
    return {
        "MNIST": (lambda: load_mnist(folder).images, lambda: plain_mnist(folder)),
        "CIFAR-10": (lambda: load_cifar10(folder).images, lambda: plain_cifar(folder)),
        "KITTI Masks": (lambda: load_kitti_masks(folder).images[:], lambda: plain_kitti(folder)),
        "3DIdent": (
            lambda: stored.observe(range(len(stored))).numpy(),
            lambda: plain_3dident(folder),
        ),
    }


def seconds(run: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def report(state: dict[str, Any]) -> list[str]:
    where = state["circumstances"]
    return [
        "# Reading published images",
        "",
        "Written by `benchmarks/loading.py`. Images per second, median of "
        f"{where['repeats']}, on {where['cores']} cores, Python {where['python']}. The files have "
        "the published layouts and random content.",
        "",
        "| | images | ours | plain | what is plain |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {cell['images']:,} | {cell['ours']:,.0f} | {cell['plain']:,.0f} | "
            f"{cell['with']} |"
            for name, cell in state["rates"].items()
        ),
    ]


PLAIN = {
    "MNIST": "`np.fromfile`, unchecked",
    "CIFAR-10": "`np.fromfile`, unchecked",
    "KITTI Masks": "`pickle.loads`, which runs what the file names; ours packs and unpacks bits",
    "3DIdent": "Pillow, one image after the other",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few images, to see that it runs")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rates = {}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        counts = write_files(folder, QUICK if options.quick else 1)
        for name, (ours, plain) in ways(folder).items():
            if not np.array_equal(ours(), plain()):  # also fills the system's cache of files
                raise SystemExit(f"{name}: images differ from those that plain code reads")
            rates[name] = {
                "images": counts[name],
                "ours": counts[name] / seconds(ours, options.repeats),
                "plain": counts[name] / seconds(plain, options.repeats),
                "with": PLAIN[name],
            }
            print(name, rates[name])
    state = {
        "circumstances": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "repeats": options.repeats,
        },
        "rates": rates,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(state, indent=1) + "\n")
    options.out.with_suffix(".md").write_text("\n".join(report(state)) + "\n")


if __name__ == "__main__":
    main()
