"""The diagnosis of a fit: the verdict at the top, and a picture and a row for each check."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from isolatent.diagnosis import Check, Diagnosis, ExpectedScore
from isolatent.figure_data import CheckData, diagnosis_data
from isolatent.files import DamagedFileError, read_json
from isolatent.report import figures
from isolatent.report.content import Block, Figure, Figures, Note, Table, TableCell
from isolatent.report.page import Headline, Section, Verdict

__all__ = ["diagnosis_blocks", "headline_of", "read_diagnosis"]

CHECK_NAMES = {
    "information": "pairs share information",
    "optimum": "training reached one optimum",
    "marginal": "marginal",
    "conditional": "conditional",
    "anchor_scale": "steps equally wide everywhere",
    "factor_scale": "factors equally fast",
    "n_components": "no factor left out",
    "injective": "the mixing is injective",
    "noise": "observations without noise",
    "pairing": "all pairs related",
    "space": "space",
    "dynamics": "positives around their anchor",
    "axes": "axes found again",
    "stationarity": "the same at all times",
}
COMMANDS = (
    "isolatent diagnose MODEL DATA --json > diagnosis.json",
    "isolatent report MODEL --data DATA --diagnosis diagnosis.json",
)
OUTCOMES = {"supported": "reached", "contradicted": "missed"}
CHECK_COLOURS = {"supported": "var(--good)", "contradicted": "var(--bad)"}


def read_diagnosis(path: str | os.PathLike[str]) -> Diagnosis:
    """Read what ``isolatent diagnose --json`` printed.

    Args:
        path: The file.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> check = Check("optimum", "supported", 0.99, "0.99 (mcc)", None, 0.01)
        >>> found = Diagnosis(True, (), ExpectedScore(0.98, 0.97, 0.99, "mcc"), (check,), "Good.")
        >>> with TemporaryDirectory() as directory:
        ...     file = Path(directory) / "diagnosis.json"
        ...     _ = file.write_text(json.dumps(found.to_dict()))
        ...     read_diagnosis(file) == found
        True
    """
    try:
        content = read_json(path)
        TypeAdapter(Diagnosis).validate_json(json.dumps(content), strict=True)
    except (DamagedFileError, ValidationError) as error:
        raise ValueError(
            f"{path} is not a diagnosis that `isolatent diagnose --json` printed"
        ) from error
    expected = content["expected_score"]
    checks = [_known(Check, check) for check in content["checks"]]
    known = {"checks": checks, "expected_score": expected and _known(ExpectedScore, expected)}
    return Diagnosis.from_dict(content | known)


def _known(kind: Any, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass; another version may have further ones."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in content.items() if name in names}


def headline_of(model: Any, diagnosis: Diagnosis | None) -> Headline:
    """Return the verdict on a fit: of a diagnosis, or of what the fit itself noticed.

    Args:
        model: A fitted model.
        diagnosis: The result of :func:`isolatent.diagnose`, if it was run.
    """
    guarantee, warned = model.guarantee_, " ".join(map(_sentence, model.guarantee_.warnings))
    on_sphere = getattr(model, "beliefs_", None) is not None and model.beliefs_.space == "sphere"
    count = model.n_components - on_sphere  # factors: n codes on a sphere are n - 1
    found = f"{count} factor{'s were' if count > 1 else ' was'} recovered"
    support = str(
        getattr(guarantee, "support", "")
    )  # what held-out pairs said, where they were asked
    claim = _claim(guarantee.equivalence)
    if diagnosis is not None:
        advice = f"Training warned: {warned}" if warned else ""
        if diagnosis.holds and guarantee.equivalence is None:
            text = f"Nothing is claimed about the factors: {guarantee.gap}. {diagnosis.verdict}"
            return Headline("bad", "No claim", text, advice)
        if diagnosis.holds and warned:
            text = f"{diagnosis.verdict} But training warned: {warned}"
            return Headline("bad", "Not supported", text)
        if diagnosis.holds:
            said = str(guarantee.equivalence) in diagnosis.verdict
            text = f"{found}{'' if said else f': {claim}'}. {diagnosis.verdict}"
            return Headline("good", "Supported", text, advice)
        if diagnosis.holds is None:
            return Headline("open", "Undecided", diagnosis.verdict, advice)
        return Headline("bad", "Not supported", diagnosis.verdict, advice)
    if warned:
        advice = "Do not interpret the factors before this is mended. What else is wrong:"
        return Headline("bad", "Not supported", warned, advice, COMMANDS[:1])
    if guarantee.equivalence is None:
        text = f"{found}, about which nothing can be claimed: {guarantee.gap}."
        return Headline("bad", "No claim", text, "Change what the card below names.")
    text = (
        f"{found}: {claim}, if the assumptions on the card hold. These have not been checked."
        f"{f' {_sentence(support)}' if support else ''}"
    )
    return Headline("open", "Not checked", text, "Check the assumptions on the data:", COMMANDS)


def _claim(equivalence: str | None) -> str:
    article = "an" if str(equivalence)[:1].lower() in "aeiou" else "a"
    return f"they are the true ones up to {article} {equivalence}"


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."


def diagnosis_blocks(section: Section, anchor: str) -> Iterator[Block]:
    """Yield the verdict, a table of all checks, and a picture of each that measured something."""
    if section.diagnosis is None:
        return
    data = diagnosis_data(section.diagnosis)
    yield Note(data.verdict, style="claim")
    if data.expected_score is not None:
        yield Note(
            f"Expected score against the true factors, from a rehearsal: {data.expected_score}."
        )
    yield Table(
        f"Checks of {section.name}",
        (*map(TableCell, ("Check", "Outcome", "Found")), *_NUMBERS),
        tuple(map(_row, data.checks)),
        frozenset(k for k, check in enumerate(data.checks) if check.is_harmful),
    )
    pictures = tuple(
        _picture(check, anchor) for check in data.checks if check.quantity and len(check.values)
    )
    if pictures:
        caption = (
            "What each check observed; bars are two standard errors. A dotted line is the limit "
            "that the observation should keep; a gain of a relaxation should not differ from zero."
        )
        yield Figures(f"{anchor}-checks", caption, pictures)


_NUMBERS = (TableCell("p", number=True), TableCell("Harm", number=True))


def _row(check: CheckData) -> tuple[TableCell, ...]:
    outcome = Verdict(OUTCOMES.get(check.status, "open"), check.status)
    return (
        TableCell(CHECK_NAMES.get(check.key, check.key)),
        TableCell(check.status, verdict=outcome),
        TableCell(check.effect),
        TableCell("–" if check.p_value is None else f"{check.p_value:.2g}", number=True),
        TableCell("–" if check.harm is None else f"{check.harm:.3f}", number=True),
    )


def _picture(check: CheckData, anchor: str) -> Figure:
    limit = None if check.limit is None else (check.limit, check.limit_is_least)
    # A relaxation is compared with the model as declared, which has no gain.
    observed = len(check.labels) - 1 if check.labels[0] == "as declared" else 0
    colour = CHECK_COLOURS.get(check.status, "var(--muted)")
    colours = [colour if k == observed else "var(--muted)" for k in range(len(check.labels))]
    return figures.checked(
        f"{anchor}-check-{check.key}",
        CHECK_NAMES.get(check.key, check.key),
        check.labels,
        check.values.tolist(),
        check.errors.tolist(),
        limit,
        check.quantity,
        colours,
    )
