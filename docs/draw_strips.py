"""Draw latent traversals of stored models of images into results/.

Each row of images moves one code. Of sprites and frames its label is the factor with the highest
correlation, if that is at least 0.5; a code of orientation may correlate with no factor. Dead codes
are left out. Of rendered worlds there is a row for the code that is matched with each factor, and
its label has their correlation. Models that have not been run are left out. Run this script after
new results:

    python docs/draw_strips.py
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import image, pyplot

from isolatent.datasets.scene3d import SCENE_LATENTS
from isolatent.experiments import Store
from isolatent.experiments.latent_traversal import DEAD

RESULTS = Path(__file__).parents[1] / "results"
MIN_CORRELATION = 0.5  # |rank correlation| from which a code is labelled with a factor
CELLS = {
    "zimmermann2020/dsprites": ("lap_infonce_l1", "lap_slow_vae"),
    "zimmermann2020/table5": ("lag5_au0.5_l1",),
    "zimmermann2021/table3": ("dt15_laplace_box", "dt15_slow_vae"),
    "zimmermann2021/table4": ("normal_box_normal", "small_box_normal"),
    "matthes2023/kitti_masks": ("lag5_infonce_laplace",),
    "rusak2025/mnist": ("aninfonce-lambda5to50-digits",),
}


def labelled_rows(record: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return label and image of each code that is not dead, in the order of the factors."""
    strips = record["strips"]
    if strips["kind"] == "rendered":
        matched = record["scores"]["unsupervised"]["mcc_per_factor"]
        scene = record["spec"]["world"]["mixing"]["kind"] == "Scene3D"
        names = SCENE_LATENTS if scene else [f"latent {k + 1}" for k in range(len(matched))]
        labels = [f"{n.replace('_', ' ')} {r:.2f}" for n, r in zip(names, matched, strict=True)]
        return [*zip(labels, map(decode, strips["rows"]), strict=True)]
    factors, rows = record["factors"], []
    for k, (row, spread) in enumerate(zip(strips["rows"], strips["spreads"], strict=True)):
        if spread < DEAD:
            continue
        column = [row[k] for row in record["correlation"]]
        best = max(range(len(factors)), key=column.__getitem__)
        clear = column[best] >= MIN_CORRELATION
        label = f"code {k}" + (f": {factors[best]} {column[best]:.2f}" if clear else "")
        rows.append((best if clear else len(factors), label, decode(row)))
    return [(label, pixels) for _, label, pixels in sorted(rows, key=lambda row: row[0])]


def decode(row: str) -> Any:
    """Return the pixels of a PNG file in base64."""
    return image.imread(io.BytesIO(base64.b64decode(row)), format="png")


def draw(record: dict[str, Any], path: Path) -> None:
    """Draw the rows of a record below each other."""
    rows = labelled_rows(record)
    figure, axes = pyplot.subplots(
        len(rows), 1, figsize=(7.2, 0.72 * len(rows)), squeeze=False, layout="constrained"
    )
    for axis, (label, pixels) in zip(axes[:, 0], rows, strict=True):
        axis.imshow(pixels, cmap="gray", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
        axis.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
    figure.savefig(path, dpi=100, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    """Draw the first seed of each cell."""
    for name, cells in CELLS.items():
        records = Store(RESULTS / name).records(name)
        first = {r["cell"]: r for r in reversed(records) if r.get("strips")}
        for cell in filter(first.__contains__, cells):
            draw(first[cell], RESULTS / name / f"strips-{cell}.png")


if __name__ == "__main__":
    main()
