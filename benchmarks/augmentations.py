"""Views per second of the augmentations, against one image at a time in Pillow.

Both draw a window, mirror it and change brightness, contrast, saturation and hue. Pillow works on
bytes and turns the hue of HSV, so that views differ slightly. One thread each.

Run: .venv/bin/python benchmarks/augmentations.py [--repeats 5] [--quick] [--out FILE]
Writes results/benchmarks/augmentations.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Generator, Tensor

from isolatent.files import write_json, write_text
from isolatent.pairs import AugmentationParameters, Augmentations, augment

OUT = Path(__file__).parents[1] / "results/benchmarks/augmentations.json"
SIDES = (32, 64)
COUNT, QUICK_COUNT = 2048, 64


def one_by_one(images: Tensor, drawn: AugmentationParameters) -> Tensor:
    """Augment one image after the other in Pillow."""
    pictures = (255 * images).byte().permute(0, 2, 3, 1).numpy()
    views = []
    for k, pixels in enumerate(pictures):
        side = len(pixels)
        top, left, height, width = (side * share for share in drawn.crop[k].tolist())
        box = (left, top, left + width, top + height)
        view = Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR, box)
        if drawn.flip[k]:
            view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        view = ImageEnhance.Brightness(view).enhance(float(drawn.brightness[k]))
        view = ImageEnhance.Contrast(view).enhance(float(drawn.contrast[k]))
        view = ImageEnhance.Color(view).enhance(float(drawn.saturation[k]))
        planes = np.array(view.convert("HSV"))
        planes[..., 0] += np.uint8(round(255 * float(drawn.hue[k])) % 256)
        view = Image.fromarray(planes, "HSV").convert("RGB")
        views.append(np.asarray(view.convert("L").convert("RGB") if drawn.grayscale[k] else view))
    return torch.from_numpy(np.stack(views)).permute(0, 3, 1, 2).float() / 255


def rate(
    work: Callable[[Tensor, AugmentationParameters], Tensor],
    images: Tensor,
    drawn: AugmentationParameters,
    repeats: int,
) -> float:
    """Return the median number of views per second."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work(images, drawn)
        seconds.append(time.perf_counter() - start)
    return len(images) / statistics.median(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    count = QUICK_COUNT if given.quick else COUNT
    drawn = Augmentations().draw(count, Generator().manual_seed(0))
    rows = []
    for side in SIDES:
        images = torch.rand(count, 3, side, side, generator=Generator().manual_seed(1))
        ours, plain = (rate(work, images, drawn, given.repeats) for work in (augment, one_by_one))
        rows.append({"side": side, "isolatent": round(ours), "pillow": round(plain)})
    machine = {"cores": os.cpu_count(), "processor": platform.machine(), "torch": torch.__version__}
    write_json(given.out, {"views_per_second": rows, "machine": machine}, indent=2)
    lines = ["| side | isolatent | Pillow, one by one |", "|---|---|---|"]
    lines += [f"| {row['side']} | {row['isolatent']} | {row['pillow']} |" for row in rows]
    write_text(given.out.with_suffix(".md"), "\n".join(["Views per second.", "", *lines]) + "\n")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
