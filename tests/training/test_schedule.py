"""The rate rises, stays, falls to nothing; a plateau brings the end forward."""

import math
from itertools import pairwise

import pytest

from isolatent.training.recipe import Recipe
from isolatent.training.schedule import Pace


def test_the_rate_rises_stays_and_falls_to_nothing():
    pace = Pace(Recipe(max_steps=100, learning_rate=1.0, warmup=10, cooldown=0.3, patience=50))
    rates = [pace.rate(step) for step in range(1, 101)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert rates[9:50] == [1.0] * 41
    assert rates[69] == pytest.approx((50 / 70) ** 0.5)
    assert all(later < earlier for earlier, later in pairwise(rates[69:]))
    assert 0 < rates[-1] < 0.01


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_short_runs_have_a_rate_for_each_step(steps):
    pace = Pace(Recipe(max_steps=steps))
    assert all(0 < pace.rate(step) <= 2e-2 for step in range(1, steps + 1))


def follow(losses, steps=10_000, every=100, **settings):
    pace = Pace(Recipe(max_steps=steps, cooldown=0.25, **settings))
    for number in range(every, steps + 1, every):
        pace.measured(number, losses(number))
        if number >= pace.total:
            return pace, number
    raise AssertionError("the run did not end")


def test_a_plateau_starts_the_cool_down():
    pace, end = follow(lambda step: 5 * math.exp(-step / 300))
    assert pace.cooling_from < 4000
    assert pace.total == math.ceil(pace.cooling_from / 0.75) <= end


def test_a_plateau_in_the_warm_up_is_not_believed():
    """Averaged weights lag behind, and their loss may even rise while that of the others falls."""
    early = {10: 8.0, 20: 7.8, 30: 7.5, 40: 7.1, 50: 6.6, 60: 6.4}
    pace, _ = follow(
        lambda step: early.get(step, 6.4 - max(0, step - 120) / 1e2), steps=1000, every=10
    )
    assert pace.cooling_from >= 500


def test_what_still_falls_goes_on():
    pace, end = follow(lambda step: 5 - math.log(step))
    assert (pace.cooling_from, end) == (7500, 10_000)


def test_a_loss_that_rises_in_the_cool_down_ends_the_run():
    pace, end = follow(lambda step: abs(step - 2000) / 1000)
    assert 2000 < end < 3500
    assert pace.best == 0.0


def test_a_lucky_best_before_the_cool_down_does_not_end_it():
    """While the rate is high, noise hides what the cool-down gives at its end."""
    lucky = {7400: -6.0}
    pace, end = follow(
        lambda step: lucky.get(step, 5 - math.log(step)) - (step > 8000) * step / 1e3
    )
    assert (pace.cooling_from, end) == (7500, 10_000)


def kept(losses, steps=10_000, every=100):
    """The last step whose weights were kept, in a run whose cool-down starts at 7500."""
    pace = Pace(Recipe(max_steps=steps, cooldown=0.25, tolerance=0.0))
    numbers = range(every, steps + 1, every)
    return max(number for number in numbers if pace.measured(number, losses(number)))


def wobble(step):
    return 0.01 * math.sin(step)  # as good as noise between measurements


def test_before_the_cool_down_the_best_weights_are_kept():
    assert kept(lambda step: abs(step - 5000) / 1000 + wobble(step)) in range(4900, 5200, 100)


def test_in_the_cool_down_the_last_weights_are_kept_where_losses_differ_by_chance():
    assert kept(lambda step: max(0.0, 5 - step / 1000) + wobble(step)) == 10_000


def test_in_the_cool_down_weights_that_are_worse_are_not_kept():
    worse = kept(lambda step: max(0.0, 5 - step / 1000, (step - 8000) / 1000) + wobble(step))
    assert 7500 < worse <= 8100


def test_a_state_can_be_restored():
    pace, _ = follow(lambda step: 5 * math.exp(-step / 300))
    other = Pace(pace.recipe)
    other.restore(pace.to_dict())
    assert other.to_dict() == pace.to_dict()
    assert other.rate(pace.total) == pace.rate(pace.total)
