"""Worlds that break one assumption about pairs, or two, each by a known amount."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

import isolatent as iso
from isolatent.pairs.factor_pairs import KnownPairs

__all__ = ["WORLDS", "BrokenWorld", "EndlessPairs", "mixing_of", "split_places"]

Pairs = tuple[Tensor, Tensor]
Sampler = Callable[[int, Generator], Pairs]

PAIRS = 20_000
N, MANY = 4, 10  # factors
SEVERAL, MANY_PAIRS = 8, 100_000  # of a box
KAPPA, WIDTH = 35.0, 0.05  # of steps on the sphere, and in the box
PLANE_WIDTH = 0.3
SPHERE: dict[str, Any] = {"space": "sphere"}
BOX: dict[str, Any] = {"space": "box", "conditional": "laplace"}
NORMAL_BOX: dict[str, Any] = {"space": "box", "conditional": "normal"}
PLANE: dict[str, Any] = {"space": "euclidean"}
# Geometric means of scales that differ, between places and between factors.
PLACE_KAPPA, PLACE_WIDTH = 17.5, 0.0775
FACTOR_PRECISION, BOX_PRECISION = 21.0, 400.0


@dataclass(frozen=True)
class BrokenWorld:
    """Pairs of factors, what is declared about them, and what is true.

    Attributes:
        name: Key in the result file.
        group: Heading in the report.
        sample: Draws pairs of factors; rows of a recording in their order if ``lag`` is set.
        declared: The beliefs of the model.
        relevant: Relaxations that should help, joined by ``+`` where two are meant.
        n: Number of factors.
        pairs: Number of pairs; None for endless ones.
        lag: Rows from an anchor to its positive, if the pairs are those of a recording.
        related: The true share of related pairs.
        scale: The true κ of a dot product or λ of a distance, where there is one.
        angles: The true angles of the dynamics, in rad, where there are some.
        weights: The true precisions of the factors, where they differ.
        width_ratio: The largest width of a step by the smallest, between places.
        poles: The true poles per row of the dynamics, where there are some.
        axes: Whether factors are identified one by one, so that MCC is a score.
    """

    name: str
    group: str
    sample: Sampler
    declared: dict[str, Any]
    relevant: tuple[str, ...] = ()
    n: int = N
    pairs: int | None = PAIRS
    lag: int | None = None
    related: float = 1.0
    scale: float | None = None
    angles: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    width_ratio: float | None = None
    poles: tuple[complex, ...] = ()
    axes: bool = field(default=False)

    @property
    def sample_related(self) -> Sampler:
        """Draws related pairs only."""
        parts = getattr(self.sample, "keywords", {})
        related: Sampler = parts.get("sample", self.sample)
        return related

    @property
    def holds(self) -> bool:
        """Whether everything is as declared."""
        return not self.relevant


def mixing_of(n: int, seed: int) -> Any:
    """Return the mixing of the worlds with n factors and a seed."""
    return iso.InvertibleMLP(layers=3).build(n, Generator().manual_seed(seed))


def split_places(world: BrokenWorld, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return masks (N,) of the factors in the two halves of the places, by their first factor."""
    high = z[:, 0] > (0.5 if world.declared["space"] == "box" else 0.0)
    return high, ~high


class EndlessPairs:
    """Fresh pairs of observations at each call: a pair source, with known factors."""

    def __init__(self, world: BrokenWorld, seed: int) -> None:
        self.draw, self.mixing = world.sample, mixing_of(world.n, seed)

    def sample(self, batch_size: int, generator: Generator) -> Pairs:
        z, z_pos = self.draw(batch_size, generator)
        return self.mixing(z), self.mixing(z_pos)

    def sample_known(self, batch_size: int, generator: Generator) -> KnownPairs:
        z, z_pos = self.draw(batch_size, generator)
        return KnownPairs(self.mixing(z), self.mixing(z_pos), z, z_pos)


def _of_world(count: int, generator: Generator, *, world: tuple[Any, Any, Any]) -> Pairs:
    space, marginal, conditional = world
    z = marginal.sample(space, space.center().float().expand(count, space.n), generator)
    return z, conditional.sample(space, z, generator)


def _sampler(space: Any, marginal: Any, conditional: Any) -> Sampler:
    return partial(_of_world, world=(space, marginal, conditional))


def _contaminated(count: int, generator: Generator, *, sample: Sampler, share: float) -> Pairs:
    """Exchange the positives of a share of the pairs among each other."""
    z, z_pos = sample(count, generator)
    rows = (torch.rand(count, generator=generator) < share).nonzero().squeeze(1)
    z_pos = z_pos.clone()
    z_pos[rows] = z_pos[rows[torch.randperm(len(rows), generator=generator)]]
    return z, z_pos


def _sphere_by_place(
    count: int, generator: Generator, *, kappas: tuple[float, float], n: int = N
) -> Pairs:
    """Draw steps with one κ where the first factor is positive, and with another elsewhere."""
    space = iso.Sphere(n)
    z = normalize(torch.randn(count, n, generator=generator))
    high, low = (iso.VonMisesFisher(kappa).sample(space, z, generator) for kappa in kappas)
    return z, torch.where(z[:, :1] > 0, high, low)


def _box_by_place(
    count: int, generator: Generator, *, widths: tuple[float, float], n: int = N
) -> Pairs:
    z = torch.rand(count, n, generator=generator)
    wide, narrow = (iso.Laplace(width).sample(iso.Box(n), z, generator) for width in widths)
    return z, torch.where(z[:, :1] > 0.5, wide, narrow)


def _plane_by_place(
    count: int, generator: Generator, *, widths: tuple[float, float], n: int = N
) -> Pairs:
    z, step = (torch.randn(count, n, generator=generator) for _ in range(2))
    return z, z + torch.where(z[:, :1] > 0, *widths) * step


def _weighted_by_place(
    count: int, generator: Generator, *, space: Any, weights: tuple[tuple[float, ...], ...]
) -> Pairs:
    """Draw steps with one weight per factor, and larger weights in one half of the places."""
    centre = space.center().float().expand(count, space.n)
    z = iso.Uniform().sample(space, centre, generator)
    wide, narrow = (iso.AnisotropicNormal(w).sample(space, z, generator) for w in weights)
    half = 0.0 if isinstance(space, iso.Sphere) else 0.5
    return z, torch.where(z[:, :1] > half, wide, narrow)


def _recording(
    count: int,
    generator: Generator,
    *,
    matrix: tuple[tuple[float, ...], ...],
    lag: int,
    widths: tuple[float, float] = (1.0, 1.0),
) -> Pairs:
    """Draw the rows of a stationary process, and the rows a lag later.

    It has unit covariance if jumps are equally wide where the first factor is positive and where it
    is not.
    """
    step = torch.tensor(matrix, dtype=torch.float64)
    covariance = torch.eye(len(step), dtype=torch.float64) - step @ step.mT
    noise = torch.randn(count + lag, len(step), generator=generator, dtype=torch.float64)
    rows = [noise[0]]
    for jump in noise[1:] @ torch.linalg.cholesky(covariance).mT:
        rows.append(step @ rows[-1] + widths[int(rows[-1][0] <= 0)] * jump)
    z = torch.stack(rows).float()
    return z[:-lag], z[lag:]


def _transitions(
    count: int, generator: Generator, *, matrix: tuple[tuple[float, ...], ...]
) -> Pairs:
    """Draw rows of a stationary process of unit covariance, each with the row after it."""
    step = torch.tensor(matrix)
    covariance = torch.eye(len(step)) - step @ step.mT
    z, noise = (torch.randn(count, len(step), generator=generator) for _ in range(2))
    return z, z @ step.mT + noise @ torch.linalg.cholesky(covariance).mT


def _correlated_plane(count: int, generator: Generator, *, correlation: float) -> Pairs:
    covariance = torch.eye(N)
    covariance[0, 1] = covariance[1, 0] = covariance[2, 3] = covariance[3, 2] = correlation
    root = torch.linalg.cholesky(covariance)
    z = torch.randn(count, N, generator=generator) @ root.mT
    return z, z + 0.3 * torch.randn(count, N, generator=generator)


def _student_box(count: int, generator: Generator) -> Pairs:
    """Draw Student steps with 3 degrees of freedom, again where they leave the box."""
    z = torch.rand(count, N, generator=generator)
    z_pos = torch.full_like(z, -1.0)
    while bool((left := (z_pos < 0) | (z_pos > 1)).any()):
        normal = torch.randn(4, int(left.sum()), generator=generator)
        z_pos[left] = z[left] + WIDTH * normal[0] / normal[1:].square().mean(0).sqrt()
    return z, z_pos


def _mixed_plane(count: int, generator: Generator) -> Pairs:
    """Draw steps that are narrow in one half of the pairs, and wide in the other."""
    z, step = (torch.randn(count, N, generator=generator) for _ in range(2))
    width = torch.where(torch.rand(count, 1, generator=generator) < 0.5, 0.1, 0.5)
    return z, z + width * step


def _mixed_sphere(count: int, generator: Generator) -> Pairs:
    space = iso.Sphere(N)
    z = normalize(torch.randn(count, N, generator=generator))
    narrow, wide = (iso.VonMisesFisher(k).sample(space, z, generator) for k in (100.0, 10.0))
    return z, torch.where(torch.rand(count, 1, generator=generator) < 0.5, narrow, wide)


def _oscillators(damping: float, angles: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    turns = [
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        for angle in angles
    ]
    matrix = damping * torch.block_diag(*map(torch.tensor, turns))
    return tuple(map(tuple, matrix.tolist()))


def _poles(damping: float, angles: tuple[float, ...]) -> tuple[complex, ...]:
    return tuple(cmath.rect(damping, angle) for angle in angles)


def _diagonal(rates: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, torch.tensor(rates).diag().tolist()))


def _spread(mean: float, contrast: float, n: int = N) -> tuple[float, ...]:
    """Return numbers at equal ratios, around a geometric mean."""
    return tuple(mean * contrast ** (k / (n - 1) - 0.5) for k in range(n))


def _suffix(n: int, pairs: int | None) -> str:
    return "" if n == N else f", {n} factors, {'endless' if pairs is None else pairs} pairs"


def _contaminations(
    n: int,
    pairs: int | None,
    shares: tuple[float, ...],
    spaces: tuple[str, ...] = ("sphere", "box", "plane"),
) -> list[BrokenWorld]:
    suffix = _suffix(n, pairs)
    group = "Contamination" + (f": {n} factors" if n != N else "")
    worlds = []
    for share in shares:
        for name, sample, declared, scale in (
            (
                "sphere",
                _sampler(iso.Sphere(n), iso.Uniform(), iso.VonMisesFisher(KAPPA)),
                SPHERE,
                KAPPA,
            ),
            ("box", _sampler(iso.Box(n), iso.Uniform(), iso.Laplace(WIDTH)), BOX, 1 / WIDTH),
            ("plane", partial(_plane_by_place, widths=(PLANE_WIDTH,) * 2, n=n), PLANE, None),
        ):
            if name not in spaces:
                continue
            worlds.append(
                BrokenWorld(
                    f"{name}, {share:.0%} unrelated{suffix}",
                    group,
                    partial(_contaminated, sample=sample, share=share),
                    declared,
                    ("pairing",) if share else (),
                    n=n,
                    pairs=pairs,
                    related=1 - share,
                    scale=scale,
                    axes=name == "box",
                )
            )
    return worlds


DECLARED = {"sphere": SPHERE, "box": BOX, "plane": PLANE}
# Of equal places; that of free codes is open.
PLACE_SCALES = {"sphere": PLACE_KAPPA, "box": 1 / PLACE_WIDTH}


def _place_sampler(name: str, contrast: float, n: int = N) -> Sampler:
    root = math.sqrt(contrast)
    if name == "sphere":
        return partial(_sphere_by_place, kappas=(PLACE_KAPPA * root, PLACE_KAPPA / root), n=n)
    sampler, width = {"box": (_box_by_place, PLACE_WIDTH), "plane": (_plane_by_place, PLANE_WIDTH)}[
        name
    ]
    return partial(sampler, widths=(width * root, width / root), n=n)


def _place(name: str, contrast: float, n: int = N, pairs: int | None = PAIRS) -> BrokenWorld:
    telling = ("anchor_scale",) if name == "plane" else ("anchor_scale", "marginal")
    return BrokenWorld(
        f"{name}, anchor scale {contrast:g}{_suffix(n, pairs)}",
        "Steps wider in some places" if n == N else f"Scales: {n} factors",
        _place_sampler(name, contrast, n),
        DECLARED[name],
        telling if contrast > 1 else (),
        n=n,
        pairs=pairs,
        scale=PLACE_SCALES.get(name) if contrast == 1 else None,
        width_ratio=math.sqrt(contrast) if name == "sphere" else contrast,
        axes=name == "box",
    )


def _places() -> list[BrokenWorld]:
    return [_place(name, contrast) for contrast in (1.0, 3.0, 12.0) for name in DECLARED]


def _factor_sampler(name: str, contrast: float, n: int = N) -> Sampler:
    space = iso.Sphere(n) if name == "sphere" else iso.Box(n)
    mean = FACTOR_PRECISION if name == "sphere" else BOX_PRECISION
    return _sampler(space, iso.Uniform(), iso.AnisotropicNormal(_spread(mean, contrast, n)))


def _factor(name: str, contrast: float, n: int = N, pairs: int | None = PAIRS) -> BrokenWorld:
    mean = FACTOR_PRECISION if name == "sphere" else BOX_PRECISION
    return BrokenWorld(
        f"{name}, factor scale {contrast:g}{_suffix(n, pairs)}",
        "Some factors move more than others" if n == N else f"Scales: {n} factors",
        _factor_sampler(name, contrast, n),
        SPHERE if name == "sphere" else NORMAL_BOX,
        ("factor_scale",) if contrast > 1 else (),
        n=n,
        pairs=pairs,
        weights=_spread(mean, contrast, n),
        axes=name == "box" or contrast > 1,
    )


def _factors() -> list[BrokenWorld]:
    return [_factor(name, contrast) for contrast in (1.0, 5.0, 25.0) for name in ("sphere", "box")]


ANGLES, MANY_ANGLES = (0.5, 1.2), (0.3, 0.6, 0.9, 1.2, 1.5)
DAMPING = 0.97
RATES = (0.98, 0.95, 0.9, 0.8)


def _dynamics() -> list[BrokenWorld]:
    group = "Oscillators and relaxing factors"
    worlds = [
        BrokenWorld(
            f"plane, {name} oscillators, lag {lag}",
            group,
            partial(_recording, matrix=_oscillators(damping, ANGLES), lag=lag),
            PLANE,
            ("dynamics",),
            lag=lag,
            angles=tuple(lag * angle for angle in ANGLES),
            poles=_poles(damping, ANGLES),
        )
        for name, damping in (("nearly undamped", DAMPING), ("damped", 0.9))
        for lag in (1, 2)
    ]
    # Relaxing factors are as declared: sizes of free codes stand for different rates.
    return worlds + [
        BrokenWorld(
            f"plane, relaxing factors, lag {lag}",
            group,
            partial(_recording, matrix=_diagonal(RATES), lag=lag),
            PLANE,
            lag=lag,
            poles=RATES,
        )
        for lag in (1, 3)
    ]


def _marginals() -> list[BrokenWorld]:
    vmf, laplace = iso.VonMisesFisher(KAPPA), iso.Laplace(WIDTH)
    concentrated = _sampler(iso.Sphere(N), iso.VonMisesFisher(2.0), vmf)
    normal = _sampler(iso.Box(N), iso.Normal(0.2), laplace)
    copula = _sampler(iso.Box(N), iso.GaussianCopula(2, 0.8), laplace)
    plane = partial(_correlated_plane, correlation=0.8)
    group, relevant = "Marginals", ("marginal",)
    return [
        BrokenWorld("sphere, concentrated marginal", group, concentrated, SPHERE, relevant),
        BrokenWorld("box, normal marginal", group, normal, BOX, relevant, axes=True),
        BrokenWorld("box, correlated marginal", group, copula, BOX, relevant, axes=True),
        BrokenWorld("plane, correlated marginal", group, plane, PLANE),  # potentials are declared
    ]


def _tails() -> list[BrokenWorld]:
    group, laplace = "Heavy tails", _sampler(iso.Box(N), iso.Uniform(), iso.Laplace(WIDTH))
    options: dict[str, Any] = {"relevant": ("pairing", "anchor_scale")}
    return [
        BrokenWorld("sphere, narrow and wide steps", group, _mixed_sphere, SPHERE, **options),
        BrokenWorld("box, Student steps", group, _student_box, NORMAL_BOX, **options, axes=True),
        BrokenWorld("box, Laplace steps", group, laplace, NORMAL_BOX, **options, axes=True),
        BrokenWorld("plane, narrow and wide steps", group, _mixed_plane, PLANE, **options),
    ]


def _combinations() -> list[BrokenWorld]:
    group, share = "Two assumptions broken", 0.2

    def contaminated(sample: Sampler) -> Sampler:
        return partial(_contaminated, sample=sample, share=share)

    anchor = ("pairing", "anchor_scale", "pairing+anchor_scale")
    factor = ("pairing", "factor_scale", "pairing+factor_scale")
    turning = partial(_recording, matrix=_oscillators(DAMPING, ANGLES), lag=1)
    worlds = [
        BrokenWorld(
            f"{name}, 20% unrelated, anchor scale 3",
            group,
            contaminated(_place_sampler(name, 3.0)),
            declared,
            anchor,
            related=1 - share,
            width_ratio=ratio,
            axes=name == "box",
        )
        for name, declared, ratio in (("sphere", SPHERE, math.sqrt(3)), ("box", BOX, 3.0))
    ]
    worlds += [
        BrokenWorld(
            f"{name}, 20% unrelated, factor scale 5",
            group,
            contaminated(_factor_sampler(name, 5.0)),
            SPHERE if name == "sphere" else NORMAL_BOX,
            factor,
            related=1 - share,
            weights=_spread(mean, 5.0),
            axes=True,
        )
        for name, mean in (("sphere", FACTOR_PRECISION), ("box", BOX_PRECISION))
    ]
    return [
        *worlds,
        BrokenWorld(
            "plane, 20% unrelated, oscillators",
            group,
            contaminated(turning),
            PLANE,
            ("pairing", "dynamics", "pairing+dynamics"),
            related=1 - share,
            angles=ANGLES,
            poles=_poles(DAMPING, ANGLES),
        ),
        *_scaled_twice(group),
        *_contaminated_marginals(group, share),
    ]


def _scaled_twice(group: str) -> list[BrokenWorld]:
    """Return worlds whose steps are wider in some places, and have another property."""
    root = math.sqrt(3.0)
    worlds = []
    for name, space, mean, declared in (
        ("sphere", iso.Sphere(N), FACTOR_PRECISION, SPHERE),
        ("box", iso.Box(N), BOX_PRECISION, NORMAL_BOX),
    ):
        weights = tuple(_spread(scale * mean, 5.0) for scale in (1 / root, root))
        worlds.append(
            BrokenWorld(
                f"{name}, anchor scale 3, factor scale 5",
                group,
                partial(_weighted_by_place, space=space, weights=weights),
                declared,
                ("anchor_scale", "factor_scale", "anchor_scale+factor_scale"),
                weights=_spread(mean, 5.0),
                width_ratio=root,
                axes=True,
            )
        )
    widths = (root, 1 / root)
    turning = partial(_recording, matrix=_oscillators(DAMPING, ANGLES), lag=1, widths=widths)
    return [
        *worlds,
        BrokenWorld(
            "plane, anchor scale 3, oscillators",
            group,
            turning,
            PLANE,
            ("anchor_scale", "dynamics", "anchor_scale+dynamics"),
            lag=1,
            angles=ANGLES,
            poles=_poles(DAMPING, ANGLES),
        ),
    ]


def _contaminated_marginals(group: str, share: float) -> list[BrokenWorld]:
    relevant = ("pairing", "marginal", "pairing+marginal")
    vmf, laplace = iso.VonMisesFisher(KAPPA), iso.Laplace(WIDTH)
    return [
        BrokenWorld(
            f"{name}, {share:.0%} unrelated, {kind} marginal",
            group,
            partial(_contaminated, sample=_sampler(space, marginal, steps), share=share),
            DECLARED[name],
            relevant,
            related=1 - share,
            axes=name == "box",
        )
        for name, kind, space, marginal, steps in (
            ("sphere", "concentrated", iso.Sphere(N), iso.VonMisesFisher(2.0), vmf),
            ("box", "normal", iso.Box(N), iso.Normal(0.2), laplace),
        )
    ]


def _many(pairs: int | None) -> list[BrokenWorld]:
    return [
        *_contaminations(MANY, pairs, (0.0, 0.4)),
        *(_place(name, 3.0, MANY, pairs) for name in DECLARED),
        *(_factor(name, 5.0, MANY, pairs) for name in ("sphere", "box")),
        BrokenWorld(
            f"plane, oscillators{_suffix(MANY, pairs)}",
            f"Oscillators: {MANY} factors",
            partial(_transitions, matrix=_oscillators(DAMPING, MANY_ANGLES)),
            PLANE,
            ("dynamics",),
            n=MANY,
            pairs=pairs,
            angles=MANY_ANGLES,
            poles=_poles(DAMPING, MANY_ANGLES),
        ),
    ]


WORLDS: dict[str, BrokenWorld] = {
    world.name: world
    for world in (
        *_contaminations(N, PAIRS, (0.0, 0.05, 0.2, 0.4, 0.6)),
        *_places(),
        *_factors(),
        *_dynamics(),
        *_marginals(),
        *_tails(),
        *_combinations(),
        *_many(None),
        *_many(PAIRS),
        *_contaminations(SEVERAL, MANY_PAIRS, (0.4,), ("box",)),
        _place("box", 3.0, SEVERAL, MANY_PAIRS),
    )
}
