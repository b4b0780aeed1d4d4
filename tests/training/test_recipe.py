"""A recipe checks its settings; its schedule raises, keeps and lowers the rate, and stops early."""

import math
from itertools import pairwise

import pytest

from isolatent.training.recipe import Recipe, Schedule


def test_a_recipe_equals_that_of_its_plain_data():
    recipe = Recipe(max_steps=7, chunk_size=3)
    assert Recipe(**recipe.to_dict()) == recipe


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_steps": 0},
        {"batch_size": 1},
        {"learning_rate": 0.0},
        {"scale_rate": 0.0},
        {"warmup": -1},
        {"cooldown": 1.0},
        {"averaging": 1.0},
        {"patience": 0},
        {"weight_decay": -1.0},
        {"saturation": 1.0},
        {"tolerance": -1.0},
        {"chunk_size": 0},
    ],
)
def test_wrong_arguments(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        Recipe(**wrong)


def test_the_rate_rises_stays_and_falls_to_zero():
    schedule = Schedule(
        Recipe(max_steps=100, learning_rate=1.0, warmup=10, cooldown=0.3, patience=50)
    )
    rates = [schedule.rate(step) for step in range(1, 101)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert rates[9:50] == [1.0] * 41
    assert rates[69] == pytest.approx((50 / 70) ** 0.5)
    assert all(later < earlier for earlier, later in pairwise(rates[69:]))
    assert 0 < rates[-1] < 0.01


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_short_runs_have_a_rate_for_each_step(steps):
    schedule = Schedule(Recipe(max_steps=steps))
    assert all(0 < schedule.rate(step) <= 2e-2 for step in range(1, steps + 1))


def run_schedule(losses, steps=10_000, every=100, **settings):
    """Return the schedule of a run with these held-out losses, and its last step."""
    schedule = Schedule(Recipe(max_steps=steps, cooldown=0.25, **settings))
    for number in range(every, steps + 1, every):
        schedule.measured(number, losses(number))
        if number >= schedule.total:
            return schedule, number
    raise AssertionError("the run did not end")


def test_a_plateau_starts_the_cool_down():
    schedule, end = run_schedule(lambda step: 5 * math.exp(-step / 300))
    assert schedule.cooling_from < 4000
    assert schedule.total == math.ceil(schedule.cooling_from / 0.75) <= end


def test_no_plateau_is_accepted_soon_after_the_warm_up():
    """Averaged weights lag behind, so their loss may rise while that of the others falls."""
    early = {10: 8.0, 20: 7.8, 30: 7.5, 40: 7.1, 50: 6.6, 60: 6.4}
    schedule, _ = run_schedule(
        lambda step: early.get(step, 6.4 - max(0, step - 120) / 1e2), steps=1000, every=10
    )
    assert schedule.cooling_from >= 500


def test_a_loss_that_still_falls_uses_all_steps():
    schedule, end = run_schedule(lambda step: 5 - math.log(step))
    assert (schedule.cooling_from, end) == (7500, 10_000)


def test_a_loss_that_rises_in_the_cool_down_ends_the_run():
    schedule, end = run_schedule(lambda step: abs(step - 2000) / 1000)
    assert 2000 < end < 3500
    assert schedule.best == 0.0


def test_an_outlier_before_the_cool_down_does_not_end_it():
    """While the rate is high, noise hides the improvement that comes at the end of a cool-down."""
    outlier = {7400: -6.0}
    schedule, end = run_schedule(
        lambda step: outlier.get(step, 5 - math.log(step)) - (step > 8000) * step / 1e3
    )
    assert (schedule.cooling_from, end) == (7500, 10_000)


def kept(losses, steps=10_000, every=100):
    """The last step whose weights were kept, in a run whose cool-down starts at 7500."""
    schedule = Schedule(Recipe(max_steps=steps, cooldown=0.25, tolerance=0.0))
    numbers = range(every, steps + 1, every)
    return max(number for number in numbers if schedule.measured(number, losses(number)))


def wobble(step):
    return 0.01 * math.sin(step)  # looks like noise at the steps that are measured


def test_before_the_cool_down_the_best_weights_are_kept():
    assert kept(lambda step: abs(step - 5000) / 1000 + wobble(step)) in range(4900, 5200, 100)


def test_in_the_cool_down_the_last_weights_are_kept_where_losses_differ_by_noise():
    assert kept(lambda step: max(0.0, 5 - step / 1000) + wobble(step)) == 10_000


def test_in_the_cool_down_weights_that_are_worse_are_not_kept():
    worse = kept(lambda step: max(0.0, 5 - step / 1000, (step - 8000) / 1000) + wobble(step))
    assert 7500 < worse <= 8100


def test_without_early_stopping_a_run_takes_all_steps_and_keeps_the_last_weights():
    schedule = Schedule(Recipe(max_steps=10_000, cooldown=0.25), early_stopping=False)
    kept = [n for n in range(100, 10_001, 100) if schedule.measured(n, abs(n - 2000) / 1000)]
    assert kept == [*range(100, 2001, 100), *range(7600, 10_001, 100)]
    assert schedule.total == 10_000
    schedule.restart()
    assert not schedule.early_stopping


def test_a_schedule_can_be_restored():
    schedule, _ = run_schedule(lambda step: 5 * math.exp(-step / 300))
    other = Schedule(schedule.recipe)
    other.restore(schedule.to_dict())
    assert other.to_dict() == schedule.to_dict()
    assert other.rate(schedule.total) == schedule.rate(schedule.total)


def test_a_restarted_schedule_is_a_new_one():
    schedule, _ = run_schedule(lambda step: 5 * math.exp(-step / 300))
    new = Schedule(schedule.recipe).to_dict()
    assert schedule.to_dict() != new
    schedule.restart()
    assert schedule.to_dict() == new
    assert schedule.best == math.inf
