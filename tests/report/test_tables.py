"""Scores are named as a person writes them."""

import pytest

from isolatent.report.tables import score_name


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("mcc", "MCC"),
        ("block_mcc", "MCC (blocks)"),
        ("linear_r2_block12", "R² (linear), block 12"),
        ("my_blocks", "my_blocks"),
    ],
)
def test_names_of_scores(name, written):
    assert score_name(name) == written
