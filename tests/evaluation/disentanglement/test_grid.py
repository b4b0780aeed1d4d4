"""The encoded grid: each point once, by the model's own codes, or by a world's faster method."""

import time

import numpy as np
import pytest
import torch
from torch import nn

from grid_world import Counting, GridOfFactors
from isolatent import ContrastiveICA, Recipe
from isolatent.baselines import BetaVAE, SupervisedEncoder
from isolatent.evaluation import EncodedGrid
from isolatent.inference import has_known_layers

FEW = Recipe(max_steps=30, batch_size=32)
VECTORS = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)).cumsum(0)
IMAGES = torch.rand(64, 1, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("limit", [0, 2**27])
def test_only_points_that_are_used_are_encoded(limit, monkeypatch):
    monkeypatch.setattr("isolatent.evaluation.disentanglement.grid.MASK_LIMIT", limit)
    model = Counting()
    grid = EncodedGrid(model, GridOfFactors(1000, 1000), 0)
    index = np.array([[5, 999_999], [5, 7]])
    codes = grid.codes_at(index)
    assert model.seen == grid.n_encoded == 3
    np.testing.assert_allclose(codes[0, 1], [-1998.0, -1998.0])
    np.testing.assert_allclose(codes[1, 1], [-14.0, 0.0])
    grid.codes_at(np.array([7, 8]))
    assert model.seen == grid.n_encoded == 4


def test_drawn_points_share_the_factor_and_nothing_else():
    world = GridOfFactors(3, 4, 50)
    grid = EncodedGrid(lambda x: x, world, 0)
    first, second = map(grid.factors_at, grid.sample_pairs(1, 40, 100).reshape(2, -1))
    assert (first[:, 1] == second[:, 1]).all()
    assert np.mean(first[:, 2] == second[:, 2]) == pytest.approx(1 / 50, abs=0.01)
    members = grid.factors_at(grid.sample_batches(2, 30, 8).ravel()).reshape(30, 8, 3)
    assert (members[:, :, 2] == members[:, :1, 2]).all()
    assert len(np.unique(members[:, :, 2])) > 10


def test_a_module_gets_observations_in_its_own_precision():
    module = torch.nn.Linear(2, 2).double()
    index = np.arange(12)
    grid = EncodedGrid(module, GridOfFactors(3, 4), 0)
    expected = module(
        GridOfFactors(3, 4)
        .observe(GridOfFactors(3, 4).factors_at(torch.from_numpy(index)))
        .double()
    )
    np.testing.assert_allclose(grid.codes_at(index), expected.detach())


@pytest.mark.parametrize("own", ["user_defined", "isolatent.datasets.sprites"])
def test_a_world_is_observed_by_one_thread_at_a_time(own, monkeypatch):
    inside, most = [], []

    class Slow(GridOfFactors):
        __module__ = own

        def observe(self, factors):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()
            return super().observe(factors)

    monkeypatch.setattr("isolatent.evaluation.disentanglement.grid.BATCH_SIZE", 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    EncodedGrid(nn.Linear(2, 2), Slow(3, 4), 0).encode(np.arange(12))
    assert most == [1] * 6


class Shown:
    """A world with one stored observation at each of its points."""

    names, categorical = ("place",), (False,)

    def __init__(self, observations):
        self.observations, self.sizes = observations, (len(observations),)

    def __len__(self):
        return len(self.observations)

    def factors_at(self, index):
        return index[:, None]

    def observe(self, factors):
        return self.observations[factors[:, 0]]


def fitted():
    for space, conditional in [("sphere", "vmf"), ("sphere", "anisotropic"), ("box", "laplace")]:
        model = ContrastiveICA(2, space=space, conditional=conditional, recipe=FEW, random_state=0)
        yield model.fit(VECTORS), VECTORS
    images = ContrastiveICA(2, space="sphere", encoder="conv", recipe=FEW, random_state=0)
    yield images.fit(IMAGES), IMAGES
    yield (
        ContrastiveICA(2, space="sphere", recipe=FEW, random_state=0).fit(VECTORS.double()),
        VECTORS.double(),
    )
    yield BetaVAE(2, max_steps=2, random_state=0).fit(VECTORS), VECTORS
    yield BetaVAE(2, max_steps=2, random_state=0).fit(IMAGES), IMAGES
    yield SupervisedEncoder(2, max_steps=100, batch_size=32).fit(VECTORS, VECTORS[:, :2]), VECTORS


@pytest.mark.filterwarnings("ignore::isolatent.checks.IsolatentWarning")
def test_codes_on_the_grid_are_those_of_transform(monkeypatch):
    for model, x in fitted():
        assert has_known_layers(model.code_module()), model  # so that batches are shared by threads
        expected = model.transform(x)
        with monkeypatch.context() as patch:
            patch.setattr(type(model), "transform", None)
            codes = EncodedGrid(model, Shown(x), 0).codes_at(np.arange(len(x)))
        np.testing.assert_allclose(codes, expected, rtol=1e-4, atol=1e-5, err_msg=str(model))


class WithEncodeGrid(GridOfFactors):
    """A world that encodes its whole grid at once, or returns None."""

    calls, applies = 0, True

    def encode_grid(self, module):
        self.calls += 1
        factors = self.factors_at(torch.arange(len(self)))
        return module(self.observe(factors)) if self.applies else None


@pytest.mark.parametrize("applies", [True, False])
def test_a_world_encodes_its_grid_if_at_least_half_of_it_is_used(applies):
    world, module = WithEncodeGrid(3, 4), nn.Linear(2, 2)
    world.applies = applies
    grid, plain = EncodedGrid(module, world, 0), EncodedGrid(module, GridOfFactors(3, 4), 0)
    grid.encode(np.arange(5))
    assert (world.calls, grid.n_encoded) == (0, 5)
    grid.encode(np.arange(11))
    assert (world.calls, grid.n_encoded) == (1, 11)
    # Chunks of other lengths may round differently.
    codes, expected = (g.codes_at(np.arange(11)) for g in (grid, plain))
    np.testing.assert_allclose(codes, expected, rtol=1e-5)


def test_encode_grid_is_not_called_with_functions_or_user_defined_modules():
    class Own(nn.Linear):
        pass

    for encoder in (lambda x: x, Own(2, 2), Counting()):
        world = WithEncodeGrid(3, 4)
        EncodedGrid(encoder, world, 0).encode(np.arange(12))
        assert world.calls == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda codes: codes[1:], r"encode_grid must return one code per point \(12\), got 11"),
        (lambda codes: codes / 0, "codes of encode_grid must be finite"),
    ],
)
def test_codes_of_encode_grid_are_checked(change, message):
    class Wrong(WithEncodeGrid):
        def encode_grid(self, module):
            return change(super().encode_grid(module))

    with pytest.raises(ValueError, match=message):
        EncodedGrid(nn.Linear(2, 2), Wrong(3, 4), 0).encode(np.arange(12))
