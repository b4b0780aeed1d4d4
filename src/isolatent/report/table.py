"""The table of ours beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from isolatent.experiments.results import (
    CLOSE,
    NOT_IDENTIFIED,
    ours_heading,
    ours_text,
    seeds_text,
    spread_text,
)
from isolatent.report.elements import Markup, element, join, scrolling
from isolatent.report.page import Row
from isolatent.report.verdicts import KINDS, Verdict

__all__ = ["results_table", "score_name", "verdict_mark"]

SCORE_NAMES = {
    "linear_r2": "R² (linear)",
    "mcc": "MCC",
    "block_r2": "R² (blocks)",
    "block_mcc": "MCC (blocks)",
    "beta_vae": "BetaVAE",
    "factor_vae": "FactorVAE",
    "mig": "MIG",
    "disentanglement": "DCI, D",
    "completeness": "DCI, C",
    "informativeness": "DCI, I",
    "modularity": "Modularity",
    "explicitness": "Explicitness",
    "sap": "SAP",
}
NUMERIC = ("Paper [%]", "Difference", "Seeds")


def score_name(name: str) -> str:
    """A score's name as a person writes it."""
    whole, block, number = name.partition("_block")
    if block and number.isdigit():
        return f"{score_name(whole)}, block {number}"
    return SCORE_NAMES.get(name, name)


def results_table(rows: Sequence[Row], anchors: Mapping[str, str]) -> Markup:
    """Ours beside the paper's, to be sorted by any column."""
    several = len({row.result.experiment for row in rows}) > 1
    centres = {row.result.centre for row in rows}
    mixed, ours = len(centres) > 1, f"O{ours_heading(centres)[1:]}"
    columns = ["Row", "Verdict", ours, *NUMERIC, "Score"]  # a phone shows the left
    columns += ["Experiment"] if several else []
    heads = (
        element(
            "th",
            element(
                "button", name, element("span", aria_hidden="true", class_="arrow"), type="button"
            ),
            scope="col",
            class_="number" if name in (ours, *NUMERIC) else None,
        )
        for name in columns
    )
    table = element(
        "table",
        element("caption", "Ours beside the paper’s, one line for each row", class_="unseen"),
        element("thead", element("tr", *heads)),
        element("tbody", *(_table_row(row, anchors, several, mixed) for row in rows)),
        class_="results",
        aria_describedby="results-rule",
    )
    rule = (
        f"{_centres(rows)} over seeds, in per cent. A row is reached if it is within the "
        f"paper’s own spread or {CLOSE:g} points of its figure, or above; red rows are not. Where "
        "the paper shows or claims that factors are not identified, less than "
        f"{NOT_IDENTIFIED:g} % fails as published or claimed. Press a heading to sort."
    )
    return join(
        element("p", rule, id="results-rule", class_="muted"),
        scrolling("Results, ours beside the paper’s", table),
    )


def _centres(rows: Sequence[Row]) -> str:
    """What the figures are."""
    centres = {row.result.centre for row in rows}
    if centres == {"median"}:
        return "Medians ± median absolute deviations (MAD)"
    means = "Means ± standard deviations"
    return f"{means}, or medians ± median absolute deviations," if len(centres) > 1 else means


def _table_row(row: Row, anchors: Mapping[str, str], several: bool, mixed: bool) -> Markup:
    result = row.result
    anchor = anchors.get(row.cell)
    name = row.cell.removeprefix(f"{result.experiment}: ")
    return element(
        "tr",
        element(
            "th", name if anchor is None else element("a", name, href=f"#{anchor}"), scope="row"
        ),
        element("td", verdict_mark(row.verdict), data_value=_order(row.verdict), class_="told"),
        _numeric(result.ours, ours_text(result, mixed)),
        _numeric(result.published, spread_text(result.published, result.spread)),
        _numeric(result.difference, _signed(result.difference)),
        _numeric(result.seeds, seeds_text(result)),
        element("td", score_name(result.metric), class_="name"),
        element("td", result.experiment) if several else None,
        class_="bad" if row.verdict.is_bad else None,
    )


def _numeric(value: float | None, text: str) -> Markup:
    known = value is not None and math.isfinite(value)
    return element("td", text or "–", class_="number", data_value=repr(value) if known else "")


def _signed(value: float | None) -> str:
    if value is None:
        return ""
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text[1:] == "0.00" else text


def _order(verdict: Verdict) -> int:
    return [*KINDS].index(verdict.kind)


def verdict_mark(verdict: Verdict) -> Markup:
    """A verdict as symbol, words and colour."""
    symbol = element("span", verdict.symbol, aria_hidden="true")
    return element("span", symbol, " ", verdict.text, class_=f"verdict {verdict.kind}")
