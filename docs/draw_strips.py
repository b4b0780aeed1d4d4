"""Draw what each code of stored models on sprites does, into results/zimmermann2020/dsprites.

A row of images goes along one code, labelled with the factor that it correlates with most if that
is clear; a code that goes with a turn may correlate with nothing. Codes that are almost dead are
left out. Run after new results:

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
WHERE = Path(__file__).parents[1] / "results" / NAME
CLEAR = 0.5  # |rank correlation|
CELLS = ("lap_infonce_l1", "lap_slow_vae")


def labelled(record: dict[str, Any]) -> list[tuple[str, Any]]:
    """The rows of codes that are alive: the factor with its correlation, and the picture."""
    strips, factors = record["strips"], record["factors"]
    rows = []
    for k, (row, spread) in enumerate(zip(strips["rows"], strips["spreads"], strict=True)):
        if spread < DEAD:
            continue
        column = [row[k] for row in record["correlation"]]
        best = max(range(len(factors)), key=column.__getitem__)
        clear = column[best] >= CLEAR
        label = f"code {k + 1}" + (f": {factors[best]} {column[best]:.2f}" if clear else "")
        picture = image.imread(io.BytesIO(base64.b64decode(row)), format="png")
        rows.append((best if clear else len(factors), label, picture))
    return [(label, picture) for _, label, picture in sorted(rows, key=lambda row: row[0])]


def draw(record: dict[str, Any], path: Path) -> None:
    """One below the other, in the order of the factors."""
    rows = labelled(record)
    figure, axes = pyplot.subplots(
        len(rows), 1, figsize=(7.2, 0.72 * len(rows)), squeeze=False, layout="constrained"
    )
    for axis, (label, picture) in zip(axes[:, 0], rows, strict=True):
        axis.imshow(picture, cmap="gray", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
        axis.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
    figure.savefig(path, dpi=100, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    """Draw the first seed of each cell."""
    records = {record["cell"]: record for record in reversed(Store(WHERE).records(NAME))}
    for cell in CELLS:
        draw(records[cell], WHERE / f"strips-{cell}.png")


if __name__ == "__main__":
    main()
