"""Worlds: what they sample, and that they can be written down."""

import hashlib
import json
import subprocess
import sys

import pytest
import torch

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
def test_a_world_survives_being_written_down(make):
    world = make(seed=7)
    text = json.dumps(world.to_dict())
    read = World.from_dict(json.loads(text))
    assert read == world
    assert repr(read) == repr(world)
    for ours, theirs in zip(world.sample_pairs(50), read.sample_pairs(50), strict=True):
        assert torch.equal(ours, theirs)
    assert make(seed=8) != world


def test_the_stream_goes_on_and_a_generator_replaces_it():
    world = WORLDS["sphere"](seed=0)
    first, second = world.sample_pairs(10)[0], world.sample_pairs(10)[0]
    assert not torch.equal(first, second)
    ours, theirs = (world.sample_pairs(10, torch.Generator().manual_seed(4))[0] for _ in range(2))
    assert torch.equal(ours, theirs)


def test_positives_can_be_drawn_for_given_anchors():
    world = WORLDS["box"](seed=0)
    z = world.sample_anchors(100)
    assert (world.sample_positives(z) - z).abs().median() < 0.3


def test_one_seed_gives_the_same_bits_in_two_processes():
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


def test_repr_reads_like_its_code():
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
        (lambda: WORLDS["box"](seed=-1), ValueError, "seed must be an integer >= 0, got -1"),
        (lambda: WORLDS["box"](dtype=torch.float16), ValueError, "dtype must be torch.float32"),
        (lambda: WORLDS["box"]().sample_pairs(0), ValueError, "n must be an integer >= 1, got 0"),
        (
            lambda: WORLDS["box"]().observe(torch.full((2, 3), 1.5)),
            ValueError,
            "z must lie in Box.*but 2 of 2 rows do not, first row 0",
        ),
        (lambda: WORLDS["box"]().observe(torch.zeros(2, 4)), ValueError, r"shape \(N, 3\)"),
        (lambda: World.from_dict({"space": {}}), ValueError, "spec must be a dict with the keys"),
        (
            lambda: World.from_dict(WORLDS["box"]().to_dict() | {"space": {"kind": "Cube"}}),
            ValueError,
            "kind must be one of .*got 'Cube'",
        ),
        (
            lambda: World.from_dict(WORLDS["box"]().to_dict() | {"space": {"kind": "Box", "m": 1}}),
            TypeError,
            "Box: .*unexpected keyword argument 'm'",
        ),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
