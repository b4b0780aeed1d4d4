"""Results as a picture for documents: PNG, drawn by matplotlib, which is loaded when asked for."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isolatent.experiments.results import Row
from isolatent.report.table import score_name

__all__ = ["can_draw", "swept", "write_figure"]

FEWEST = 3  # values of something that is swept
COLOURS = ("#2166c4", "#c2500a", "#0b6b2e", "#7b3fa0", "#a3161a", "#55544e", "#00838f")
MARKS = "osD^vPX"


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def swept(names: Sequence[str]) -> tuple[str, dict[str, list[tuple[float, str]]]] | None:
    """What is swept in the names of a grid's cells: its label, and the cells of each series.

    It is the label with a number that all names have, with the most values.

    Example:
        >>> swept(["a-sigma0.1", "b-sigma0.1", "a-sigma0.2", "a-sigma0.05"])
        ('sigma', {'a': [(0.05, 'a-sigma0.05'), (0.1, 'a-sigma0.1'), (0.2, 'a-sigma0.2')], \
'b': [(0.1, 'b-sigma0.1')]})
        >>> swept(["sphere_vmf1", "sphere_vmf10", "box_normal"]) is None
        True
    """
    parts = {name: _numbers(name) for name in names}
    common = set.intersection(*(set(found) for found in parts.values())) if parts else set()
    count = {label: len({found[label] for found in parts.values()}) for label in common}
    label = max(sorted(count), key=count.__getitem__, default="")
    if count.get(label, 0) < FEWEST:
        return None
    series: dict[str, list[tuple[float, str]]] = {}
    for name, found in parts.items():
        own = "-".join(word for word in name.split("-") if _numbers(word).keys() != {label})
        series.setdefault(own, []).append((found[label], name))
    return label, {own: sorted(cells) for own, cells in series.items()}


def _numbers(name: str) -> dict[str, float]:
    """Labels that are followed by a number, such as ``batch`` in ``batch50-d10``."""
    found = (re.fullmatch(r"([A-Za-z_]+)(\d+(?:\.\d+)?)", word) for word in name.split("-"))
    return {match[1]: float(match[2]) for match in found if match}


def write_figure(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Draw the rows of each experiment: ours as dots, the paper's as rings.

    Where a number was swept there is a line for each series, otherwise a line of the picture for
    each row. Of several approaches the last is drawn, of several scores the first where lines are.

    Args:
        rows: What :func:`isolatent.experiments.tabulate` gives.
        path: A .png file, which is replaced.
    """
    if not can_draw():
        raise ValueError("a figure needs matplotlib: pip install 'isolatent[bench]'")
    approach = {(row.experiment, row.cell): row.approach for row in rows}
    shown: dict[str, list[Row]] = {}
    for row in rows:
        if row.approach == approach[row.experiment, row.cell]:
            shown.setdefault(row.experiment, []).append(row)
    sweeps = {name: swept([row.cell for row in own]) for name, own in shown.items()}
    heights = [1.1 + 0.3 * len(own) if sweeps[name] is None else 4.5 for name, own in shown.items()]
    figure = importlib.import_module("matplotlib.figure").Figure(
        figsize=(7.5, sum(heights)), layout="constrained"
    )
    axes = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (name, own) in zip(axes, shown.items(), strict=True):
        sweep = sweeps[name]
        if sweep is None:
            _draw_rows(ax, own)
        else:
            _draw_lines(ax, {row.cell: row for row in reversed(own)}, *sweep)
        ax.set_title(name, loc="left", fontsize="medium", fontweight="bold")
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    target = Path(path).resolve()
    partial = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        figure.savefig(partial, dpi=150, format="png")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _score_label(rows: Sequence[Row]) -> str:
    return " or ".join(f"{score_name(m)}" for m in dict.fromkeys(r.metric for r in rows)) + " [%]"


def _draw_rows(ax: Any, rows: list[Row]) -> None:
    """One line for each row; the first on top."""
    places = range(len(rows))
    for y, row in zip(places, rows, strict=True):
        if row.published is not None:
            ax.errorbar(row.published, y, xerr=row.spread, **_ring("#55544e"))
        if row.mean is not None:
            ax.errorbar(row.mean, y, xerr=row.std, **_dot(COLOURS[0]))
    several = len({row.metric for row in rows}) > 1
    labels = [f"{row.cell} ({score_name(row.metric)})" if several else row.cell for row in rows]
    ax.set_yticks(places, labels, fontsize="small")
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlabel(_score_label(rows))
    drawn = [ax.errorbar([], [], **_dot(COLOURS[0]), label="ours")]
    if any(row.published is not None for row in rows):
        drawn.append(ax.errorbar([], [], **_ring("#55544e"), label="paper"))
    ax.legend(
        handles=drawn, fontsize="small", frameon=False, ncols=2, loc="lower right",
        bbox_to_anchor=(1, 1),
    )  # fmt: skip


def _draw_lines(
    ax: Any,
    cells: Mapping[str, Row],
    label: str,
    series: Mapping[str, list[tuple[float, str]]],
) -> None:
    """The score against what is swept; the paper's dashed in the same colour."""
    for k, (name, points) in enumerate(series.items()):
        colour, mark = COLOURS[k % len(COLOURS)], MARKS[k // len(COLOURS) % len(MARKS)]
        own = [(x, row) for x, cell in points if (row := cells[cell]).mean is not None]
        paper = [(x, row) for x, cell in points if (row := cells[cell]).published is not None]
        ax.errorbar(
            [x for x, _ in own],
            [row.mean for _, row in own],
            yerr=[row.std or 0.0 for _, row in own],
            **(_dot(colour) | {"fmt": f"{mark}-"}),
            label=name or "ours",
        )
        if paper:
            ax.plot(
                [x for x, _ in paper], [row.published for _, row in paper],
                f"{mark}--", color=colour, mfc="none", ms=6, lw=1, alpha=0.7,
            )  # fmt: skip
    if any(row.published is not None for row in cells.values()):
        ax.plot([], [], "o--", color="#55544e", mfc="none", lw=1, label="paper")
    values = sorted({x for points in series.values() for x, _ in points})
    positive = [x for x in values if x > 0]
    if positive[-1] / positive[0] >= 8:
        ax.set_xscale("symlog" if values[0] == 0 else "log", **(
            {"linthresh": positive[0]} if values[0] == 0 else {}
        ))  # fmt: skip
        ax.minorticks_off()
    ax.set_xticks(values, [f"{x:g}" for x in values])
    ax.set_xlabel(label)
    ax.set_ylabel(_score_label(list(cells.values())))
    ax.legend(fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _dot(colour: str) -> dict[str, Any]:
    return {"fmt": "o", "color": colour, "ms": 5, "capsize": 2, "lw": 1.5}


def _ring(colour: str) -> dict[str, Any]:
    return {"fmt": "o", "color": colour, "mfc": "none", "ms": 9, "capsize": 3, "lw": 1}
