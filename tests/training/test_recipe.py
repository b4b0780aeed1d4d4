"""The recipe's schedule and its checks."""

import pytest

from isolatent.training import Recipe


def test_the_rate_rises_then_falls_to_nothing():
    recipe = Recipe(steps=100, learning_rate=1.0, warmup=0.1)
    rates = [recipe.rate_at(step) for step in range(100)]
    assert rates.index(max(rates)) in (9, 10)
    assert rates[0] == pytest.approx(0.1)
    assert rates[-1] < 1e-3
    assert Recipe(steps=10, warmup=0.0, learning_rate=1.0).rate_at(0) == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"batch": 1},
        {"learning_rate": 0.0},
        {"warmup": 1.0},
        {"averaging": 1.0},
        {"weight_decay": -1.0},
    ],
)
def test_wrong_arguments(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        Recipe(**wrong)
