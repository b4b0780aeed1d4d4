"""Sampled factor pairs follow their definitions, evaluated here cell by cell.

Chi-square tests have fixed seeds; over seeds, each rejects a correct sampler with probability 1e-3.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from isolatent.datasets import (
    FactorArray,
    LaplaceTransitions,
    RecordedTransitions,
    Sprites,
    Transitions,
    UniformFactorChange,
    synthetic_transitions,
)


def grid(sizes, categorical=None):
    return FactorArray(np.zeros((math.prod(sizes), 1)), sizes, categorical=categorical)


def fits(transitions, world, conditional, draws=200_000):
    """Test sampled pairs of cells against a uniform marginal and this conditional."""
    cells = [*np.ndindex(*world.sizes)]
    expected = np.array([[conditional(i, j) for j in cells] for i in cells])
    assert np.allclose(expected.sum(axis=1), 1)
    y, y_pos = transitions.sample_factors(world, draws, torch.Generator().manual_seed(0))
    pairs = world.index_of(y) * len(world) + world.index_of(y_pos)
    counts = np.bincount(pairs, minlength=len(world) ** 2)
    means = expected.ravel() * draws / len(world)
    assert not counts[means == 0].any()
    common = means > 10  # as the test requires; rarer pairs are pooled
    observed = np.append(counts[common], counts[~common].sum())
    means = np.append(means[common], means[~common].sum())
    kept = means > 0
    return stats.chisquare(observed[kept], means[kept]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("sizes", "k"),
    [((3, 1, 4, 2), None), ((3, 1, 4, 2), 1), ((3, 4, 2), 3), ((2, 2), None), ((5,), 1)],
)
def test_uniform_changes_follow_their_definition(sizes, k):
    varying = [f for f, n in enumerate(sizes) if n > 1]
    counts = range(1, len(varying)) if k is None else [k]

    def conditional(i, j):
        changed = tuple(f for f in range(len(sizes)) if i[f] != j[f])
        total = 0.0
        for count in counts:
            sets = [*itertools.combinations(varying, count)]
            if changed in sets:
                total += 1 / len(counts) / len(sets) / math.prod(sizes[f] - 1 for f in changed)
        return total

    assert fits(UniformFactorChange(k), grid(sizes), conditional)


@pytest.mark.parametrize("rate", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(
    ("sizes", "categorical"),
    [((2, 3, 4), (True, False, False)), ((5,), (False,)), ((3, 1, 2), (False, False, False))],
)
def test_laplace_transitions_follow_their_definition(sizes, categorical, rate):
    ordered = [f for f, n in enumerate(sizes) if n > 1 and not categorical[f]]

    def weight(f, i, j):
        return math.exp(-abs(i - j) * rate / math.log(sizes[f]))

    def conditional(i, j):
        changed = [f for f in range(len(sizes)) if i[f] != j[f]]
        if not changed or not set(changed) <= set(ordered):
            return 0.0
        free = math.prod(
            weight(f, i[f], j[f]) / sum(weight(f, i[f], v) for v in range(sizes[f]))
            for f in ordered
        )
        still = math.prod(1 / sum(weight(f, i[f], v) for v in range(sizes[f])) for f in ordered)
        if len(changed) > 1:
            return free
        (f,) = changed
        others = sum(weight(f, i[f], v) for v in range(sizes[f]) if v != i[f])
        return free + still / len(ordered) * weight(f, i[f], j[f]) / others

    assert fits(LaplaceTransitions(rate), grid(sizes, categorical), conditional)


@pytest.mark.parametrize("k", [None, 1, 2, 5])
def test_exactly_k_factors_change(k):
    change = UniformFactorChange(k)
    y, y_pos = change.sample_factors(Sprites(), 40_000, torch.Generator().manual_seed(0))
    counts = np.bincount((y != y_pos).sum(1), minlength=6)
    if k is None:
        assert counts[0] == counts[5] == 0
        assert stats.chisquare(counts[1:5]).pvalue > 1e-3
    else:
        assert counts[k] == 40_000


@pytest.mark.parametrize("rate", [1e-3, 1.0, 50.0, 1e4])
def test_laplace_pairs_always_change_but_categories_never(rate):
    transitions = LaplaceTransitions(rate)
    y, y_pos = transitions.sample_factors(Sprites(), 20_000, torch.Generator().manual_seed(0))
    changed = y != y_pos
    assert changed.any(1).all()
    assert not changed[:, 0].any()
    if rate >= 50:  # only forced changes, to adjacent values
        assert (changed.sum(1) == 1).all()
        assert (y - y_pos).abs().max() == 1
        assert stats.chisquare(changed[:, 1:].sum(0).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("transitions", [UniformFactorChange(), LaplaceTransitions()], ids=repr)
def test_the_generator_determines_the_pairs(transitions):
    assert isinstance(transitions, Transitions)
    a, b = (
        transitions.sample_factors(Sprites(), 100, torch.Generator().manual_seed(3)) for _ in "ab"
    )
    assert torch.equal(a[0], b[0])
    assert torch.equal(a[1], b[1])
    assert a[0].dtype == a[1].dtype == torch.int64


def test_wrong_arguments(generator):
    with pytest.raises(ValueError, match="k must be an integer >= 1, got 0"):
        UniformFactorChange(0)
    with pytest.raises(ValueError, match="rate must be a finite number > 0"):
        LaplaceTransitions(0.0)
    with pytest.raises(ValueError, match="at least 2 factors with more than one value"):
        UniformFactorChange().sample_factors(grid((5, 1)), 3, generator)
    with pytest.raises(ValueError, match="at least 3 factors"):
        UniformFactorChange(3).check(grid((5, 2)))
    with pytest.raises(ValueError, match="must have an ordered factor"):
        LaplaceTransitions().check(grid((5, 1), (True, False)))
    with pytest.raises(TypeError, match="world must be a FactorWorld"):
        LaplaceTransitions().sample_factors("sprites", 3, generator)
    with pytest.raises(ValueError, match="batch_size must be an integer >= 1"):
        LaplaceTransitions().sample_factors(Sprites(), 0, generator)


TABLE = np.random.default_rng(0).random((50, 6))


def test_recorded_pairs_on_the_grid_are_binned_rows_of_the_table():
    moves = RecordedTransitions(TABLE)
    assert isinstance(moves, Transitions)
    y, y_pos = moves.sample_factors(Sprites(), 5000, torch.Generator().manual_seed(0))
    assert torch.equal(y[:, [0, 2]], y_pos[:, [0, 2]])  # shape and orientation
    drawn = torch.cat([y[:, [3, 4, 1]], y_pos[:, [3, 4, 1]]], dim=1).numpy()
    edges = [np.linspace(0, 1, size + 1)[1:-1] for size in (32, 32, 6) * 2]
    bins = np.stack([np.digitize(*both) for both in zip(TABLE.T, edges, strict=True)], axis=1)
    rows, counts = np.unique(drawn, axis=0, return_counts=True)
    assert {*map(tuple, rows)} == {*map(tuple, bins)}
    assert stats.chisquare(counts).pvalue > 1e-3
    shapes = np.bincount(y[:, 0], minlength=3)
    assert stats.chisquare(shapes).pvalue > 1e-3


def test_continuous_recorded_pairs_are_rows_of_the_table():
    moves = RecordedTransitions(TABLE)
    v, v_pos = moves.sample_values(Sprites(), 2000, torch.Generator().manual_seed(0))
    assert torch.equal(v[:, [0, 2]], v_pos[:, [0, 2]])
    assert set(v[:, 2].tolist()) <= set(Sprites().values[2])
    relative = [(part[:, [3, 4]], 2 * part[:, [1]] - 1) for part in (v, v_pos)]
    drawn = torch.cat([column for part in relative for column in part], dim=1)
    distance = torch.cdist(drawn, torch.from_numpy(TABLE)).min(dim=1)
    assert distance.values.max() < 1e-6
    assert len(distance.indices.unique()) == len(TABLE)


def test_rows_without_a_change_on_the_grid_are_kept(generator):
    still = [0.51, 0.51, 0.51, 0.511, 0.51, 0.51]
    moves = RecordedTransitions([still, [0, 0, 0, 1, 1, 1]])
    y, y_pos = moves.sample_factors(Sprites(), 500, generator)
    moved = (y != y_pos).any(1)
    assert stats.binomtest(int(moved.sum()), 500).pvalue > 1e-3
    assert (y_pos[moved][:, [3, 4, 1]] == torch.tensor([31, 31, 5])).all()  # 1 is in the last bin
    with pytest.raises(ValueError, match="must hold a transition that changes an index"):
        RecordedTransitions([still]).sample_factors(Sprites(), 5, generator)
    v, v_pos = RecordedTransitions([still]).sample_values(Sprites(), 5, generator)
    assert (v != v_pos).any(1).all()


def test_synthetic_transitions_are_smooth_sparse_and_labelled():
    moves = synthetic_transitions(48_000, seed=1)
    assert len(moves) == 48_000
    assert "synthetic stand-in" in repr(moves)
    before, after = moves.table[:, :3], moves.table[:, 3:]
    paths = before.reshape(2000, 24, 3)
    assert np.array_equal(paths[:, 1:], after.reshape(2000, 24, 3)[:, :-1])  # one object's rows
    steps = (after - before).reshape(2000, 24, 3)
    following = (steps[:, 1:] * steps[:, :-1]).sum((0, 1)) / (steps[:, 1:] ** 2).sum((0, 1))
    assert (following > 0.5).all()  # steps of an object are correlated
    assert (stats.kurtosis(steps.reshape(-1, 3)) > 3).all()  # a Laplace distribution has 3
    assert np.array_equal(
        synthetic_transitions(100, seed=1).table, synthetic_transitions(100, 1).table
    )
    assert not np.array_equal(moves.table[:100], synthetic_transitions(100, seed=2).table)


def test_wrong_tables(generator):
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
