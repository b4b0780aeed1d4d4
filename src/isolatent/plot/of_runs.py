"""Figures of runs: training curves, diagnoses, and scores by the number of pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from isolatent.diagnosis import Choice, Diagnosis
from isolatent.figure_data.candidates import choice_data
from isolatent.figure_data.check_values import CheckData, DiagnosisData, diagnosis_data
from isolatent.figure_data.curves import smoothed, training_data
from isolatent.figure_data.scores import score_against_pairs_data, score_name
from isolatent.plot.axes import prepare_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["choice", "diagnosis", "score_against_pairs", "training"]

MANY_STEPS = 200  # from which on the loss of single batches is drawn as a shade
# Marks differ in shape as well as in colour, for readers who do not tell red from green.
STATUS = {
    "supported": ("o", "#0b6b2e"),
    "contradicted": ("X", "#a3161a"),
    "cannot tell": ("D", "0.5"),
}
EXPECTED = "expected score"
CANDIDATE_MARKS = {
    "chosen": ("o", "#0b6b2e"),
    "tied": ("D", "C0"),
    "worse": ("X", "0.5"),
    "diverged": ("X", "#a3161a"),
}
LEAST_HARM = 0.1  # up to which the axis of harm reaches at least


def training(run: Any, *, ax: Any = None, **style: Any) -> Axes:
    """Draw how training went on batches and on held-out pairs, and from which step it overfits.

    For InfoNCE both curves are the bound log B - loss on the information that a pair shares: losses
    on different numbers B of candidates are not comparable. For other objectives both are losses.
    The network of the step with the lowest held-out loss is kept; a dot marks it. Where InfoNCE was
    saturated, another objective follows, whose losses have another level.

    Args:
        run: A fitted model, its ``history_``, or a stored record of an experiment.
        ax: Axes of matplotlib; None for a new figure.
        **style: Passed to ``plot``, such as ``linewidth``.

    Example:
        >>> from matplotlib.figure import Figure
        >>> falls = [{"number": k, "loss": 1 / k, "held_out": abs(k - 5) / 9} for k in range(1, 13)]
        >>> ax = training(falls, ax=Figure().subplots())
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['training', 'held out', 'overfits from step 5']

    .. image:: gallery/training.png
    """
    data = training_data(run)
    ax = prepare_axes(ax)
    batches, smooth, held_out = data.loss, data.smooth_loss, data.held_out
    in_nats = data.changed_at is None and len(data.held_out_information.steps) > 0
    if in_nats:
        batches, held_out = data.information, data.held_out_information
        smooth = smoothed(batches)
    if len(batches.steps) > MANY_STEPS:
        ax.plot(batches.steps, batches.values, **({"alpha": 0.3, "color": "C0"} | style))
    ax.plot(smooth.steps, smooth.values, **({"color": "C0"} | style), label="training")
    if len(held_out.steps):
        ax.plot(held_out.steps, held_out.values, **({"color": "C1"} | style), label="held out")
        ax.plot(
            [data.lowest],
            held_out.values[held_out.steps == data.lowest],
            "o",
            color="C1",
        )
    if data.changed_at is not None:
        label = f"saturated objective from step {data.changed_at}"
        ax.axvline(data.changed_at, linestyle=":", color="0.5", label=label)
    if data.overfits_from is not None:
        label = f"overfits from step {data.overfits_from}"
        ax.axvspan(data.overfits_from, data.loss.steps[-1], color="C3", alpha=0.12, label=label)
    ax.set_xlabel("step")
    if in_nats:
        ax.set_ylabel("information, log B − loss [nats]")
    else:
        ax.set_ylabel("loss [nats]" if len(data.information.steps) else "loss")
    ax.legend()
    return ax


def diagnosis(
    diagnosis: Diagnosis, *, check: str | None = None, ax: Any = None, **style: Any
) -> Axes:
    """Draw what the checks of a diagnosis found: all of them, or what one of them observed.

    All checks are drawn as harm, from 0 to 1: how far codes without the assumption, or the factors,
    are from these codes. Marks say what is supported, contradicted, or cannot be told. One check is
    drawn as what was observed beside what it was compared with: a relaxed model, shuffled pairs, or
    the limit of an agreement or a share.

    Args:
        diagnosis: The result of :func:`isolatent.diagnose`.
        check: Name of a check, or ``"expected score"`` for the rehearsal; None for all checks.
        ax: Axes of matplotlib; None for a new figure.
        **style: Passed to ``barh`` for all checks, to ``errorbar`` for one.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from isolatent.diagnosis import Check, Diagnosis
        >>> pairing = Check("pairing", "contradicted", 1.05, "1.05 nats", 0.0, 0.06, error=0.1)
        >>> found = Diagnosis(False, ("pairing",), None, (pairing,), "Some pairs look unrelated.")
        >>> ax = globals()["diagnosis"](found, check="pairing", ax=Figure().subplots())
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['as declared', 'relaxed']

    .. image:: gallery/diagnosis.png
    """
    data = diagnosis_data(diagnosis)
    if check is None:
        ax = prepare_axes(ax)
        _draw_all_checks(ax, data, style)
        return ax
    by_key = {one.key: one for one in data.checks}
    keys = [*by_key, *([EXPECTED] if data.expected_score is not None else [])]
    if check not in keys:
        raise ValueError(
            f"check must be one of {', '.join(map(repr, keys))}, those of this diagnosis, got "
            f"{check!r}"
        )
    if check == EXPECTED:
        ax = prepare_axes(ax)
        _draw_expected(ax, data, style)
        return ax
    if not len(by_key[check].values):
        raise ValueError(f"check must have measured something, but of {check!r} nothing was")
    ax = prepare_axes(ax)
    _draw_check(ax, by_key[check], style)
    return ax


def _draw_all_checks(ax: Any, data: DiagnosisData, style: dict[str, Any]) -> None:
    places = range(len(data.checks))
    for y, one in zip(places, data.checks, strict=True):
        mark, colour = STATUS[one.status]
        ax.barh(y, one.harm or 0.0, **({"color": colour, "alpha": 0.4, "height": 0.6} | style))
        ax.plot([one.harm or 0.0], [y], mark, color=colour)
    for status, (mark, colour) in STATUS.items():
        if any(one.status == status for one in data.checks):
            ax.plot([], [], mark, color=colour, label=status)
    ax.set_yticks(places, [one.key for one in data.checks])
    ax.set_ylim(len(data.checks) - 0.5, -0.5)
    ax.axvline(data.harmful, linestyle="--", color="0.5", label=f"harmful from {data.harmful:g}")
    most = max([LEAST_HARM, *(one.harm for one in data.checks if one.harm is not None)])
    ax.set_xlim(-0.05 * most, 1.1 * most)
    ax.set_xlabel("harm to the codes")
    ax.set_title(_title(data), fontsize="small")
    ax.legend()


def _title(data: DiagnosisData) -> str:
    words = {True: "the claim holds", False: "the claim does not hold", None: "cannot tell"}
    score = "" if data.expected_score is None else f"; expect {data.expected_score}"
    return words[data.holds] + score


def _draw_check(ax: Any, one: CheckData, style: dict[str, Any]) -> None:
    mark, colour = STATUS[one.status]
    places = np.arange(len(one.values))
    first = len(one.values) - 1 if one.labels[-1] == "relaxed" else 0  # what the status is of
    for y, value, error in zip(places, one.values, one.errors, strict=True):
        own = (mark, colour) if y == first else ("o", "0.5")
        known = None if np.isnan(error) else 2 * error
        usual = {"fmt": own[0], "color": own[1], "capsize": 3}
        ax.errorbar(value, y, xerr=known, **(usual | style))
    if one.limit is not None:
        label = f"{'at least' if one.limit_is_least else 'at most'} {one.limit:.3g}"
        ax.axvline(one.limit, linestyle="--", color="0.5", label=label)
        ax.legend()
    ax.set_yticks(places, one.labels)
    ax.set_ylim(len(places) - 0.5, -0.5)
    ax.set_xlabel(one.quantity)
    ax.set_title(f"{one.key}: {one.status}", fontsize="small")


def _draw_expected(ax: Any, data: DiagnosisData, style: dict[str, Any]) -> None:
    score = data.expected_score
    assert score is not None
    mark, colour = STATUS["supported" if score.value >= data.least_score else "contradicted"]
    ends = [[score.value - score.low], [score.high - score.value]]
    ax.errorbar(
        [score.value], [0], xerr=ends, **({"fmt": mark, "color": colour, "capsize": 3} | style)
    )
    ax.axvline(
        data.least_score, linestyle="--", color="0.5", label=f"at least {data.least_score:.3g}"
    )
    ax.set_yticks([0], ["rehearsal"])
    ax.set_xlabel(score_name(score.metric))
    ax.set_title(f"expected score: {score}", fontsize="small")
    ax.legend()


def choice(choice: Choice, *, ax: Any = None, **style: Any) -> Axes:
    """Draw how far candidate beliefs are behind the best, in held-out information.

    Bars are two standard errors of the difference on the same held-out pairs. Candidates that were
    dropped without a comparison with the best, or diverged, are not drawn; the title counts them.

    Args:
        choice: The result of :func:`isolatent.choose`.
        ax: Axes of matplotlib; None for a new figure.
        **style: Passed to ``errorbar``.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from isolatent.diagnosis import Choice, Trial
        >>> first = Trial("box, normal", 600, 1.5, None, None, 2, None, "chosen", {})
        >>> second = Trial("sphere, vmf", 600, 1.2, 0.3, 0.1, 2, None, "worse", {})
        >>> found = Choice({}, (), 2, None, None, (first, second), "The box.")
        >>> ax = globals()["choice"](found, ax=Figure().subplots())
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['box, normal', 'sphere, vmf']

    .. image:: gallery/choice.png
    """
    data = choice_data(choice)
    known = np.flatnonzero(np.isfinite(data.behind))
    if not len(known):
        raise ValueError(f"choice must have candidates that were compared, but: {data.verdict}")
    ax = prepare_axes(ax)
    for y, k in enumerate(known):
        mark, colour = CANDIDATE_MARKS[data.statuses[k]]
        usual = {"fmt": mark, "color": colour, "capsize": 3}
        ax.errorbar(data.behind[k], y, xerr=2 * data.errors[k], **(usual | style))
    for status, (mark, colour) in CANDIDATE_MARKS.items():
        if any(data.statuses[k] == status for k in known):
            ax.plot([], [], mark, color=colour, label=status)
    ax.axvline(0.0, linestyle=":", color="0.5")
    ax.set_yticks(range(len(known)), [data.names[k] for k in known])
    ax.set_ylim(len(known) - 0.5, -0.5)
    ax.set_xlabel("held-out information behind the best [nats]")
    if left := len(data.names) - len(known):
        ax.set_title(f"{left} of {len(data.names)} candidates dropped before", fontsize="small")
    ax.legend()
    return ax


def score_against_pairs(
    records: Iterable[Mapping[str, Any]],
    *,
    score: str = "mcc",
    pairs: str = "pairs",
    method: str = "method",
    ax: Any = None,
    **style: Any,
) -> Axes:
    """Draw the score of each method against the number of pairs.

    Lines join means over runs, and shades reach from the lowest to the highest. The legend says how
    many runs gave no score.

    Args:
        records: A mapping for each run, with its number of pairs, its method and its score.
        score: Key of the score, which may be missing where a run failed.
        pairs: Key of the number of pairs.
        method: Key of the method's name.
        ax: Axes of matplotlib; None for a new figure.
        **style: Passed to ``plot``, such as ``marker``.

    Example:
        >>> from matplotlib.figure import Figure
        >>> runs = [
        ...     {"method": name, "pairs": n, "mcc": 1 - loss / n**0.5}
        ...     for name, loss in (("ours", 2), ("FastICA", 4))
        ...     for n in (100, 1000, 10_000)
        ... ]
        >>> ax = score_against_pairs(runs, ax=Figure().subplots())
        >>> ax.get_ylabel(), [line.get_label() for line in ax.lines]
        ('MCC', ['ours', 'FastICA'])

    .. image:: gallery/score_against_pairs.png
    """
    data = score_against_pairs_data(records, score=score, pairs=pairs, method=method)
    ax = prepare_axes(ax)
    for line in data.lines:
        label = line.method + (f" ({line.n_failed} without a score)" if line.n_failed else "")
        (drawn,) = ax.plot(line.pairs, line.mean, **({"marker": "o"} | style), label=label)
        if (line.counts > 1).any():
            ax.fill_between(
                line.pairs, line.lowest, line.highest, color=drawn.get_color(), alpha=0.2,
                linewidth=0,
            )  # fmt: skip
    ax.set_xscale("log")
    ax.set_xlabel("pairs")
    ax.set_ylabel(score_name(data.score))
    ax.legend()
    return ax
