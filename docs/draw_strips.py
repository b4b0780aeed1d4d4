"""Draw latent traversals of stored models on sprites into results/zimmermann2020/dsprites.

Each row of images moves one code. Its label is the factor with the highest correlation, if that is
at least 0.5; a code of orientation may correlate with no factor. Dead codes are left out. Run this
script after new results:

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

from isolatent.experiments import Store
from isolatent.experiments.latent_traversal import DEAD

NAME = "zimmermann2020/dsprites"
DIRECTORY = Path(__file__).parents[1] / "results" / NAME
MIN_CORRELATION = 0.5  # |rank correlation| from which a code is labelled with a factor
CELLS = ("lap_infonce_l1", "lap_slow_vae")


def labelled_rows(record: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return label and image of each code that is not dead, in the order of the factors."""
    strips, factors = record["strips"], record["factors"]
    rows = []
    for k, (row, spread) in enumerate(zip(strips["rows"], strips["spreads"], strict=True)):
        if spread < DEAD:
            continue
        column = [row[k] for row in record["correlation"]]
        best = max(range(len(factors)), key=column.__getitem__)
        clear = column[best] >= MIN_CORRELATION
        label = f"code {k}" + (f": {factors[best]} {column[best]:.2f}" if clear else "")
        pixels = image.imread(io.BytesIO(base64.b64decode(row)), format="png")
        rows.append((best if clear else len(factors), label, pixels))
    return [(label, pixels) for _, label, pixels in sorted(rows, key=lambda row: row[0])]


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
    records = {record["cell"]: record for record in reversed(Store(DIRECTORY).records(NAME))}
    for cell in CELLS:
        draw(records[cell], DIRECTORY / f"strips-{cell}.png")


if __name__ == "__main__":
    main()
