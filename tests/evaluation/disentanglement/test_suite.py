"""The whole evaluation on a world: every point encoded once, laws, repeatability."""

import json
import math
import time
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats

from isolatent.checks import IsolatentWarning
from isolatent.evaluation import (
    EncodedGrid,
    Interval,
    evaluate_disentanglement,
    factor_vae_score,
    mig,
)
from isolatent.theory import derive_guarantee

FEW = {"train": 400, "held_out": 200, "batch": 16, "resamples": 40, "booster": "presorted"}


class Grid:
    """Factors that are seen as they are."""

    def __init__(self, *sizes, categorical=None):
        self.sizes = sizes
        self.names = tuple(f"factor {f}" for f in range(len(sizes)))
        self.categorical = categorical or (False,) * len(sizes)
        self.stride = torch.tensor([math.prod(sizes[f + 1 :]) for f in range(len(sizes))])

    def __len__(self):
        return math.prod(self.sizes)

    def sample_factors(self, count, generator):
        columns = [torch.randint(n, (count,), generator=generator) for n in self.sizes]
        return torch.stack(columns, 1)

    def index_of(self, factors):
        return factors @ self.stride

    def factors_at(self, index):
        return torch.stack(torch.unravel_index(index, self.sizes), 1)

    def observe(self, factors):
        return factors.float()


class Counting:
    """An estimator that counts what it has encoded."""

    def __init__(self):
        self.seen = 0

    def transform(self, x):
        self.seen += len(x)
        return -2.0 * np.asarray(x)[:, ::-1]


def test_a_permuted_rescaled_copy_scores_1_and_no_point_is_encoded_twice():
    model = Counting()
    result = evaluate_disentanglement(model, Grid(3, 4, 5), **FEW)
    assert model.seen == result.encoded <= 60
    for name in ("factor_vae", "beta_vae", "disentanglement", "completeness", "informativeness"):
        assert getattr(result, name).value == pytest.approx(1.0, abs=1e-9), name
    assert result.mcc.value > 0.99  # as ranks of a sample
    assert result.mig.value > 0.9
    assert result.modularity.value > 0.99
    assert result.warnings == ()


def binned_gap(y, codes):
    """MIG from tables of counts."""
    gaps = []
    for column in y.T:
        known = []
        for code in codes.T:
            table = np.histogram2d(code, column, (20, np.arange(column.max() + 2)))[0] / len(y)
            outer = table.sum(1, keepdims=True) * table.sum(0)
            known.append((table[table > 0] * np.log(table[table > 0] / outer[table > 0])).sum())
        p = np.bincount(column) / len(y)
        gaps.append((max(known) - min(known)) / -(p * np.log(p)).sum())
    return np.mean(gaps)


def matched_ranks(y, codes):
    """The mean |Spearman correlation| of the best of all assignments of two codes."""
    table = np.abs(stats.spearmanr(y, codes).statistic[:3, 3:])
    return max(table[a, 0] + table[b, 1] for a, b in permutations(range(3), 2)) / 3


def test_noise_scores_what_samples_of_it_do():
    """Noise that is the same whenever a point is met knows a little of the factors.

    How much, samples of the same points tell; with 4 deviations each of the three checks would
    fail once in 15 000 seeds.
    """
    rng = np.random.default_rng(0)
    noise, world = rng.normal(size=(60, 2)), Grid(3, 4, 5)
    points = world.factors_at(torch.arange(60)).numpy()
    table = torch.from_numpy(noise)
    found = evaluate_disentanglement(
        lambda x: table[world.index_of(x.long())],
        world,
        **FEW | {"train": 2000, "held_out": 2000},
    )
    samples = [rng.integers(60, size=2000) for _ in range(200)]
    for score, oracle in ((found.mig, binned_gap), (found.mcc, matched_ranks)):
        values = [oracle(points[rows], noise[rows]) for rows in samples]
        assert score.value == pytest.approx(np.mean(values), abs=4 * np.std(values))
    # FactorVAE: how often each code varies least among 16 points that share a factor
    least, draws = np.zeros((2, 3)), 3000
    for factor in range(3):
        for value in rng.integers(world.sizes[factor], size=draws):
            members = rng.choice(np.flatnonzero(points[:, factor] == value), size=16)
            ratios = noise[members].var(axis=0, ddof=1) / noise.var(axis=0, ddof=1)
            least[ratios.argmin(), factor] += 1 / (3 * draws)
    best = least.max(axis=1).sum()
    # A vote that 2000 examples have learnt wrongly costs no more than they are uncertain of.
    deviation = math.sqrt(best * (1 - best) * (2 / 2000 + 1 / (3 * draws)))
    assert found.factor_vae.value == pytest.approx(best, abs=4 * deviation)


@pytest.mark.parametrize("marked", [0, 2**27])
def test_points_are_encoded_only_where_they_are_asked_for(marked, monkeypatch):
    monkeypatch.setattr("isolatent.evaluation.disentanglement.grid.MARKED", marked)
    model = Counting()
    grid = EncodedGrid(model, Grid(1000, 1000), 0)
    index = np.array([[5, 999_999], [5, 7]])
    codes = grid.codes_at(index)
    assert model.seen == grid.encoded == 3
    np.testing.assert_allclose(codes[0, 1], [-1998.0, -1998.0])
    np.testing.assert_allclose(codes[1, 1], [-14.0, 0.0])
    grid.codes_at(np.array([7, 8]))
    assert model.seen == grid.encoded == 4


def test_grid_draws_obey_their_laws():
    world = Grid(3, 4, 50)
    grid = EncodedGrid(lambda x: x, world, 0)
    first, second = map(grid.factors_at, grid.pairs(1, 4000))
    assert (first[:, 1] == second[:, 1]).all()
    assert np.mean(first[:, 2] == second[:, 2]) == pytest.approx(1 / 50, abs=0.01)
    members = grid.factors_at(grid.groups(2, 30, 8).ravel()).reshape(30, 8, 3)
    assert (members[:, :, 2] == members[:, :1, 2]).all()
    assert len(np.unique(members[:, :, 2])) > 10


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    def model(x):
        return x + 0.3 * torch.sin(17 * x.sum(1, keepdim=True))

    runs = [evaluate_disentanglement(model, Grid(4, 5), seed, **FEW) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_array_and_world_forms_agree_on_the_whole_grid():
    world = Grid(4, 5)
    y = world.factors_at(torch.arange(20))
    codes = y.double() @ torch.tensor([[1.0, 0.3], [-0.2, 1.0]], dtype=torch.float64)
    few = {"train": 2000, "held_out": 2000, "seed": 0}
    result = evaluate_disentanglement(
        lambda x: x.double() @ torch.tensor([[1.0, 0.3], [-0.2, 1.0]], dtype=torch.float64),
        world,
        **FEW | {"train": 2000, "held_out": 2000},
    )
    stored = factor_vae_score(y.repeat(40, 1), codes.repeat(40, 1), batch=16, **few)
    assert result.factor_vae.value == pytest.approx(stored, abs=0.05)
    assert result.mig.value == pytest.approx(mig(y, codes), abs=0.05)


def test_the_result_is_plain_data_and_a_table():
    world = Grid(3, 4, categorical=(True, False))
    result = evaluate_disentanglement(lambda x: x, world, **FEW)
    assert json.loads(json.dumps(result.to_dict()))["mig"]["value"] == result.mig.value
    text = str(result)
    assert "FactorVAE             1.000 [1.000, 1.000]" in text
    assert "booster 'presorted', 400 points fitted, 200 held out, 12 encoded, seed 0" in text
    assert "mcc ranks the values of factor 0, whose order means nothing" in text
    assert all(isinstance(score, Interval) for score in result.scores.values())
    assert len(result.scores) == 10


def test_intervals_hold_their_value_where_it_is_not_at_the_edge():
    def model(x):
        return x @ torch.tensor([[1.0, 0.5], [-0.4, 1.0]])

    result = evaluate_disentanglement(model, Grid(6, 7), **FEW | {"resamples": 200})
    for name, score in result.scores.items():
        assert score.low <= score.high, name
        if name not in ("disentanglement", "completeness"):  # whose resamples are all less even
            assert score.low <= score.value <= score.high, name


def test_a_models_guarantee_is_taken_into_account():
    model = Counting()
    model.guarantee_ = derive_guarantee("box", "uniform", "normal")
    with pytest.warns(IsolatentWarning, match="mig changes with rotation"):
        result = evaluate_disentanglement(model, Grid(3, 4), **FEW)
    assert len(result.warnings) == 7  # all but explicitness
    proven = derive_guarantee("box", "uniform", "laplace")
    with pytest.warns(IsolatentWarning, match="sap changes with rescaling"):
        result = evaluate_disentanglement(model, Grid(3, 4), guarantee=proven, **FEW)
    assert len(result.warnings) == 2


@pytest.mark.parametrize(
    ("model", "world", "options", "error", "message"),
    [
        (
            3,
            Grid(3, 4),
            {},
            TypeError,
            "model must have a method transform or be call",
        ),
        (Counting, Grid(3, 4), {}, TypeError, "model must be an instance.*got <class .*Counting"),
        (len, Grid, {}, TypeError, "world must be an instance.*got <class .*Grid"),
        (len, Grid(3, 1), {}, ValueError, "at least 2 values, got 'factor 1' with one"),
        (len, Grid(3, 4), {"booster": "x"}, ValueError, "booster must be one of"),
        (len, Grid(3, 4), {"train": 1}, ValueError, "train must be an integer >= 2, got 1"),
        (len, Grid(3, 4), {"seed": -1}, ValueError, "seed must be an integer >= 0, got -1"),
        (len, Grid(3, 4), {"level": 1.0}, ValueError, "level must be a finite number > 0 and < 1"),
        (lambda x: x[1:], Grid(3, 4), FEW, ValueError, "model must return one code per point"),
        (lambda x: x[:1], Grid(3, 4), FEW, ValueError, "model must return one code per point"),
        (
            lambda x: (x, x),
            Grid(3, 4),
            FEW,
            TypeError,
            "model must return codes .*, got a tuple",
        ),
        (lambda x: x, object(), FEW, TypeError, "world must have a grid of factors.*got object"),
        (lambda x: x / 0, Grid(3, 4), FEW, ValueError, "codes must be finite"),
    ],
)
def test_refused_arguments(model, world, options, error, message):
    with pytest.raises(error, match=message):
        evaluate_disentanglement(model, world, **options)


def test_a_module_gets_observations_in_its_own_precision():
    module = torch.nn.Linear(2, 2).double()
    index = np.arange(12)
    grid = EncodedGrid(module, Grid(3, 4), 0)
    expected = module(Grid(3, 4).observe(Grid(3, 4).factors_at(torch.from_numpy(index))).double())
    np.testing.assert_allclose(grid.codes_at(index), expected.detach())


def test_a_world_of_others_is_asked_by_one_thread_at_a_time(monkeypatch):
    inside, most = [], []

    class Slow(Grid):
        def observe(self, factors):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()
            return super().observe(factors)

    monkeypatch.setattr("isolatent.evaluation.disentanglement.grid.BATCH", 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    EncodedGrid(torch.nn.Linear(2, 2), Slow(3, 4), 0).encode(np.arange(12))
    assert most == [1] * 6


def test_dead_codes_and_fewer_codes_than_factors_are_defined():
    dead = evaluate_disentanglement(torch.zeros_like, Grid(3, 4), **FEW)
    for name in (
        "mig",
        "modularity",
        "sap",
        "mcc",
        "factor_vae",
        "disentanglement",
        "completeness",
    ):
        assert getattr(dead, name).value == 0.0, name
    assert dead.explicitness.value == 0.5
    one = evaluate_disentanglement(lambda x: x[:, :1], Grid(3, 4, 2), **FEW)
    assert one.completeness.value == 1.0
    assert one.mcc.value == pytest.approx(1 / 3, abs=1e-9)
