"""Small fits of a recording, of pairs and of images, for figures of what a fit found."""

import numpy as np
import pytest
import torch

import isolatent as iso

pytest.importorskip("matplotlib")

RECIPE = iso.Recipe(max_steps=12, batch_size=32, warmup=2)


@pytest.fixture
def axes():
    from matplotlib.figure import Figure

    return Figure().subplots()


@pytest.fixture
def axes_3d():
    from matplotlib.figure import Figure

    return Figure().add_subplot(projection="3d")


@pytest.fixture(scope="session")
def recording():
    """A model of two sessions, one of which has missing rows, with the data."""
    rng = np.random.default_rng(0)
    t = np.arange(300)
    z = np.stack([np.sin(t / 20), np.cos(t / 13)], axis=1)
    x = z @ rng.normal(size=(2, 4)) + 0.01 * rng.normal(size=(300, 4))
    x[40:45] = np.nan
    groups = np.repeat(["first", "second"], 150)
    model = iso.ContrastiveICA(2, space="box", n_init=1, recipe=RECIPE, random_state=0)
    with pytest.warns(iso.checks.IsolatentWarning):
        model.fit(x, groups=groups)
    return model, x, groups, z


@pytest.fixture(scope="session")
def pairs():
    """A model of pairs, a share of which is unrelated, with the data."""
    world = iso.World(iso.Box(3), iso.Uniform(), iso.Normal(0.1), iso.Linear(), seed=0)
    x, x_pos = (part.numpy() for part in world.sample_pairs(200))
    model = iso.ContrastiveICA(
        3, space="box", relax=("pairing",), n_init=1, recipe=RECIPE, random_state=0
    )
    return model.fit(x, x_pos), x, x_pos


@pytest.fixture(scope="session")
def images():
    """A model of images with the images."""
    world = iso.datasets.Sprites()
    source = iso.pairs.FactorPairs(world, iso.datasets.LaplaceTransitions())
    model = iso.ContrastiveICA(
        2, space="euclidean", encoder="pooled", recipe=iso.Recipe(max_steps=3, batch_size=8),
        random_state=0,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    x = source.sample(60, generator)[0].numpy()
    return model.fit(source), x
