"""A recipe checks its settings and converts to plain data."""

import pytest

from isolatent.training import Recipe


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
