"""The guarantee says before a run which of the papers' rows are theorems, and which scores fail."""

import pytest

from isolatent.experiments import find_experiment, list_experiments
from isolatent.experiments.predictions import expected_guarantee


def cards(name):
    return {cell.name: expected_guarantee(cell) for cell in find_experiment(name).cells}


def test_the_rows_whose_mcc_fails_are_those_where_a_rotation_is_open():
    table = find_experiment("zimmermann2021/table2")
    for cell in table.cells:
        if cell.name != "box_normal_free_cubic_saturated":  # found against the odds
            card = expected_guarantee(cell)
            assert ("MCC) is not to be expected" in card.consequence) == ("mcc" in cell.limits)
            assert not (cell.limits and card.metric == "mcc")


@pytest.mark.parametrize("name", ["zimmermann2021/table1", "zimmermann2021/table2"])
def test_rows_that_match_the_theory_have_a_guarantee(name):
    for cell in find_experiment(name).cells:
        if cell.matches:
            assert expected_guarantee(cell).equivalence, cell.name


def test_rows_by_hand():
    table1, table2 = cards("zimmermann2021/table1"), cards("zimmermann2021/table2")
    assert table1["sphere_vmf1"].equivalence == "orthogonal map"
    assert table2["box_laplace"].equivalence == "signed permutation and scaling"
    assert table2["box_normal"].equivalence == "affine map"  # and more if the codes fill their box
    assert "projected laplace" in table1["sphere_laplace"].gap
    assert "uniform marginal" in table1["plane_normal1_normal1"].gap
    assert "box head instead of a free one" in table2["box_laplace_free"].gap
    assert "must match the laplace" in table2["box_laplace_free_normal"].gap
    assert cards("rusak2025/lambda")["linspace"].equivalence == "block-orthogonal map"


def test_learned_weights_tell_blocks_apart():
    cell = find_experiment("rusak2025/lambda").cells[1]
    learned = {"learned": [5.1, 5.0, 5.2, 4.9, 5.0, 25.0, 24.1, 25.3, 24.8, 25.2]}
    assert expected_guarantee(cell, learned).blocks == ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))


@pytest.mark.parametrize("name", list_experiments())
def test_every_shipped_cell_has_a_card(name):
    for cell in find_experiment(name).cells:
        card = expected_guarantee(cell)
        assert card.equivalence or card.gap


def test_images_by_hand():
    """Nothing is proven of images; what is told besides depends on pairs and distances."""
    sprites, natural = cards("zimmermann2020/dsprites"), cards("zimmermann2020/natural_sprites")
    assert all(card.equivalence is None for card in (*sprites.values(), *natural.values()))
    assert "on a grid" in sprites["lap_infonce_l1"].gap
    assert "Theorem 6" in sprites["lap_infonce_l1"].consequence
    assert "10 codes for 5 factors" in sprites["lap_infonce_l1"].consequence
    assert "p = 1 instead of 2" in sprites["lap_infonce_l2"].consequence
    assert "tell no distances" in sprites["uni_infonce_l1"].consequence
    assert "weight 1/2 alone" in sprites["lap_au0.9"].consequence
    for name, card in natural.items():
        contrastive = "vae" not in name
        assert bool(card.consequence) == contrastive
        assert not contrastive or "recording" in card.consequence
    for name in sprites:
        told = "each factor by itself is not to be expected" in sprites[name].consequence
        assert told == name.endswith("l2")
        assert not sprites[name].consequence or "vae" not in name
