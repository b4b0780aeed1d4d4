"""Worlds sample and observe reproducibly, and survive conversion to plain data."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from isolatent.worlds import (
    AnisotropicNormal,
    Box,
    CubeGrid,
    Euclidean,
    FlowMixing,
    GaussianCopula,
    GeneralizedNormal,
    HollowBall,
    Identity,
    Independent,
    InvertibleMLP,
    Laplace,
    Linear,
    Normal,
    Product,
    ShellNormal,
    Sphere,
    Uniform,
    VonMisesFisher,
    World,
)

MLP = InvertibleMLP(2, condition_draws=100)
WORLDS = {
    "sphere": lambda **k: World(Sphere(4), Uniform(), VonMisesFisher(10.0), MLP, **k),
    "concentrated": lambda **k: World(
        Sphere(4), VonMisesFisher(2.0), VonMisesFisher(10.0), MLP, **k
    ),
    "anisotropic": lambda **k: World(
        Sphere(3), Uniform(), AnisotropicNormal((5.0, 9.0, 25.0)), FlowMixing(), **k
    ),
    "shell": lambda **k: World(Sphere(3), Normal(1.0), ShellNormal(25.0), Identity(), **k),
    "box": lambda **k: World(Box(3), Uniform(), Laplace((0.1, 0.2, 0.3)), Linear(), **k),
    "copula": lambda **k: World(
        Box(4, -1.0, 1.0), GaussianCopula(2, 0.5), Normal(0.05), Linear(n_observed=7), **k
    ),
    "line": lambda **k: World(
        Euclidean(2), Laplace(1.0), Normal(1.0), Linear(matrix=[[1.0, 2.0], [0.0, 1.0]]), **k
    ),
    "shell of a ball": lambda **k: World(HollowBall(3), Uniform(), Laplace(0.1), MLP, **k),
    "grid": lambda **k: World(
        CubeGrid(2, 3, 0.1), Uniform(), GeneralizedNormal(3.0, 0.1), MLP, **k
    ),
    "product": lambda **k: World(
        Product(Sphere(3), Box(2)),
        Uniform(),
        Independent(VonMisesFisher(5.0), Normal(0.1)),
        MLP,
        **k,
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", WORLDS.values(), ids=WORLDS)
def test_every_world_samples_and_observes(make, dtype):
    world = make(seed=3, dtype=dtype)
    z, z_pos = world.sample_latents(300)
    x, x_pos = world.observe(z), world.observe(z_pos)
    assert x.dtype == x_pos.dtype == dtype
    assert x.shape == (300, world.n_observed)
    assert world.space.contains(z).all()
    assert world.space.contains(z_pos).all()
    torch.testing.assert_close(world.mixing.inverse(x), z, atol=1e-3, rtol=0)
    pairs = world.sample_pairs(300)
    assert pairs[0].shape == pairs[1].shape == x.shape


@pytest.mark.parametrize("make", WORLDS.values(), ids=WORLDS)
def test_a_world_survives_json(make):
    world = make(seed=7)
    text = json.dumps(world.to_dict())
    read = World.from_dict(json.loads(text))
    assert read == world
    assert repr(read) == repr(world)
    for ours, theirs in zip(world.sample_pairs(50), read.sample_pairs(50), strict=True):
        assert torch.equal(ours, theirs)
    assert make(seed=8) != world


def test_each_call_advances_the_generator_unless_one_is_passed():
    world = WORLDS["sphere"](seed=0)
    first, second = world.sample_pairs(10)[0], world.sample_pairs(10)[0]
    assert not torch.equal(first, second)
    ours, theirs = (world.sample_pairs(10, torch.Generator().manual_seed(4))[0] for _ in range(2))
    assert torch.equal(ours, theirs)


def test_positives_are_near_given_anchors():
    world = WORLDS["box"](seed=0)
    z = world.sample_anchors(100)
    assert (world.sample_positives(z) - z).abs().median() < 0.3


@pytest.mark.parametrize("space", [Box(2, -1.0, 3.0), CubeGrid(2, 2, 0.2)], ids=repr)
def test_marginals_are_centred_on_the_space(space):
    """The density of anchors on each axis is centred at space.center()."""
    world = World(space, Normal(0.4), Uniform(), Identity(), seed=2, dtype=torch.float64)
    z = world.sample_anchors(20_000)
    edges = np.linspace(space.intervals[0][0], space.intervals[-1][1], 20_001)
    middle = float(space.center()[0])
    inside = np.any([(edges >= low) & (edges <= high) for low, high in space.intervals], axis=0)
    density = np.where(inside, stats.norm(middle, 0.4).pdf(edges), 0)
    cdf = np.cumsum(density) / density.sum()
    for column in z.T:
        assert stats.kstest(column.numpy(), lambda x: np.interp(x, edges, cdf)).pvalue > 1e-5


def test_spherical_marginals_are_centred_on_the_pole():
    world = World(Sphere(3), VonMisesFisher(10.0), Uniform(), Identity(), dtype=torch.float64)
    expected = (1 / np.tanh(10) - 0.1) * world.space.center()
    assert (world.sample_anchors(20_000).mean(0) - expected).abs().max() < 0.01


def test_latents_are_accepted_in_any_container():
    world = World(Box(2), Uniform(), Normal(0.1), Identity())
    for z, dtype in (
        ([[0, 1]], torch.float32),
        (torch.tensor([[0, 1]]), torch.float32),
        (np.array([[0.0, 1.0]]), torch.float64),
        (np.array([[0.0, 1.0]], ">f4"), torch.float32),
    ):
        assert world.observe(z).tolist() == [[0, 1]]
        assert world.observe(z).dtype == dtype


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("make", WORLDS.values(), ids=WORLDS)
def test_worlds_run_on_any_device(make):
    world = make(seed=1, device="cuda")
    for generator in (None, torch.Generator().manual_seed(0), torch.Generator("cuda")):
        z, z_pos = world.sample_latents(50, generator)
        x = world.observe(z)
        assert z.device.type == z_pos.device.type == x.device.type == "cuda"
    on_cpu = make(seed=1).observe(z.cpu())
    torch.testing.assert_close(x.cpu(), on_cpu)


def test_samples_are_bit_identical_in_two_processes():
    code = (
        "import hashlib, torch; from isolatent.worlds import *;"
        "w = World(Sphere(10), Uniform(), AnisotropicNormal(tuple(range(5, 15))),"
        " InvertibleMLP(3, condition_draws=500), seed=11);"
        "b = b''.join(t.numpy().tobytes() for t in (*w.sample_latents(500), *w.sample_pairs(500)));"
        "print(hashlib.sha256(b).hexdigest())"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout.strip()) == len(hashlib.sha256().hexdigest())


def test_repr_evaluates_to_an_equal_world():
    world = World(Box(2), Uniform(), Normal(0.05), Identity(), seed=1)
    text = "World(Box(n=2, low=0.0, high=1.0), Uniform(), Normal(std=0.05), Identity(), seed=1)"
    assert repr(world) == text
    names = {"World": World, "Box": Box, "Uniform": Uniform, "Normal": Normal, "Identity": Identity}
    assert eval(text, names) == world


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: World(3, Uniform(), Uniform(), Identity()), TypeError, "space must be a Space"),
        (lambda: World(Box(2), Box(2), Uniform(), Identity()), TypeError, "marginal must be"),
        (lambda: World(Box(2), Uniform(), Uniform(), "mlp"), TypeError, "mixing must be a Mixing"),
        (
            lambda: World(Euclidean(2), Uniform(), Normal(1.0), Identity()),
            ValueError,
            "Uniform needs a bounded space, got Euclidean",
        ),
        (
            lambda: World(Box(2), Uniform(), VonMisesFisher(1.0), Identity()),
            TypeError,
            "VonMisesFisher needs a Sphere, got Box",
        ),
        (
            lambda: World(Sphere(3), Uniform(), AnisotropicNormal((1.0, 2.0)), Identity()),
            ValueError,
            "weights must have one value or one per dimension .3., got 2 values",
        ),
        (
            lambda: WORLDS["box"](seed=-1),
            ValueError,
            "seed must be an integer >= 0 and <= 9223372036854775807, got -1",
        ),
        (lambda: WORLDS["box"](seed=2**70), ValueError, "seed must be an integer >= 0 and <= 9"),
        (lambda: WORLDS["box"]().sample_pairs(3, 0), TypeError, "generator must be a torch.Gen"),
        (lambda: WORLDS["box"]().observe(None), TypeError, "z must be an array of real numbers"),
        (lambda: WORLDS["box"]().observe("abc"), TypeError, "z must be an array of real numbers"),
        (lambda: WORLDS["box"]().observe([[1j] * 3]), TypeError, "z must be an array of real"),
        (
            lambda: World(Sphere(3, 1e-6), Uniform(), Uniform(), Identity()).observe([[0.0] * 3]),
            ValueError,
            "z must lie in Sphere",
        ),
        (
            lambda: World(Box(2, 0, 1e-6), Uniform(), Uniform(), Identity()).observe([[5e-6] * 2]),
            ValueError,
            "z must lie in Box",
        ),
        (lambda: WORLDS["box"](dtype=torch.float16), ValueError, "dtype must be torch.float32"),
        (lambda: WORLDS["box"]().sample_pairs(0), ValueError, "n must be an integer >= 1, got 0"),
        (
            lambda: WORLDS["box"]().observe(torch.full((2, 3), 1.5)),
            ValueError,
            "z must lie in Box.*but 2 of 2 rows do not, first row 0",
        ),
        (lambda: WORLDS["box"]().observe(torch.zeros(2, 4)), ValueError, r"shape \(N, 3\)"),
        (lambda: World.from_dict({"space": {}}), ValueError, "spec must be a dict with the keys"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
