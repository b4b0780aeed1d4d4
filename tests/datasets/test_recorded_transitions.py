"""Recorded transitions are shown as they were recorded; made-up ones say that they are."""

import numpy as np
import pytest
import torch
from scipy import stats

from isolatent.datasets import (
    FactorArray,
    RecordedTransitions,
    Sprites,
    Transitions,
    read_transitions,
    synthetic_transitions,
)

WORLD = Sprites()
HEADER = "x_t,y_t,area_t,x_t+1,y_t+1,area_t+1"
TABLE = np.random.default_rng(0).random((50, 6))


def test_pairs_on_the_grid_are_the_bins_of_rows_of_the_table():
    moves = RecordedTransitions(TABLE)
    assert isinstance(moves, Transitions)
    y, y_pos = moves.sample_factors(WORLD, 5000, torch.Generator().manual_seed(0))
    assert torch.equal(y[:, [0, 2]], y_pos[:, [0, 2]])  # shape and orientation
    drawn = torch.cat([y[:, [3, 4, 1]], y_pos[:, [3, 4, 1]]], dim=1).numpy()
    edges = [np.linspace(0, 1, size + 1)[1:-1] for size in (32, 32, 6) * 2]
    bins = np.stack([np.digitize(*both) for both in zip(TABLE.T, edges, strict=True)], axis=1)
    rows, counts = np.unique(drawn, axis=0, return_counts=True)
    assert {*map(tuple, rows)} == {*map(tuple, bins)}
    assert stats.chisquare(counts).pvalue > 1e-3
    shapes = np.bincount(y[:, 0], minlength=3)
    assert stats.chisquare(shapes).pvalue > 1e-3


def test_continuous_pairs_are_rows_of_the_table():
    moves = RecordedTransitions(TABLE)
    v, v_pos = moves.sample_values(WORLD, 2000, torch.Generator().manual_seed(0))
    assert torch.equal(v[:, [0, 2]], v_pos[:, [0, 2]])
    assert set(v[:, 2].tolist()) <= set(WORLD.values[2])
    relative = [(part[:, [3, 4]], 2 * part[:, [1]] - 1) for part in (v, v_pos)]
    drawn = torch.cat([column for part in relative for column in part], dim=1)
    distance = torch.cdist(drawn, torch.from_numpy(TABLE)).min(dim=1)
    assert distance.values.max() < 1e-6
    assert len(distance.indices.unique()) == len(TABLE)


def test_rows_without_a_change_on_the_grid_are_kept(generator):
    still = [0.51, 0.51, 0.51, 0.511, 0.51, 0.51]
    moves = RecordedTransitions([still, [0, 0, 0, 1, 1, 1]])
    y, y_pos = moves.sample_factors(WORLD, 500, generator)
    moved = (y != y_pos).any(1)
    assert stats.binomtest(int(moved.sum()), 500).pvalue > 1e-3
    assert (y_pos[moved][:, [3, 4, 1]] == torch.tensor([31, 31, 5])).all()  # 1 is in the last bin
    with pytest.raises(ValueError, match="must hold a transition that changes an index"):
        RecordedTransitions([still]).sample_factors(WORLD, 5, generator)
    v, v_pos = RecordedTransitions([still]).sample_values(WORLD, 5, generator)
    assert (v != v_pos).any(1).all()


def test_a_file_is_read_by_the_names_of_its_columns(tmp_path):
    path = tmp_path / "moves.csv"
    path.write_text(f',id,{HEADER}\n0,"a",0,2,4,8,4,16\n1,"b",2,3,9,2,3,4\n')
    moves = read_transitions(path)
    assert moves.table == pytest.approx(
        np.array([[0, 0, 0, 1, 1, 1], [0.25, 0.5, 0.5, 0.25, 0.5, 0]])
    )
    assert repr(moves) == "RecordedTransitions(2 transitions, moves.csv)"
    path.write_text(
        "scale_after,x_before,Y_before,scale_before,x_after,y_after\n1,0,0.5,0.25,1,1\n"
    )
    assert read_transitions(path, rescale=False).table.tolist() == [[0, 0.5, 0.25, 1, 1, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x_t,y_t\n1,2\n",
            r"must have one of the columns \['scale_t', .*; it has \['x_t', 'y_t'\]",
        ),
        (HEADER + "\n", "has no rows"),
        (HEADER + "\n1,2,a,1,2,3\n", "column 'area_t' must hold numbers"),
        (HEADER + "\n1,2,3,1,2,\n2,2,3,1,2,3\n", "column 'area_t.1' must be finite .* row 0"),
        (HEADER + "\n1,2,-3,1,2,3\n", "column 'area_t' must be finite and not negative, got -3"),
        (HEADER + "\n1,2,3,1,2,4\n", "x must vary to be rescaled, got only 1"),
        (HEADER + "\n1,2\n", "not a CSV file"),
        (HEADER + ",X_t\n1,2,3,1,2,4,5\n", r"must have each column once, got several \['x_t'\]"),
        (HEADER + ",caf\xe9\n1,2,3,1,2,4,5\n", r"moves.csv: not a CSV file \(.*decode byte"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    path = tmp_path / "moves.csv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        read_transitions(path)


def test_made_up_transitions_are_smooth_sparse_and_labelled():
    moves = synthetic_transitions(48_000, seed=1)
    assert len(moves) == 48_000
    assert "synthetic stand-in" in repr(moves)
    before, after = moves.table[:, :3], moves.table[:, 3:]
    paths = before.reshape(2000, 24, 3)
    assert np.array_equal(paths[:, 1:], after.reshape(2000, 24, 3)[:, :-1])  # one object's rows
    steps = (after - before).reshape(2000, 24, 3)
    following = (steps[:, 1:] * steps[:, :-1]).sum((0, 1)) / (steps[:, 1:] ** 2).sum((0, 1))
    assert (following > 0.5).all()  # it keeps its course
    assert (stats.kurtosis(steps.reshape(-1, 3)) > 3).all()  # a Laplace distribution has 3
    assert np.array_equal(
        synthetic_transitions(100, seed=1).table, synthetic_transitions(100, 1).table
    )
    assert not np.array_equal(moves.table[:100], synthetic_transitions(100, seed=2).table)


def test_errors(generator):
    for table in ([[0, 0, 0]], np.zeros((0, 6))):
        with pytest.raises(ValueError, match=r"table must have shape \(T, 6\)"):
            RecordedTransitions(table)
    for table in ("abc", [[0, 0, 0], [0]], [["a"] * 6]):
        with pytest.raises(TypeError, match=r"table must be an array of numbers \(T, 6\), got"):
            RecordedTransitions(table)
    for value in (1.5, np.nan):
        with pytest.raises(ValueError, match=r"table must lie in \[0, 1\], got .* row 0, column 2"):
            RecordedTransitions([[0, 0, value, 0, 0, 0]])
    other = FactorArray(np.zeros((4, 1)), (2, 2), names=("x", "y"))
    with pytest.raises(ValueError, match=r"must have the factors .* without \['scale'\]"):
        RecordedTransitions(TABLE).sample_factors(other, 3, generator)
    with pytest.raises(TypeError, match="world must be a FactorWorld"):
        RecordedTransitions(TABLE).sample_values(None, 3, generator)
    with pytest.raises(ValueError, match="count must be an integer >= 1"):
        synthetic_transitions(0)
