"""Worlds of the benchmark of diagnoses: half as declared, the others break one assumption each."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

import isolatent as iso

__all__ = ["WORLDS", "DiagnosedWorld", "Drawn"]

Pairs = tuple[Tensor, Tensor]
SPHERE: dict[str, Any] = {"space": "sphere"}
BOX: dict[str, Any] = {"space": "box", "conditional": "normal"}
LAPLACE: dict[str, Any] = {"space": "box", "conditional": "laplace"}
PLANE: dict[str, Any] = {"space": "euclidean"}
STRENGTHS = ("weak", "medium", "strong")
PAIRS = 20_000


class Drawn(NamedTuple):
    """Data of a world, with their factors.

    Attributes:
        data: What ``fit`` and ``diagnose`` take: x and x_pos, or a recording alone.
        x: Observations.
        z: Their factors.
    """

    data: tuple[Tensor, ...]
    x: Tensor
    z: Tensor


class DiagnosedWorld(NamedTuple):
    """A world with what is declared about it.

    Attributes:
        name: Key in the result file.
        broken: The assumption that does not hold; "" for worlds as declared.
        declared: Arguments of ``ContrastiveICA``.
        codes: Number of codes.
        sample: Draws the data of a seed.
    """

    name: str
    broken: str
    declared: dict[str, Any]
    codes: int
    sample: Callable[[int], Drawn]

    @property
    def is_held_back(self) -> bool:
        """Whether the world was kept from the choice of thresholds: every second one is."""
        return [*WORLDS].index(self.name) % 2 == 1


def _mix(n: int, seed: int, observed: int | None = None) -> Any:
    mixing = iso.InvertibleMLP(layers=3, n_observed=observed, condition_draws=1000)
    return mixing.build(n, Generator().manual_seed(seed))


def _parts(kind: str, n: int, width: float = 1.0) -> tuple[Any, Any, Any]:
    """Return space, marginal and conditional of a kind of world."""
    if kind == "sphere":
        return iso.Sphere(n), iso.Uniform(), iso.VonMisesFisher(20.0 / width**2)
    if kind == "box":
        return iso.Box(n), iso.Uniform(), iso.Normal(0.08 * width)
    if kind == "laplace":
        return iso.Box(n), iso.Uniform(), iso.Laplace(0.06 * width)
    return iso.Euclidean(n), iso.Normal(1.0), iso.Normal(0.4 * width)


def _of(parts: tuple[Any, Any, Any], count: int, generator: Generator) -> Pairs:
    space, marginal, conditional = parts
    z = marginal.sample(space, space.center().float().expand(count, space.n), generator)
    return z, conditional.sample(space, z, generator)


def _drawn(z: Tensor, z_pos: Tensor, mixing: Any) -> Drawn:
    x, x_pos = mixing(z), mixing(z_pos)
    return Drawn((x, x_pos), x, z)


def _as_declared(
    seed: int, *, kind: str, n: int, width: float, pairs: int, observed: int | None
) -> Drawn:
    z, z_pos = _of(_parts(kind, n, width), pairs, Generator().manual_seed(seed))
    return _drawn(z, z_pos, _mix(n, seed, observed))


def _walk(seed: int, *, n: int, rows: int, rate: float, change: float = 0.0) -> Drawn:
    """Draw a recording of independent factors; in its second half the mixing is another one.

    Args:
        seed: Seed.
        n: Number of factors.
        rows: Number of rows.
        rate: Autocorrelation of neighbouring rows.
        change: Share of the factors whose places are exchanged half-way.
    """
    generator = Generator().manual_seed(seed)
    noise = torch.randn(rows, n, generator=generator) * math.sqrt(1 - rate**2)
    z = [torch.randn(n, generator=generator)]
    for jump in noise[1:]:
        z.append(rate * z[-1] + jump)
    factors = torch.stack(z)
    mixing, other = _mix(n, seed), _mix(n, seed + 1000)
    x = mixing(factors)
    if change:
        late = rows // 2
        x[late:] = (1 - change) * x[late:] + change * other(factors[late:])
    return Drawn((x,), x, factors)


def _unrelated(seed: int, *, kind: str, n: int, share: float) -> Drawn:
    generator = Generator().manual_seed(seed)
    z, z_pos = _of(_parts(kind, n), PAIRS, generator)
    rows = torch.arange(round(share * PAIRS))
    z_pos[rows] = z_pos[rows.roll(1)]
    return _drawn(z, z_pos, _mix(n, seed))


def _by_place(seed: int, *, kind: str, n: int, ratio: float) -> Drawn:
    generator = Generator().manual_seed(seed)
    z, narrow = _of(_parts(kind, n, ratio**-0.5), PAIRS, generator)
    space, _, conditional = _parts(kind, n, ratio**0.5)
    wide = conditional.sample(space, z, generator)
    middle = 0.0 if kind == "sphere" else 0.5
    return _drawn(z, torch.where(z[:, :1] > middle, narrow, wide), _mix(n, seed))


def _by_factor(seed: int, *, kind: str, n: int, ratio: float) -> Drawn:
    precision = 20.0 if kind == "sphere" else 150.0
    weights = tuple(precision * ratio ** (2 * k / (n - 1) - 1) for k in range(n))
    space = iso.Sphere(n) if kind == "sphere" else iso.Box(n)
    parts = (space, iso.Uniform(), iso.AnisotropicNormal(weights))
    z, z_pos = _of(parts, PAIRS, Generator().manual_seed(seed))
    return _drawn(z, z_pos, _mix(n, seed))


def _concentrated(seed: int, *, kind: str, n: int, strength: float) -> Drawn:
    space, _, conditional = _parts(kind, n)
    marginal = iso.VonMisesFisher(strength) if kind == "sphere" else iso.Normal(0.4 / strength)
    return _drawn(
        *_of((space, marginal, conditional), PAIRS, Generator().manual_seed(seed)), _mix(n, seed)
    )


def _turned(seed: int, *, kind: str, n: int, angle: float) -> Drawn:
    generator = Generator().manual_seed(seed)
    turn = torch.eye(n)
    for k in range(0, n - 1, 2):
        turn[k : k + 2, k : k + 2] = torch.tensor(
            [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        )
    space, marginal, conditional = _parts(kind, n)
    z = marginal.sample(space, space.center().float().expand(PAIRS, n), generator)
    return _drawn(z, conditional.sample(space, z @ turn.mT, generator), _mix(n, seed))


def _folded(seed: int, *, kind: str, n: int, folds: int) -> Drawn:
    """Observe the distance of some factors from a place off the middle: not injective."""
    z, z_pos = _of(_parts(kind, n), PAIRS, Generator().manual_seed(seed))
    mixing = _mix(n, seed)

    def fold(factors: Tensor) -> Tensor:
        seen = factors.clone()
        seen[:, :folds] = (seen[:, :folds] - (0.2 if kind == "sphere" else 0.6)).abs()
        return seen

    x, x_pos = mixing(fold(z)), mixing(fold(z_pos))
    return Drawn((x, x_pos), x, z)


def _noisy(seed: int, *, kind: str, n: int, decibels: float) -> Drawn:
    generator = Generator().manual_seed(seed)
    z, z_pos = _of(_parts(kind, n), PAIRS, generator)
    mixing = _mix(n, seed, 4 * n)
    x, x_pos = mixing(z), mixing(z_pos)
    scale = (x.var(0).mean() * 10 ** (-decibels / 10)).sqrt()
    x, x_pos = (part + scale * torch.randn(part.shape, generator=generator) for part in (x, x_pos))
    return Drawn((x, x_pos), x, z)


def _other(seed: int, *, parts: tuple[Any, Any, Any], observed: int | None = None) -> Drawn:
    z, z_pos = _of(parts, PAIRS, Generator().manual_seed(seed))
    return _drawn(z, z_pos, _mix(parts[0].n, seed, observed))


def _gaussian(seed: int, *, n: int, share: float) -> Drawn:
    """Draw factors of which some are Gaussian, so that their axes are not identified."""
    generator = Generator().manual_seed(seed)
    z = normalize(torch.randn(PAIRS, n, generator=generator)) if share > 1 else None
    if z is None:
        uniform = (torch.rand(PAIRS, n, generator=generator) - 0.5) * math.sqrt(12)
        gaussian = torch.randn(PAIRS, n, generator=generator)
        z = torch.where(torch.arange(n) < round(share * n), gaussian, uniform)
    z_pos = z + 0.3 * torch.randn(PAIRS, n, generator=generator)
    return _drawn(z, z_pos, _mix(n, seed))


def _worlds() -> dict[str, DiagnosedWorld]:
    found: list[DiagnosedWorld] = []
    beliefs = {"sphere": SPHERE, "box": BOX, "laplace": LAPLACE, "plane": PLANE}

    def add(
        name: str, broken: str, declared: dict[str, Any], codes: int, sample: Any, **options: Any
    ) -> None:
        found.append(DiagnosedWorld(name, broken, declared, codes, partial(sample, **options)))

    options: dict[str, Any]
    sizes = ((3, 5000), (4, 20_000), (6, 20_000), (10, 100_000))
    for kind, declared in beliefs.items():
        for n, pairs in sizes:
            for width, observed in ((1.0, None), (0.7, None), (1.0, 3 * n)):
                seen = "" if observed is None else f", {observed} columns"
                name = f"{kind}, {n} factors, {pairs} pairs, width {width:g}{seen}"
                options = {"kind": kind, "n": n, "width": width, "observed": observed}
                add(name, "", declared, n, _as_declared, pairs=pairs, **options)
    for n in (3, 4, 6):
        for rows, rate in ((10_000, 0.9), (30_000, 0.9), (20_000, 0.8), (20_000, 0.95)):
            name = f"recording, {n} factors, {rows} rows, rate {rate}"
            add(name, "", PLANE, n, _walk, n=n, rows=rows, rate=rate)
    for kind in ("sphere", "laplace"):
        declared = beliefs[kind]
        for word, share, ratio, spread in zip(
            STRENGTHS, (0.05, 0.2, 0.4), (2.0, 4.0, 8.0), (1.5, 2.5, 5.0), strict=True
        ):
            options = {"kind": kind, "n": 4}
            add(
                f"{kind}, pairing, {word}",
                "pairing",
                declared,
                4,
                _unrelated,
                share=share,
                **options,
            )
            name = f"{kind}, anchor_scale, {word}"
            add(name, "anchor_scale", declared, 4, _by_place, ratio=ratio, **options)
            box = BOX if kind == "laplace" else declared
            name = f"{kind}, factor_scale, {word}"
            add(name, "factor_scale", box, 4, _by_factor, ratio=spread, **options)
    for kind in ("sphere", "box"):
        for word, strength, angle, folds, decibels in zip(
            STRENGTHS, (0.7, 1.5, 3.0), (0.15, 0.4, 0.8), (1, 2, 3), (20.0, 14.0, 8.0), strict=True
        ):
            options = {"kind": kind, "n": 4}
            declared = beliefs[kind]
            name = f"{kind}, marginal, {word}"
            add(name, "marginal", declared, 4, _concentrated, strength=strength, **options)
            name = f"{kind}, injective, {word}"
            add(name, "injective", declared, 4, _folded, folds=folds, **options)
            name = f"{kind}, noise, {word}"
            add(name, "noise", declared, 4, _noisy, decibels=decibels, **options)
            name = f"{kind}, n_components, {word}"
            options = {"parts": _parts(kind, 6), "observed": 12}
            add(name, "n_components", declared, 6 - folds, _other, **options)
            if kind == "sphere":
                options = {"kind": "plane", "n": 4, "angle": angle}
                add(f"plane, dynamics, {word}", "dynamics", PLANE, 4, _turned, **options)
    for word, n, p in zip(STRENGTHS, (3, 4, 6), (1.5, 3.0, 1.0), strict=True):
        steps = iso.GeneralizedNormal(p, 0.1)
        parts = (iso.Box(n), iso.Uniform(), steps)
        declared = BOX if p == 1.0 else LAPLACE
        add(f"box, conditional, {word}", "conditional", declared, n, _other, parts=parts)
        options = {"parts": _parts("box", n), "observed": 2 * n}
        add(f"box as sphere, {n} codes", "space", SPHERE, n, _other, **options)
        options = {"parts": _parts("sphere", n), "observed": 2 * n}
        add(f"sphere as box, {n} codes", "space", BOX, n, _other, **options)
        options = {"n": 4, "rows": 20_000, "rate": 0.9}
        change = {3: 0.3, 4: 0.6, 6: 1.0}[n]
        name = f"recording, stationarity, {word}"
        add(name, "stationarity", PLANE, 4, _walk, change=change, **options)
        share = {3: 0.5, 4: 0.75, 6: 1.0}[n]
        add(f"default, axes, {word}", "axes", {}, 4, _gaussian, n=4, share=share)
    return {world.name: world for world in found}


WORLDS = _worlds()
