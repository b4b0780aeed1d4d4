"""Draw the gallery of isolatent.plot into docs/gallery, from fits made here, in a few minutes.

python docs/draw_gallery.py [NAME ...]
"""

from __future__ import annotations

import argparse
import io
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
import torch
from matplotlib import pyplot
from PIL import Image

import isolatent as iso
from isolatent import plot
from isolatent.pairs import FactorPairs

DIRECTORY = Path(__file__).parent / "gallery"
SIZE, DPI = (4.2, 3.0), 90
COLOURS = 255  # of the palette, which keeps a picture at a few kB
SETTINGS: Any = {"font.size": 8, "figure.constrained_layout.use": True, "lines.linewidth": 1.2}
T = 4000
SIZES, SEEDS = (300, 1000, 3000, 10_000), (0, 1)

Array = np.ndarray[Any, Any]


@cache
def walk() -> tuple[Array, Array, Array, Array]:
    """Return a recording in two sessions of a walk in a box: rows, factors, sessions and times."""
    rng = np.random.default_rng(0)
    z = np.empty((T, 2))
    z[0] = 0.5
    for t in range(1, T):
        z[t] = z[t - 1] + 0.06 * rng.normal(size=2)
        z[t] = np.abs(z[t])  # reflected at the walls
        z[t] = 1 - np.abs(1 - z[t])
    hidden = np.tanh((z - 0.5) @ rng.normal(size=(2, 16)) * 1.5 + 0.3 * rng.normal(size=16))
    x = hidden @ rng.normal(size=(16, 8)) / 2 + 0.02 * rng.normal(size=(T, 8))
    x[700:760] = np.nan  # the tracker was lost
    return x, z, np.repeat(["Monday", "Tuesday"], T // 2), np.arange(T) / 10


@cache
def fit() -> iso.ContrastiveICA:
    """Return a model of the walk."""
    x, _, sessions, times = walk()
    model = iso.ContrastiveICA(2, space="box", random_state=0)
    return model.fit(x, groups=sessions, times=times)


def labelled() -> dict[str, Any]:
    """Return what all figures of the walk are called with."""
    _, _, sessions, times = walk()
    return {"groups": sessions, "times": times}


def draw_codes() -> None:
    """Draw the two codes of the walk, coloured by where it is."""
    x, z, *_ = walk()
    colour: Any = {"colour": z[:, 0], "colour_name": "true factor 0"}
    plot.codes(fit(), x, max_points=1000, **colour, **labelled())


def draw_codes_3d() -> None:
    """Draw three codes on a sphere."""
    rng = np.random.default_rng(0)
    world = iso.World(
        iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(20.0), iso.InvertibleMLP(2), seed=0
    )
    x, x_pos = world.sample_pairs(3000)
    model = iso.ContrastiveICA(3, space="sphere", n_init=1, random_state=0).fit(x, x_pos)
    rows = rng.permutation(len(x))[:1000]
    plot.codes(model, x[rows], components=(0, 1, 2), colour=x[rows, 0], colour_name="column 0")


def draw_over_time() -> None:
    """Draw both codes in both sessions."""
    x, *_ = walk()
    plot.over_time(fit(), x, max_points=1200, linewidth=0.7, **labelled())


def draw_against_factors() -> None:
    """Draw how codes go with true factors."""
    x, z, *_ = walk()
    names = ["east", "north"]
    plot.against_factors(fit(), x, factors=z, factor_names=names, **labelled())


def draw_training() -> None:
    """Overfit 400 pairs with a network that is too large for them."""
    world = iso.World(iso.Box(4), iso.Uniform(), iso.Normal(0.1), iso.InvertibleMLP(3), seed=0)
    recipe = iso.Recipe(max_steps=1500, batch_size=64, patience=1500)
    model = iso.ContrastiveICA(4, space="box", n_init=1, recipe=recipe, random_state=0)
    plot.training(model.fit(*world.sample_pairs(400)))


def draw_traversal() -> None:
    """Draw what moving along a code does to columns."""
    x, *_ = walk()
    plot.traversal(fit(), x, component=0, **labelled())


def draw_traversal_images() -> None:
    """Draw what moving along the codes of a variational autoencoder does to images."""
    pairs = FactorPairs(iso.datasets.Sprites(), iso.datasets.LaplaceTransitions())
    model = iso.baselines.SlowVAE(3, max_steps=600, random_state=0).fit(pairs)
    x = pairs.sample(400, torch.Generator().manual_seed(0))[0].numpy()
    plot.traversal(model, x, vmin=0, vmax=1)


@cache
def diagnosed() -> Any:
    """Return the diagnosis of a model of pairs, of which three in ten are unrelated."""
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.InvertibleMLP(2), seed=0)
    x, x_pos = (part.numpy() for part in world.sample_pairs(4000))
    rng = np.random.default_rng(0)
    x_pos[:1200] = x_pos[rng.permutation(1200)]
    order = rng.permutation(4000)
    model = iso.ContrastiveICA(2, space="box", n_init=1, random_state=0)
    model.fit(x[order], x_pos[order])
    return iso.diagnose(model, x[order], x_pos[order])


def draw_diagnosis() -> None:
    """Draw all checks of a diagnosis with a broken assumption."""
    plot.diagnosis(diagnosed())


def draw_diagnosis_pairing() -> None:
    """Draw the broken assumption."""
    plot.diagnosis(diagnosed(), check="pairing")


def draw_choice() -> None:
    """Compare candidate beliefs about pairs in a box."""
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Laplace(0.08), iso.InvertibleMLP(2), seed=0)
    options: Any = {"n_components": 2, "steps": 150, "diagnose": False, "relax": False}
    plot.choice(iso.choose(*world.sample_pairs(6000), **options))


def draw_score_against_pairs() -> None:
    """Draw scores of two methods in two worlds."""

    def score(model: Any, z: Any, x: Any) -> float:
        return iso.mcc(z, model.transform(x))

    records = []
    for seed in SEEDS:
        mixing = iso.InvertibleMLP(5)
        world = iso.World(iso.Box(3), iso.Uniform(), iso.Normal(0.1), mixing, seed=seed)
        z = world.sample_latents(2000)[0]
        test = world.observe(z).numpy()
        for pairs in SIZES:
            x, x_pos = (part.numpy() for part in world.sample_pairs(pairs))
            about = {"pairs": pairs, "seed": seed}
            ours = iso.ContrastiveICA(3, space="box", n_init=1, random_state=seed).fit(x, x_pos)
            linear = iso.baselines.LinearICA(3, random_state=seed).fit(x)
            records.append(about | {"method": "ContrastiveICA", "mcc": score(ours, z, test)})
            records.append(about | {"method": "LinearICA", "mcc": score(linear, z, test)})
    plot.score_against_pairs(records)


FIGURES: dict[str, Callable[[], None]] = {
    name.removeprefix("draw_"): draw
    for name, draw in list(globals().items())
    if name.startswith("draw_")
}


def save(name: str) -> None:
    """Write the current figure as a small PNG with a palette."""
    file = io.BytesIO()
    pyplot.gcf().savefig(file, dpi=DPI, format="png")
    picture = Image.open(file).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    path = DIRECTORY / f"{name}.png"
    picture.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1024:.1f} kB", flush=True)
    pyplot.close("all")


def main() -> None:
    """Draw the figures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    names = parser.parse_args().names or [*FIGURES]
    if unknown := set(names) - FIGURES.keys():
        parser.error(f"NAME must be one of {', '.join(FIGURES)}, got {', '.join(sorted(unknown))}")
    DIRECTORY.mkdir(exist_ok=True)
    warnings.simplefilter("ignore", iso.checks.IsolatentWarning)
    with pyplot.rc_context(SETTINGS | {"figure.figsize": SIZE}):
        for name in names:
            FIGURES[name]()
            save(name)


if __name__ == "__main__":
    main()
