"""The table of ours beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from isolatent.report.markup import Markup, element, join
from isolatent.report.page import Row
from isolatent.report.verdicts import MARGIN, Verdict

__all__ = ["results_table", "score_name", "scrolling", "verdict_mark"]

SCORE_NAMES = {
    "linear_r2": "R² (linear)",
    "mcc": "MCC",
    "block_r2": "R² (blocks)",
    "block_mcc": "MCC (blocks)",
}
NUMERIC = ("Ours", "Paper", "Difference", "Seeds")
COLUMNS = ("Row", "Verdict", "Score", *NUMERIC)  # the verdict early: a phone shows the left


def score_name(name: str) -> str:
    """A score's name as a person writes it."""
    return SCORE_NAMES.get(name, name)


def results_table(rows: Sequence[Row], anchors: Mapping[str, str]) -> Markup:
    """Ours beside the paper's, to be sorted by any column."""
    several = len({row.experiment for row in rows}) > 1
    columns = [*COLUMNS, *(("Experiment",) if several else ())]
    heads = (
        element(
            "th",
            element(
                "button", name, element("span", aria_hidden="true", class_="arrow"), type="button"
            ),
            scope="col",
            class_="number" if name in NUMERIC else None,
        )
        for name in columns
    )
    table = element(
        "table",
        element("caption", "Ours beside the paper’s, one line for each row", class_="unseen"),
        element("thead", element("tr", *heads)),
        element("tbody", *(_table_row(row, anchors, several) for row in rows)),
        class_="results",
        aria_describedby="results-rule",
    )
    rule = (
        "Means ± standard deviations over seeds. A row is reached if our mean is at most "
        f"{MARGIN} below the paper’s, or at most the paper’s own spread if that is larger. "
        "Press a heading to sort."
    )
    return join(
        element("p", rule, id="results-rule", class_="muted"),
        scrolling("Results, ours beside the paper’s", table),
    )


def _table_row(row: Row, anchors: Mapping[str, str], several: bool) -> Markup:
    ours, published = row.ours, row.published
    difference = None if ours is None or published is None else ours.mean - published.mean
    anchor = anchors.get(row.cell)
    name = row.cell.removeprefix(f"{row.experiment}: ")
    seeds = 0 if ours is None else ours.seeds or 0
    return element(
        "tr",
        element(
            "th", name if anchor is None else element("a", name, href=f"#{anchor}"), scope="row"
        ),
        element("td", verdict_mark(row.verdict), data_value=_order(row.verdict), class_="told"),
        element("td", score_name(row.score), class_="name"),
        _numeric(None if ours is None else ours.mean, "–" if ours is None else str(ours)),
        _numeric(
            None if published is None else published.mean,
            "–" if published is None else str(published),
        ),
        _numeric(difference, "–" if difference is None else _signed(difference)),
        _numeric(seeds, str(seeds) if seeds == row.runs else f"{seeds} of {row.runs}"),
        element("td", row.experiment) if several else None,
        class_="bad" if row.verdict.is_bad else None,
    )


def _numeric(value: float | None, text: str) -> Markup:
    known = value is not None and math.isfinite(value)
    return element("td", text, class_="number", data_value=repr(value) if known else "")


def _signed(value: float) -> str:
    text = f"{value:+.4f}".replace("-", "−")
    return "0.0000" if text[1:] == "0.0000" else text


def _order(verdict: Verdict) -> int:
    """The worst first."""
    return ["failed", "missed", "limit", "open", "reached", "above"].index(verdict.kind)


def verdict_mark(verdict: Verdict) -> Markup:
    """A verdict as symbol, words and colour."""
    symbol = element("span", verdict.symbol, aria_hidden="true")
    return element("span", symbol, " ", verdict.text, class_=f"verdict {verdict.kind}")


def scrolling(label: str, table: Markup) -> Markup:
    """A box in which a wide table scrolls by itself; it takes the focus so that keys scroll it."""
    return element("div", table, class_="scroll", role="region", aria_label=label, tabindex="0")
