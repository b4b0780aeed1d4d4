"""The page of a choice of beliefs: every candidate, and how far it is behind the best."""

from __future__ import annotations

from collections.abc import Iterator

from isolatent.diagnosis import Choice
from isolatent.figure_data import choice_data
from isolatent.report import figures
from isolatent.report.content import Block, Figures, Note, Table, TableCell
from isolatent.report.page import Headline, Page, Section, Verdict

__all__ = ["choice_blocks", "page_of_choice"]

MAX_CANDIDATES = 60  # of the figure
CANDIDATE_VERDICTS = {"chosen": "reached", "tied": "limit", "worse": "open", "diverged": "failed"}
TRUST = "A choice compares candidates with each other; whether to believe the best is a diagnosis:"


def page_of_choice(
    choice: Choice, *, title: str = "Choice of beliefs", command: str | None = None
) -> Page:
    """Return a page about a choice of beliefs, with the diagnosis of the best if there is one.

    Args:
        choice: The result of :func:`isolatent.choose`.
        title: The page's heading.
        command: The command that repeats the choice.

    Example:
        >>> page = page_of_choice(Choice(None, (), None, None, None, (), "Cannot tell: 9 pairs."))
        >>> page.headline.label, page.headline.text
        ('Nothing chosen', 'Cannot tell: 9 pairs.')
    """
    if not isinstance(choice, Choice):
        raise TypeError(f"choice must be a Choice, got {type(choice).__name__}")
    fitted = choice.model is not None and hasattr(choice.model, "guarantee_")
    guarantee = choice.model.guarantee_.to_dict() if fitted and choice.model is not None else None
    best = choice.best or {}
    facts = tuple((name.replace("_", " "), _text(value)) for name, value in best.items())
    section = Section(
        "The choice",
        facts=(("Number of factors", str(choice.n_factors)), *facts) if best else (),
        choice=choice,
        diagnosis=choice.diagnosis,
        guarantee=guarantee,
        command=command,
    )
    return Page(title, sections=(section,), headline=_headline(choice))


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _headline(choice: Choice) -> Headline:
    """Return the verdict: red where the best does not hold, green only if a diagnosis holds."""
    if choice.best is None:
        nothing = "bad" if choice.holds is False else "open"
        return Headline(nothing, "Nothing chosen", choice.verdict)
    if choice.diagnosis is None:
        commands = ("isolatent fit DATA --out MODEL", "isolatent diagnose MODEL DATA")
        return Headline("open", "Chosen, not checked", choice.verdict, TRUST, commands)
    labels = {True: "Chosen and supported", False: "Not supported", None: "Chosen, undecided"}
    state = {True: "good", False: "bad", None: "open"}[choice.holds]
    return Headline(state, labels[choice.holds], choice.verdict)


def _verdict(status: str) -> Verdict:
    return Verdict(CANDIDATE_VERDICTS[status], status)


def _with_error(value: float | None, error: float | None) -> str:
    return "–" if value is None else f"{value:.3f} ± {error:.3f}"


def choice_blocks(section: Section, anchor: str) -> Iterator[Block]:
    """Yield the table of all candidates, and how far those that were compared are behind."""
    if section.choice is None or not section.choice.trials:
        return
    trials = section.choice.trials
    yield Table(
        "Candidates",
        (
            *map(TableCell, ("Candidate", "Outcome", "Theorem leaves open")),
            *(TableCell(name, number=True) for name in ("Factors", "Steps", "Information (nats)")),
            TableCell("Behind the best (nats)", number=True),
        ),
        tuple(
            (
                TableCell(trial.name),
                TableCell(
                    trial.status, verdict=Verdict(CANDIDATE_VERDICTS[trial.status], trial.status)
                ),
                TableCell(trial.equivalence or "no theorem"),
                TableCell(str(trial.n_factors), number=True),
                TableCell(str(trial.steps), number=True),
                TableCell(
                    "–" if trial.information is None else f"{trial.information:.3f}", number=True
                ),
                TableCell(_with_error(trial.behind, trial.behind_error), number=True),
            )
            for trial in trials
        ),
    )
    yield Note(
        "Information of held-out pairs, which is comparable between candidates with equally many "
        "steps: the better half of them is trained longer, twice.",
        style="muted",
    )
    data = choice_data(section.choice)
    rows = [
        (name, float(behind), (float(behind - 2 * error), float(behind + 2 * error)))
        for name, behind, error in zip(data.names, data.behind, data.errors, strict=True)
        if figures.is_drawable(float(behind))
    ][:MAX_CANDIDATES]
    if len(rows) > 1:
        label = "held-out information behind the best [nats]"
        picture = figures.intervals(f"{anchor}-behind", "Candidates behind the best", rows, label)
        caption = (
            "Candidates that were compared with the best on the same held-out pairs, with two "
            "standard errors. One whose interval reaches zero cannot be told apart from it."
        )
        yield Figures(f"{anchor}-behind", caption, (picture,), "single")
