"""p-values: uniform where nothing is to be found, whatever was selected."""

import numpy as np
import pytest
from scipy import stats

from isolatent.diagnosis.alternatives import _compare
from isolatent.diagnosis.nested import _check
from isolatent.diagnosis.p_values import difference_of, of_best
from isolatent.diagnosis.trials import Candidate, TrialRun, lead_of
from isolatent.training.relaxations import Gain

DRAWS = 400
RATE = (0.02, 0.08)  # of p < .05 in 400 draws, to four standard errors


def is_calibrated(p_values):
    rate = np.mean(np.array(p_values) < 0.05)
    return RATE[0] <= rate <= RATE[1] and stats.kstest(p_values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_best_of_several_has_a_uniform_p_value(count):
    best = np.random.default_rng(0).normal(size=(DRAWS, count)).max(1)
    assert is_calibrated([of_best(stats.norm.sf(z), count) for z in best])


def test_a_correction_keeps_small_p_values_apart():
    assert of_best(1e-30, 2) == pytest.approx(2e-30)
    assert of_best(1.0, 3) == 1.0
    assert of_best(0.0, 3) == 0.0


class Runs:
    """Runs of alternatives that know as much as the declared model, up to noise."""

    def __init__(self, rng, batches=12):
        self.rng, self.batches, self.done = rng, batches, {}

    def __call__(self, candidate, longer=False):
        if candidate not in self.done:
            values = self.rng.normal(size=self.batches) / 100
            self.done[candidate] = TrialRun(values.tolist(), np.zeros((0, 2)))
        return self.done[candidate]

    def lead(self, candidate, over, longer=False):
        # Alternatives are compared with a constant, so that their leads are independent.
        return lead_of(self(candidate).values, [0.0] * self.batches)


def test_the_leading_alternative_has_a_uniform_p_value():
    """Without a correction twice as many are small, and more by few batches."""
    rng = np.random.default_rng(1)
    base = Candidate("box", "laplace", 3)
    others = [Candidate("box", "gennorm", 3, p) for p in (2.0, 3.0)]
    found = [_compare("conditional", base, others, Runs(rng), "mcc").p_value for _ in range(DRAWS)]
    assert is_calibrated(found)


def test_a_gain_that_was_selected_counts_for_less():
    gain = Gain(0.02, 0.01)
    alone, best = (_check("marginal", gain, None, tried=n).p_value for n in (1, 4))
    assert best == pytest.approx(1 - (1 - alone) ** 4)


def test_two_runs_and_one_rehearsal_have_a_uniform_p_value():
    """Runs differ by more than stretches of their pairs show."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(DRAWS):
        runs = [rng.normal(scale=2.0) + rng.normal(size=8) for _ in range(3)]
        found.append(difference_of(runs[:2], runs[2:]).p_value)
    assert np.mean(np.array(found) < 0.05) < RATE[1]
    assert np.mean(np.array(found) < 0.5) < 0.6


def test_a_difference_beyond_all_spread_has_a_small_p_value():
    rng = np.random.default_rng(3)
    runs = [shift + 0.001 * rng.normal(size=8) for shift in (1.0, 1.001, 0.0, 0.0, 0.0)]
    assert difference_of(runs[:2], runs[2:]).p_value < 1e-6
    assert 1e-6 < difference_of(runs[:2], runs[2:3]).p_value < 1e-2  # one rehearsal says less
    assert difference_of(runs[2:], runs[:2]).p_value > 0.99  # one-sided: larger in the fit
