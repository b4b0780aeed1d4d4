"""Results of experiments as a PNG figure: dots for rows, lines for sweeps."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from isolatent.experiments.results import Row
from isolatent.figure_data.scores import score_name
from isolatent.files import atomic_write
from isolatent.plot.axes import import_matplotlib

__all__ = ["find_sweep", "marginal_distances", "split_panels", "write_figure"]

MIN_SWEPT = 3  # values of a swept parameter
MAX_SERIES = 7  # in one panel
Series = dict[str, list[tuple[float, str]]]  # values and cells of each series
COLOURS = ("#2166c4", "#c2500a", "#0b6b2e", "#7b3fa0", "#a3161a", "#55544e", "#00838f")
MARKS = "osD^vPX"


def find_sweep(names: Sequence[str]) -> tuple[str, Series] | None:
    """Find the swept parameter in the names of a grid's cells, and the cells of each series.

    The parameter is the label, followed by a number, that all names share and that has the most
    values; None if none has at least three.

    Example:
        >>> find_sweep(["a-sigma0.1", "b-sigma0.1", "a-sigma0.2", "a-sigma0.05"])
        ('sigma', {'a': [(0.05, 'a-sigma0.05'), (0.1, 'a-sigma0.1'), (0.2, 'a-sigma0.2')], \
'b': [(0.1, 'b-sigma0.1')]})
        >>> find_sweep(["sphere_vmf1", "sphere_vmf10", "box_normal"]) is None
        True
    """
    parts = {name: _numbers(name) for name in names}
    common = set.intersection(*(set(found) for found in parts.values())) if parts else set()
    count = {label: len({found[label] for found in parts.values()}) for label in common}
    label = max(sorted(count), key=count.__getitem__, default="")
    if count.get(label, 0) < MIN_SWEPT:
        return None
    series: Series = {}
    for name, found in parts.items():
        own = "-".join(word for word in name.split("-") if _numbers(word).keys() != {label})
        series.setdefault(own, []).append((found[label], name))
    return label, {own: sorted(cells) for own, cells in series.items()}


def _numbers(name: str) -> dict[str, float]:
    """Return the labels that are followed by a number, such as ``batch`` in ``batch50-d10``."""
    found = (re.fullmatch(r"([A-Za-z_]+)(\d+(?:\.\d+)?)", word) for word in name.split("-"))
    return {match[1]: float(match[2]) for match in found if match}


def split_panels(series: Series) -> dict[str, Series]:
    """Split many series into panels by a second number that all their names share.

    Example:
        >>> many = {f"kappa{k}-{a}": [(1.0, "")] for k in (4, 9) for a in "abcd"}
        >>> {title: [*own] for title, own in split_panels(many).items()}
        {'kappa 4': ['a', 'b', 'c', 'd'], 'kappa 9': ['a', 'b', 'c', 'd']}
    """
    numbers = {name: _numbers(name) for name in series}
    common = set.intersection(*map(set, numbers.values()))
    if len(series) <= MAX_SERIES or not common:
        return {"": series}
    label = min(common)
    found: dict[str, Series] = {}
    for name in sorted(series, key=lambda name: numbers[name][label]):
        own = "-".join(word for word in name.split("-") if _numbers(word).keys() != {label})
        found.setdefault(f"{label} {numbers[name][label]:g}", {})[own] = series[name]
    return found


def marginal_distances(
    results: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]],
) -> dict[str, dict[str, float]]:
    """Return the distance of each cell's marginal from uniform, where the runs measured it.

    Args:
        results: The result of :func:`isolatent.report.read_results`.

    Returns:
        For each experiment, the distances by cell.
    """
    distances: dict[str, dict[str, float]] = {}
    for experiment, records in results:
        own = distances.setdefault(str(experiment["name"]), {})
        for record in records:
            value = (record.get("measures") or {}).get("total_variation")
            if value is not None:
                own[str(record["cell"])] = float(value)
    return distances


def write_figure(
    rows: Sequence[Row],
    path: str | os.PathLike[str],
    distances: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Draw the scores of each experiment: ours as dots, the paper's as rings.

    A sweep gets a line for each series; other experiments get one dot for each row. Of several
    approaches the last is drawn; of several metrics, a sweep shows the first.

    Args:
        rows: The result of :func:`isolatent.experiments.tabulate`.
        path: A .png file, which is replaced.
        distances: The result of :func:`marginal_distances`; drawn on a second axis of a sweep.
    """
    figure_module = import_matplotlib("figure")
    approach = {(row.experiment, row.cell): row.approach for row in rows}
    shown: dict[str, list[Row]] = {}
    for row in rows:
        if row.approach == approach[row.experiment, row.cell]:
            shown.setdefault(row.experiment, []).append(row)
    sweeps = {name: find_sweep([row.cell for row in own]) for name, own in shown.items()}
    heights = [1.1 + 0.3 * len(own) if sweeps[name] is None else 4.5 for name, own in shown.items()]
    split = {name: split_panels(sweep[1]) for name, sweep in sweeps.items() if sweep is not None}
    widest = max((len(own) for own in split.values()), default=1)
    figure = figure_module.Figure(
        figsize=(7.5 if widest == 1 else 1.5 + 3.2 * widest, sum(heights)), layout="constrained"
    )
    parts = figure.subfigures(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, (name, own) in zip(parts, shown.items(), strict=True):
        sweep = sweeps[name]
        if sweep is None:
            drawn = [part.subplots()]
            _draw_rows(drawn[0], own)
        else:
            cells = {row.cell: row for row in reversed(own)}
            drawn = part.subplots(1, len(split[name]), sharey=True, squeeze=False)[0]
            for ax, (title, series) in zip(drawn, split[name].items(), strict=True):
                _draw_lines(ax, cells, sweep[0], series)
                ax.set_title(title, fontsize="small")
                if measured := (distances or {}).get(name):
                    _draw_distance(ax, series, measured, labelled=ax is drawn[-1])
            drawn[0].set_ylabel(_score_label(own))
            _legend(part, drawn[0])
        part.suptitle(name, fontsize="medium", fontweight="bold")
        for ax in drawn:
            ax.grid(alpha=0.3)
            ax.spines[["top", "right"]].set_visible(False)
    with atomic_write(path) as partial:
        figure.savefig(partial, dpi=150, format="png")


def _score_label(rows: Sequence[Row]) -> str:
    return " or ".join(dict.fromkeys(score_name(row.metric) for row in rows)) + " [%]"


def _draw_rows(ax: Any, rows: list[Row]) -> None:
    """Draw one dot for each row; the first row is on top."""
    places = range(len(rows))
    for y, row in zip(places, rows, strict=True):
        if row.published is not None:
            ax.errorbar(row.published, y, xerr=row.spread, **_ring("#55544e"))
        if row.ours is not None:
            ax.errorbar(row.ours, y, xerr=row.deviation, **_dot(COLOURS[0]))
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
    series: Series,
) -> None:
    """Draw scores against the swept parameter; published ones dashed in the same colour."""
    for k, (name, points) in enumerate(series.items()):
        colour, mark = COLOURS[k % len(COLOURS)], MARKS[k // len(COLOURS) % len(MARKS)]
        own = [(x, row) for x, cell in points if (row := cells[cell]).ours is not None]
        paper = [(x, row) for x, cell in points if (row := cells[cell]).published is not None]
        ax.errorbar(
            [x for x, _ in own],
            [row.ours for _, row in own],
            yerr=[row.deviation or 0.0 for _, row in own],
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


def _draw_distance(
    ax: Any, series: Series, distance: Mapping[str, float], *, labelled: bool
) -> None:
    """Draw the distance of the marginal from uniform, common to all series, on a second axis."""
    points = sorted({(x, distance[c]) for own in series.values() for x, c in own if c in distance})
    other = ax.twinx()
    other.plot(*zip(*points, strict=True), ":", color="#55544e", lw=1.5)
    other.set_ylim(-0.02, 1.02)
    other.spines[["top"]].set_visible(False)
    ax.plot([], [], ":", color="#55544e", lw=1.5, label="distance from uniform")
    if labelled:
        other.set_ylabel("total variation distance of the marginal")
    else:
        other.set_yticklabels([])


def _legend(part: Any, ax: Any) -> None:
    """Draw one legend for all panels, below them."""
    handles, labels = ax.get_legend_handles_labels()
    part.legend(
        handles, labels, fontsize="small", frameon=False, ncols=4, loc="outside lower center"
    )


def _dot(colour: str) -> dict[str, Any]:
    return {"fmt": "o", "color": colour, "ms": 5, "capsize": 2, "lw": 1.5}


def _ring(colour: str) -> dict[str, Any]:
    return {"fmt": "o", "color": colour, "mfc": "none", "ms": 9, "capsize": 3, "lw": 1}
