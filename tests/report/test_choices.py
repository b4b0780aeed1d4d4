"""The page, the card and the plot of a choice of beliefs."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from isolatent import plot
from isolatent.diagnosis import Choice, Diagnosis, Trial
from isolatent.figure_data import choice_data
from isolatent.report import page_of_choice, render_page

HOSTILE = "<b>sphere</b>, vmf"
TRIALS = (
    Trial("box, normal", 1800, 1.5, None, None, 2, "permutations", "chosen", {"space": "box"}),
    Trial(HOSTILE, 1800, 1.49, 0.01, 0.02, 1, None, "tied", {}),
    Trial("box, laplace", 1800, 1.2, 0.3, 0.05, 2, None, "worse", {}),
    Trial("euclidean, normal", 200, 0.9, None, None, 2, None, "worse", {}),
    Trial("euclidean, laplace", 200, None, None, None, 2, None, "diverged", {}),
)


def choice_of(holds=None, best=True):
    diagnosis = None if holds is None else Diagnosis(holds, (), None, (), "So it is.")
    chosen = TRIALS[0].parameters if best else None
    return Choice(chosen, (HOSTILE,), 2, holds, diagnosis, TRIALS, "The <box> is best.")


def test_only_a_diagnosis_makes_a_choice_green():
    states = {
        name: page_of_choice(choice).headline.state
        for name, choice in {
            "holds": choice_of(True),
            "does not": choice_of(False),
            "not asked": choice_of(),
            "nothing there": Choice(None, (), None, False, None, TRIALS, "Nothing to find."),
            "too few": Choice(None, (), None, None, None, (), "Cannot tell: 9 pairs."),
        }.items()
    }
    expected = {"holds": "good", "does not": "bad", "not asked": "open", "nothing there": "bad"}
    assert states == expected | {"too few": "open"}


def test_every_candidate_is_on_the_page_and_the_card():
    choice = choice_of(True)
    for text in (
        render_page(page_of_choice(choice, command="isolatent choose x")),
        choice._repr_html_(),
    ):
        for trial in TRIALS:
            assert trial.name.replace("<", "&lt;").replace(">", "&gt;") in text
        assert "<b>sphere" not in text
        assert "The &lt;box&gt; is best." in text
        assert "0.010 ± 0.020" in text
    with pytest.raises(TypeError, match="choice must be a Choice, got float"):
        page_of_choice(0.5)


def test_the_plot_has_a_point_for_each_candidate_that_was_compared():
    data = choice_data(choice_of())
    np.testing.assert_array_equal(data.behind[:3], [0, 0.01, 0.3])
    assert np.isnan(data.behind[3:]).all()
    ax = plot.choice(choice_of(), ax=Figure().subplots())
    assert [label.get_text() for label in ax.get_yticklabels()] == [t.name for t in TRIALS[:3]]
    drawn = [bars.lines[0].get_xdata()[0] for bars in ax.containers]
    assert drawn == [0, 0.01, 0.3]
    assert ax.get_title() == "2 of 5 candidates dropped before"
    with pytest.raises(ValueError, match="Cannot tell: 9 pairs"):
        plot.choice(Choice(None, (), None, None, None, (), "Cannot tell: 9 pairs."))
