"""Figures of training, diagnoses and scores draw what was measured."""

import numpy as np
import pytest

import isolatent as iso
from isolatent import plot
from isolatent.diagnosis import Check, Diagnosis, ExpectedScore

CHECKS = (
    Check("information", "supported", 1.5, "", 0.0, error=0.1, reference=0.2),
    Check("optimum", "supported", 0.97, "", harm=0.015),
    Check("pairing", "contradicted", 0.2, "", 0.0, 0.1, error=0.05),
    Check("noise", "cannot tell", None, "further factors hide it"),
)
FOUND = Diagnosis(False, ("pairing",), None, CHECKS, "Some pairs look unrelated.")
SCORE = ExpectedScore(0.98, 0.96, 0.99, "mcc")
SOUND = Diagnosis(True, (), SCORE, CHECKS[:2], "All holds.")


def names(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.parametrize("kind", ["recording", "pairs"])
def test_curves_are_those_of_the_history(request, axes, kind):
    model = request.getfixturevalue(kind)[0]
    ax = plot.training(model, ax=axes)
    assert ax is axes
    batches, *rest = ax.lines
    field = "held_out_information"  # losses on different numbers of candidates are not comparable
    assert ax.get_ylabel() == "information, log B − loss [nats]"
    assert batches.get_ydata() == pytest.approx([step.information for step in model.history_])
    measured = {s.number: v for s in model.history_ if (v := getattr(s, field)) is not None}
    assert bool(rest) == bool(measured)
    if measured:
        held_out, dot = rest[:2]
        assert dict(zip(held_out.get_xdata(), held_out.get_ydata(), strict=True)) == measured
        assert dot.get_ydata() == max(measured.values())


def test_overfitting_and_another_objective_are_marked(axes):
    steps = [
        {"number": k, "loss": 1 / k, "information": 1.0 if k < 4 else None}
        | {"held_out": abs(k - 20) / 9}
        for k in range(1, 301)
    ]
    ax = plot.training({"curve": steps}, ax=axes)
    assert names(ax) == [
        *("training", "held out"), "saturated objective from step 4", "overfits from step 20",
    ]  # fmt: skip
    assert len(ax.lines) == 5  # single losses, their mean, held out, the lowest, the objective
    assert ax.get_ylabel() == "loss [nats]"
    with pytest.raises(TypeError, match="call fit first"):
        plot.training(iso.ContrastiveICA(2), ax=axes)


def test_harm_of_all_checks(axes):
    ax = plot.diagnosis(FOUND, ax=axes)
    assert labels(ax.yaxis) == ["information", "optimum", "pairing", "noise"]
    assert [bar.get_width() for bar in ax.patches] == [0.0, 0.015, 0.1, 0.0]
    assert names(ax) == ["supported", "contradicted", "cannot tell", "harmful from 0.03"]
    assert ax.get_title() == "the claim does not hold"
    marks = {line.get_marker() for line in ax.lines[:4]}
    assert len(marks) == 3  # told apart without colours
    assert plot.diagnosis(SOUND, ax=axes).get_title().endswith("expect mcc 0.980 [0.960, 0.990]")


@pytest.mark.parametrize(
    ("found", "check", "values", "words"),
    [
        (FOUND, "pairing", [0.0, 0.2], ["as declared", "relaxed"]),
        (FOUND, "information", [1.5, 0.2], ["pairs", "shuffled pairs"]),
        (FOUND, "optimum", [0.97], ["two runs"]),
        (SOUND, "expected score", [0.98], ["rehearsal"]),
    ],
)
def test_what_a_check_observed_and_compared_it_with(axes, found, check, values, words):
    ax = plot.diagnosis(found, check=check, ax=axes)
    drawn = [container.lines[0].get_xdata()[0] for container in ax.containers]
    assert drawn == values
    assert labels(ax.yaxis) == words
    assert check in ax.get_title()


def test_errors_and_limits_of_checks(axes):
    ax = plot.diagnosis(FOUND, check="pairing", ax=axes)
    bars = ax.containers[1].lines[2][0].get_segments()[0]
    assert bars[:, 0] == pytest.approx([0.1, 0.3])  # two standard errors
    axes.clear()
    limit = plot.diagnosis(FOUND, check="optimum", ax=axes).lines[-1]
    assert limit.get_xdata()[0] == pytest.approx(0.95**2)
    axes.clear()
    ax = plot.diagnosis(SOUND, check="expected score", ax=axes)
    assert ax.containers[0].lines[2][0].get_segments()[0][:, 0] == pytest.approx([0.96, 0.99])


@pytest.mark.parametrize(
    ("found", "check", "error", "message"),
    [
        (FOUND, "space", ValueError, "check must be one of 'information', 'optimum', 'pairing'"),
        (FOUND, "expected score", ValueError, "those of this diagnosis"),
        (FOUND, "noise", ValueError, "of 'noise' nothing was"),
        (None, None, TypeError, "diagnosis must be a Diagnosis"),
    ],
)
def test_what_was_not_checked_is_refused(axes, found, check, error, message):
    with pytest.raises(error, match=message):
        plot.diagnosis(found, check=check, ax=axes)


def test_scores_by_the_number_of_pairs(axes):
    runs = [
        {"method": name, "pairs": size, "r2": 1 - (seed + 1) / size, "seed": seed}
        for name in ("ours", "FastICA")
        for size in (1000, 100)
        for seed in (0, 1)
    ]
    runs[-1]["r2"] = None
    ax = plot.score_against_pairs(runs, score="r2", ax=axes, marker="s")
    ours, other = ax.lines
    assert ours.get_xdata().tolist() == [100, 1000]
    assert ours.get_ydata() == pytest.approx([0.985, 0.9985])
    assert other.get_ydata()[0] == pytest.approx(0.99)
    assert ours.get_marker() == "s"
    shade = ax.collections[0].get_paths()[0].vertices
    assert np.isclose(shade[:, 1].min(), 0.98)
    assert names(ax) == ["ours", "FastICA (1 without a score)"]
    assert ax.get_xscale() == "log"
    with pytest.raises(ValueError, match="at least one score 'mcc'"):
        plot.score_against_pairs(runs, ax=axes)
