"""The page of a comparison of runs: how far each pair of them agrees, and by chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from isolatent.diagnosis import Consistency
from isolatent.report import figures
from isolatent.report.content import Block, Figures
from isolatent.report.figures import is_drawable
from isolatent.report.page import Headline, Page, Section
from isolatent.report.tables import score_name

__all__ = ["agreement_blocks", "page_of_consistency"]

FAR_FROM_CHANCE = 0.1  # of agreement beyond the control, below which runs share next to nothing
AGREED = 0.9  # of two runs, each of which has a score of about 0.95
LIMITATION = "Agreement does not mean that codes are right: runs can share a bias."
MAX_INTERVALS = 60  # pairs of runs in one figure


def page_of_consistency(
    result: Consistency, names: Sequence[str] = (), *, title: str = "Agreement of runs"
) -> Page:
    """Return a page about the agreement of runs, animals or sessions.

    Args:
        result: The result of :func:`isolatent.consistency`.
        names: Names of the runs; by default their numbers.
        title: The page's heading.

    Example:
        >>> import numpy as np
        >>> import isolatent as iso
        >>> z = np.random.default_rng(0).normal(size=(300, 2))
        >>> page = page_of_consistency(iso.consistency([z, -z, z @ [[1.0, 1.0], [0.0, 1.0]]]))
        >>> page.headline.label
        'Agree'
    """
    if not isinstance(result, Consistency):
        raise TypeError(f"result must be a Consistency, got {type(result).__name__}")
    count = 1 + max(k for pair in result.pairs for k in pair)
    names = [str(name) for name in names] or [f"run {k}" for k in range(count)]
    if len(names) != count:
        raise ValueError(f"names must be {count}, one for each run, got {len(names)}")
    section = Section(
        "Agreement",
        facts=(
            ("Metric", score_name(result.metric)),
            ("Mean", f"{result.value:.3f} [{result.low:.3f}, {result.high:.3f}]"),
            ("By chance", f"{result.control:.3f}"),
            ("Runs", ", ".join(names)),
        ),
        agreement=result,
        factors=tuple(names),
    )
    return Page(title, sections=(section,), headline=_headline(result, count))


def _headline(result: Consistency, count: int) -> Headline:
    found = (
        f"{count} runs agree up to {result.value:.3f} ({score_name(result.metric)}), by chance "
        f"{result.control:.3f}."
    )
    least = min(interval.value for interval in result.pairs.values())
    if result.low < result.control + FAR_FROM_CHANCE:
        return Headline("bad", "No agreement", f"{found} That is hardly more than chance.")
    if least < AGREED:
        text = f"{found} The pair that agrees least has {least:.3f}."
        return Headline("open", "Agree in part", text)
    return Headline("good", "Agree", found, LIMITATION)


def agreement_blocks(section: Section, anchor: str) -> Iterator[Block]:
    """Yield the matrix of agreements, and each with its interval and the control."""
    result = section.agreement
    if result is None:
        return
    names, count = section.factors, len(section.factors)
    values = [[1.0 if i == j else float("nan") for j in range(count)] for i in range(count)]
    for (i, j), interval in result.pairs.items():
        values[i][j] = values[j][i] = interval.value
    label = f"agreement, {score_name(result.metric)}"
    matrix = figures.heat_map(
        f"{anchor}-agreement",
        "Agreement of each pair of runs",
        values,
        ("run", "run"),
        names,
        names,
    )
    rows = [
        (f"{names[i]}, {names[j]}", one.value, (one.low, one.high))
        for (i, j), one in result.pairs.items()
        if is_drawable(one.value)
    ][:MAX_INTERVALS]
    rows.append(("by chance", result.control, (result.control, result.control)))
    spread = figures.intervals(f"{anchor}-intervals", "Agreement with intervals", rows, label)
    caption = (
        "Agreement up to the maps that the guarantee leaves open, with bootstrap intervals of "
        "95 %. By chance is the largest of runs shifted in time."
    )
    yield Figures(f"{anchor}-agreement", caption, (matrix, spread), "wide panels")
