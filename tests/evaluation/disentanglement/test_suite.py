"""All metrics on a world: laws, repeatability, and the result as data."""

import json
import math
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats

from grid_world import Counting, GridOfFactors
from isolatent.checks import IsolatentWarning
from isolatent.evaluation import (
    Interval,
    evaluate_disentanglement,
    factor_vae_score,
    mig,
)
from isolatent.theory import Beliefs, derive_guarantee

FEW = {"n_train": 400, "n_test": 200, "batch_size": 16, "n_resamples": 40}


def test_a_permuted_rescaled_copy_scores_1_and_no_point_is_encoded_twice():
    model = Counting()
    result = evaluate_disentanglement(model, GridOfFactors(3, 4, 5), **FEW)
    assert model.seen == result.n_encoded <= 60
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
    """Noise that is a fixed function of the point has some information about the factors.

    Samples of the same points give its amount; with 4 deviations each of the three checks would
    fail once in 15 000 seeds.
    """
    rng = np.random.default_rng(0)
    noise, world = rng.normal(size=(60, 2)), GridOfFactors(3, 4, 5)
    points = world.factors_at(torch.arange(60)).numpy()
    table = torch.from_numpy(noise)
    found = evaluate_disentanglement(
        lambda x: table[world.index_of(x.long())],
        world,
        **FEW | {"n_train": 2000, "n_test": 2000},
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


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    def model(x):
        return x + 0.3 * torch.sin(17 * x.sum(1, keepdim=True))

    runs = [
        evaluate_disentanglement(model, GridOfFactors(4, 5), random_state=seed, **FEW)
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_array_and_world_forms_agree_on_the_whole_grid():
    world = GridOfFactors(4, 5)
    y = world.factors_at(torch.arange(20))
    codes = y.double() @ torch.tensor([[1.0, 0.3], [-0.2, 1.0]], dtype=torch.float64)
    few = {"n_train": 2000, "n_test": 2000, "random_state": 0}
    result = evaluate_disentanglement(
        lambda x: x.double() @ torch.tensor([[1.0, 0.3], [-0.2, 1.0]], dtype=torch.float64),
        world,
        **FEW | {"n_train": 2000, "n_test": 2000},
    )
    stored = factor_vae_score(y.repeat(40, 1), codes.repeat(40, 1), batch_size=16, **few)
    assert result.factor_vae.value == pytest.approx(stored, abs=0.05)
    assert result.mig.value == pytest.approx(mig(y, codes), abs=0.05)


def test_the_result_is_plain_data_and_a_table():
    world = GridOfFactors(3, 4, categorical=(True, False))
    result = evaluate_disentanglement(lambda x: x, world, **FEW)
    assert json.loads(json.dumps(result.to_dict()))["mig"]["value"] == result.mig.value
    text = str(result)
    settings = (
        "booster 'presorted', solver 'exact', 400 training points, 200 test points, "
        "12 encoded, random_state 0"
    )
    assert "FactorVAE             1.000 [1.000, 1.000]" in text
    assert settings in text
    assert "mcc ranks the values of factor 0, which have no order" in text
    assert all(isinstance(score, Interval) for score in result.scores.values())
    assert len(result.scores) == 10


def test_intervals_hold_their_value_where_it_is_not_at_the_edge():
    def model(x):
        return x @ torch.tensor([[1.0, 0.5], [-0.4, 1.0]])

    result = evaluate_disentanglement(model, GridOfFactors(6, 7), **FEW | {"n_resamples": 200})
    for name, score in result.scores.items():
        assert score.low <= score.high, name
        if name not in ("disentanglement", "completeness"):  # whose resamples are all less even
            assert score.low <= score.value <= score.high, name


def test_a_models_guarantee_is_taken_into_account():
    model = Counting()
    model.guarantee_ = derive_guarantee(Beliefs("box", conditional="normal"))
    with pytest.warns(IsolatentWarning, match="mig changes with rotation"):
        result = evaluate_disentanglement(model, GridOfFactors(3, 4), **FEW)
    assert len(result.warnings) == 7  # all but explicitness
    proven = derive_guarantee(Beliefs("box", conditional="laplace"))
    with pytest.warns(IsolatentWarning, match="sap changes with rescaling"):
        result = evaluate_disentanglement(model, GridOfFactors(3, 4), guarantee=proven, **FEW)
    assert len(result.warnings) == 2


@pytest.mark.parametrize(
    ("model", "world", "options", "error", "message"),
    [
        (
            3,
            GridOfFactors(3, 4),
            {},
            TypeError,
            "model must have a method transform or be call",
        ),
        (
            Counting,
            GridOfFactors(3, 4),
            {},
            TypeError,
            "model must be an instance.*got <class .*Counting",
        ),
        (
            len,
            GridOfFactors,
            {},
            TypeError,
            "world must be an instance.*got <class .*GridOfFactors",
        ),
        (len, GridOfFactors(3, 1), {}, ValueError, "at least 2 values, got 'factor 1' with one"),
        (len, GridOfFactors(3, 4), {"booster": "x"}, ValueError, "booster must be one of"),
        (len, GridOfFactors(3, 4), {"solver": "x"}, ValueError, "solver must be one of"),
        (
            len,
            GridOfFactors(3, 4),
            {"n_train": 1},
            ValueError,
            "n_train must be an integer >= 2, got 1",
        ),
        (len, GridOfFactors(3, 4), {"random_state": -1}, ValueError, "random_state must be an int"),
        (len, GridOfFactors(3, 4), {"confidence_level": 1.0}, ValueError, "confidence_level must"),
        (
            lambda x: x[1:],
            GridOfFactors(3, 4),
            FEW,
            ValueError,
            "model must return one code per point",
        ),
        (
            lambda x: x[:1],
            GridOfFactors(3, 4),
            FEW,
            ValueError,
            "model must return one code per point",
        ),
        (
            lambda x: (x, x),
            GridOfFactors(3, 4),
            FEW,
            TypeError,
            "model must return codes .*, got a tuple",
        ),
        (lambda x: x, object(), FEW, TypeError, "world must have a grid of factors.*got object"),
        (lambda x: x / 0, GridOfFactors(3, 4), FEW, ValueError, "codes must be finite"),
    ],
)
def test_bad_arguments_are_rejected(model, world, options, error, message):
    with pytest.raises(error, match=message):
        evaluate_disentanglement(model, world, **options)


def test_dead_codes_and_fewer_codes_than_factors_are_defined():
    dead = evaluate_disentanglement(torch.zeros_like, GridOfFactors(3, 4), **FEW)
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
    one = evaluate_disentanglement(lambda x: x[:, :1], GridOfFactors(3, 4, 2), **FEW)
    assert one.completeness.value == 1.0
    assert one.mcc.value == pytest.approx(1 / 3, abs=1e-9)


def test_the_reference_booster_and_solver_are_recorded_and_agree():
    def model(x):
        return x @ torch.tensor([[1.0, 0.5], [-0.4, 1.0]])

    fast = evaluate_disentanglement(model, GridOfFactors(3, 4), **FEW)
    options = {"booster": "sklearn", "solver": "sklearn"}
    result = evaluate_disentanglement(model, GridOfFactors(3, 4), **FEW, **options)
    assert (fast.booster, fast.solver) == ("presorted", "exact")
    assert (result.booster, result.solver) == ("sklearn", "sklearn")
    assert result.sap.value == pytest.approx(fast.sap.value, abs=3 / 200)
    assert result.disentanglement.value == pytest.approx(fast.disentanglement.value, abs=0.05)
