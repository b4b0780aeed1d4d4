"""Figures of factors and codes: correlations, scatter plots, histograms, latent traversals."""

from __future__ import annotations

from isolatent.experiments.latent_traversal import DEAD
from isolatent.report import figures
from isolatent.report.elements import Markup, element, figure, part
from isolatent.report.page import Section

__all__ = ["codes_part", "factors_part", "traversal_part"]

MAX_PANELS = 20  # of small multiples
RULED_COLUMNS = 9  # images in a row between which the style sheet draws lines
ALIGNMENTS = {
    "assignment": "after the optimal assignment, with positive signs",
    "linear": "after a linear regression fitted to other observations",
}
TRAVERSAL_KINDS = {
    "decoded": "the decoder’s output",
    "nearest": "the stored image with the nearest codes (the varied code has the largest weight)",
}


def factors_part(section: Section, anchor: str) -> Markup | None:
    """Return the correlation matrix, and scatter plots of true factors and aligned codes."""
    shown: list[Markup] = []
    alignment = ALIGNMENTS.get(section.alignment, section.alignment)
    how = f", {alignment}" if alignment else ""
    if section.correlations and section.correlations[0]:
        matrix = figures.heat_map(
            f"{anchor}-correlations",
            "Correlations of true and recovered factors",
            section.correlations,
            ("true factor", "code" if section.traversal else "recovered factor"),
            section.factors,
        )
        caption = f"|Correlation| of each true factor with each recovered factor{how}."
        if section.traversal:
            caption = "|Rank correlation| of each true factor with each code."
            if section.categories:
                caption += (
                    f" For a categorical factor ({', '.join(section.categories)}): the square root "
                    "of the share of the variance of a code’s ranks between categories."
                )
        shown.append(figure(f"{anchor}-correlations", caption, matrix, class_="matrix"))
    scatter = section.scatter
    if scatter is not None and scatter.true and scatter.codes:
        columns = list(
            zip(zip(*scatter.true, strict=True), zip(*scatter.codes, strict=True), strict=False)
        )
        panels = [
            figures.points(
                f"{anchor}-factor{k + 1}",
                f"Factor {k + 1}",
                true,
                code,
                ("true", "recovered"),
                f"Factor {k + 1}, {len(true)} points: recovered against true{how}.",
            )
            for k, (true, code) in enumerate(columns[:MAX_PANELS])
        ]
        caption = f"Recovered against true factors{how}."
        shown.append(
            figure(
                f"{anchor}-scatter",
                caption + _truncation(len(columns), "factors"),
                *panels,
                class_="small panels",
            )
        )
    return part("True and recovered factors", *shown) if shown else None


def codes_part(section: Section, anchor: str) -> Markup | None:
    """Return a histogram of each code."""
    if not section.codes:
        return None
    columns = list(zip(*section.codes, strict=True))
    panels = [
        figures.histogram(f"{anchor}-code{k + 1}", f"Code {k + 1}", column, f"code {k + 1}")
        for k, column in enumerate(columns[:MAX_PANELS])
    ]
    caption = f"Distribution of each code over {len(section.codes)} observations."
    caption += _truncation(len(columns), "codes")
    return part("Codes", figure(f"{anchor}-codes", caption, *panels, class_="small panels"))


def _truncation(count: int, what: str) -> str:
    return "" if count <= MAX_PANELS else f" The first {MAX_PANELS} of {count} {what}."


def traversal_part(section: Section, anchor: str) -> Markup | None:
    """Return a row of images for each code, named by the factor with which it correlates most."""
    traversal = section.traversal
    if traversal is None or not traversal.rows:
        return None
    rows = [
        element(
            "div",
            element("p", f"Code {k + 1}{(label := _code_label(section, k))}"),
            element(
                "div",
                element(
                    "img",
                    src=f"data:image/png;base64,{row}",
                    alt=f"Traversal of code {k + 1}{label}",
                    width=str(traversal.columns * traversal.size),
                    height=str(traversal.size),
                ),
                class_="row nine" if traversal.columns == RULED_COLUMNS else "row",
            ),
        )
        for k, row in enumerate(traversal.rows)
    ]
    caption = (
        "Each row varies one code from its 2nd to its 98th percentile and keeps the other codes at "
        "those of a central image. Each image is "
        f"{TRAVERSAL_KINDS.get(traversal.kind, traversal.kind)}."
    )
    if section.correlations and section.factors:
        caption += " The label names the factor with the largest correlation."
    if any(map(_is_inactive, traversal.spreads)):
        caption += (
            f" A code is inactive if its standard deviation is below {100 * DEAD:g} % of the "
            "largest; its correlations carry little information."
        )
    shown = figure(f"{anchor}-traversal", caption, *rows, class_="traversal")
    return part("Latent traversals", shown)


def _is_inactive(spread: float) -> bool:
    return spread < DEAD


def _code_label(section: Section, code: int) -> str:
    """Say that a code is inactive, or name the factor with which it correlates most."""
    spreads = section.traversal.spreads if section.traversal is not None else ()
    if code < len(spreads) and _is_inactive(spreads[code]):
        return f": inactive, {spreads[code]:.2g} of the largest standard deviation"
    column = [row[code] for row in section.correlations if code < len(row)]
    if not column or len(section.factors) != len(column):
        return ""
    best = max(range(len(column)), key=column.__getitem__)
    return f": {section.factors[best]} ({column[best]:.2f})"
