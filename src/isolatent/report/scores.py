"""The scores of a cell: over all runs, and of each run with its intervals."""

from __future__ import annotations

from isolatent.report.elements import Markup, element, part, scrolling
from isolatent.report.page import Cell, Score
from isolatent.report.table import score_name

__all__ = ["intervals_part", "scores_part"]


def scores_part(cell: Cell) -> Markup | None:
    """What was scored in rows, scores in columns; in bold what the guarantee is about."""
    if not cell.scores:
        return None
    names = list(dict.fromkeys(score.name for score in cell.scores))
    kinds = list(dict.fromkeys(score.of for score in cell.scores))
    table = _table(
        [score_name(name) for name in names],
        {of: [_found(cell.scores, of, name) for name in names] for of in kinds},
    )
    told = None
    if promised := {score.name for score in cell.scores if score.promised}:
        listed = ", ".join(score_name(name) for name in names if name in promised)
        told = element("p", f"In bold: {listed}, which the guarantee is about.")
    return part("Scores", scrolling(f"Scores of {cell.name}", table), told)


def intervals_part(cell: Cell) -> Markup | None:
    """Scores in rows, runs in columns, for there are many scores."""
    if not cell.intervals:
        return None
    names = list(dict.fromkeys(score.name for score in cell.intervals))
    runs = list(dict.fromkeys(score.of for score in cell.intervals))
    table = _table(
        runs, {score_name(n): [_found(cell.intervals, of, n) for of in runs] for n in names}
    )
    told = (
        "Each run’s scores with 95 % intervals, in per cent. They come from resampling the points "
        "on which a trained model is scored; how much trainings differ is seen between the runs."
    )
    shown = scrolling(f"Scores of each run of {cell.name}, with intervals", table)
    return part("Each run", shown, element("p", told))


def _found(scores: tuple[Score, ...], of: str, name: str) -> Score | None:
    return next((score for score in scores if (score.of, score.name) == (of, name)), None)


def _table(columns: list[str], rows: dict[str, list[Score | None]]) -> Markup:
    heads = (element("th", name, scope="col", class_="number") for name in columns)
    return element(
        "table",
        element("thead", element("tr", element("td"), *heads)),
        element(
            "tbody",
            *(
                element("tr", element("th", name, scope="row"), *map(_figure, found))
                for name, found in rows.items()
            ),
        ),
    )


def _figure(score: Score | None) -> Markup:
    if score is None:
        return element("td", "–", class_="number")
    text = element("strong", score.text) if score.promised else score.text
    return element("td", text, class_="number")
