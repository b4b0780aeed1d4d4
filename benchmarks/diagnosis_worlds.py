"""Worlds of the benchmark of diagnoses: half as declared, the others break one assumption each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

import isolatent as iso

__all__ = ["CHOSEN", "HELD_BACK", "WORLDS", "DiagnosedWorld", "Drawn"]

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
        stratum: What worlds are alike in that are shared out between the halves.
    """

    name: str
    broken: str
    declared: dict[str, Any]
    codes: int
    sample: Callable[[int], Drawn]
    stratum: tuple[str, ...]

    @property
    def is_held_back(self) -> bool:
        """Whether the world is kept from the choice of thresholds."""
        return self.name in HELD_BACK


def held_back(worlds: Iterable[DiagnosedWorld]) -> frozenset[str]:
    """Return the names of every second world of each stratum.

    A stratum is a kind and size of worlds as declared, or a broken assumption at one strength. The
    strata of one kind begin with a world to tune with and with one that is held back in turn.
    """
    strata: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for world in worlds:
        kind = strata.setdefault(world.stratum[0], {})
        kind.setdefault(world.stratum, []).append(world.name)
    return frozenset(
        name
        for start, kind in enumerate(strata.values())
        for rank, names in enumerate(kind.values())
        for place, name in enumerate(names)
        if (start + rank + place) % 2 == 1
    )


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


def _walk(
    seed: int, *, n: int, rows: int, rate: float | Sequence[float], change: float = 0.0
) -> Drawn:
    """Draw a recording of independent factors; in its second half the mixing is another one.

    Args:
        seed: Seed.
        n: Number of factors.
        rows: Number of rows.
        rate: Autocorrelation of neighbouring rows, one for all factors or one for each.
        change: Share of the factors whose places are exchanged half-way.
    """
    generator = Generator().manual_seed(seed)
    rates = torch.as_tensor(rate)
    noise = torch.randn(rows, n, generator=generator) * (1 - rates**2).sqrt()
    z = [torch.randn(n, generator=generator)]
    for jump in noise[1:]:
        z.append(rates * z[-1] + jump)
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


def _by_pair(seed: int, *, n: int, ratio: float) -> Drawn:
    """Draw one of two concentrations for each pair, wherever it is: steps with heavy tails."""
    generator = Generator().manual_seed(seed)
    z, narrow = _of(_parts("sphere", n, ratio**-0.5), PAIRS, generator)
    space, _, conditional = _parts("sphere", n, ratio**0.5)
    wide = conditional.sample(space, z, generator)
    chosen = torch.rand(PAIRS, 1, generator=generator) < 0.5
    return _drawn(z, torch.where(chosen, narrow, wide), _mix(n, seed))


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
    """Observe the distance of some factors from a place off the middle: not injective.

    Of the other factors of a sphere their direction is observed: their length tells the side.
    """
    z, z_pos = _of(_parts(kind, n), PAIRS, Generator().manual_seed(seed))
    mixing = _mix(n, seed)

    def fold(factors: Tensor) -> Tensor:
        seen = factors.clone()
        seen[:, :folds] = (seen[:, :folds] - (0.2 if kind == "sphere" else 0.6)).abs()
        if kind == "sphere":
            seen[:, folds:] = normalize(seen[:, folds:])
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
        name: str,
        broken: str,
        declared: dict[str, Any],
        codes: int,
        sample: Any,
        stratum: tuple[str, ...],
        **options: Any,
    ) -> None:
        draw = partial(sample, **options)
        found.append(DiagnosedWorld(name, broken, declared, codes, draw, stratum))

    options: dict[str, Any]
    sizes = ((3, 5000), (4, 20_000), (6, 20_000), (10, 100_000))
    for kind, declared in beliefs.items():
        for n, pairs in sizes:
            for width, observed in ((1.0, None), (0.7, None), (1.0, 3 * n)):
                seen = "" if observed is None else f", {observed} columns"
                name = f"{kind}, {n} factors, {pairs} pairs, width {width:g}{seen}"
                options = {"kind": kind, "n": n, "width": width, "observed": observed}
                options |= {"pairs": pairs}
                add(name, "", declared, n, _as_declared, (kind, str(n)), **options)
    for n in (3, 4, 6):
        for rows, rate in ((10_000, 0.9), (30_000, 0.9), (20_000, 0.8), (20_000, 0.95)):
            name = f"recording, {n} factors, {rows} rows, rate {rate}"
            options = {"n": n, "rows": rows, "rate": rate}
            add(name, "", PLANE, n, _walk, ("recording", str(n)), **options)
        name = f"default, box of {n} independent factors"
        options = {"kind": "laplace", "n": n, "width": 1.0, "pairs": PAIRS, "observed": None}
        add(name, "", {}, n, _as_declared, ("default", str(n)), **options)
        rates = torch.logspace(-0.4, -1.7, n).neg().add(1).tolist()  # .60 to .98
        name = f"default, recording of {n} time scales"
        add(name, "", {}, n, _walk, ("default", str(n)), n=n, rows=20_000, rate=rates)
    for kind in ("sphere", "laplace"):
        declared = beliefs[kind]
        for word, share, ratio, spread in zip(
            STRENGTHS, (0.05, 0.2, 0.4), (2.0, 4.0, 8.0), (1.5, 2.5, 5.0), strict=True
        ):
            options = {"kind": kind, "n": 4}
            name, stratum = f"{kind}, pairing, {word}", ("pairing", word)
            add(name, "pairing", declared, 4, _unrelated, stratum, share=share, **options)
            name = f"{kind}, anchor_scale, {word}"
            add(
                name,
                "anchor_scale",
                declared,
                4,
                _by_place,
                ("anchor_scale", word),
                ratio=ratio,
                **options,
            )
            box = BOX if kind == "laplace" else declared
            name = f"{kind}, factor_scale, {word}"
            add(
                name,
                "factor_scale",
                box,
                4,
                _by_factor,
                ("factor_scale", word),
                ratio=spread,
                **options,
            )
    for kind in ("sphere", "box"):
        for word, strength, angle, folds, decibels in zip(
            STRENGTHS, (0.7, 1.5, 3.0), (0.15, 0.4, 0.8), (1, 2, 3), (20.0, 14.0, 8.0), strict=True
        ):
            options = {"kind": kind, "n": 4}
            declared = beliefs[kind]
            name = f"{kind}, marginal, {word}"
            add(
                name,
                "marginal",
                declared,
                4,
                _concentrated,
                ("marginal", word),
                strength=strength,
                **options,
            )
            name = f"{kind}, injective, {word}"
            add(
                name, "injective", declared, 4, _folded, ("injective", word), folds=folds, **options
            )
            name = f"{kind}, noise, {word}"
            add(name, "noise", declared, 4, _noisy, ("noise", word), decibels=decibels, **options)
            name = f"{kind}, n_components, {word}"
            options = {"parts": _parts(kind, 6), "observed": 12}
            stratum = ("n_components", word)
            add(name, "n_components", declared, 6 - folds, _other, stratum, **options)
            if kind == "sphere":
                options = {"kind": "plane", "n": 4, "angle": angle}
                stratum = ("dynamics", word)
                add(f"plane, dynamics, {word}", "dynamics", PLANE, 4, _turned, stratum, **options)
    for word, p, small, ratio, width, change, share in zip(
        *(STRENGTHS, (1.5, 2.0, 4.0), (1.6, 1.3, 1.0), (2.0, 4.0, 8.0), (1.4, 1.0, 0.7)),
        *((0.3, 0.6, 1.0), (0.5, 0.75, 1.0)),
        strict=True,
    ):
        stratum = ("conditional", word)
        for name, declared, true in (("laplace", LAPLACE, p), ("box", BOX, small)):
            parts = (iso.Box(4), iso.Uniform(), iso.GeneralizedNormal(true, 0.1))
            name = f"{name}, conditional, {word}"
            add(name, "conditional", declared, 4, _other, stratum, parts=parts)
        name = f"sphere, conditional, {word}"
        add(name, "conditional", SPHERE, 4, _by_pair, stratum, n=4, ratio=ratio)
        for true, name, declared in (("box", "sphere", SPHERE), ("sphere", "box", BOX)):
            options = {"parts": _parts(true, 4, width), "observed": 8}
            name = f"{true} as {name}, {word}"
            add(name, "space", declared, 4, _other, ("space", word), **options)
        name, stratum = f"recording, stationarity, {word}", ("stationarity", word)
        options = {"n": 4, "rows": PAIRS, "rate": 0.9, "change": change}
        add(name, "stationarity", PLANE, 4, _walk, stratum, **options)
        add(f"default, axes, {word}", "axes", {}, 4, _gaussian, ("axes", word), n=4, share=share)
    return {world.name: world for world in found}


WORLDS = _worlds()
HELD_BACK = held_back(WORLDS.values())
# Worlds as declared for isolatent.choose: 40, among them recordings and ten factors.
LARGE = ("100000 pairs, width 1", "20000 rows, rate 0.8", "4 factors, 20000 rows, rate 0.95")
CHOSEN = tuple(
    name
    for name, world in WORLDS.items()
    if (
        (world.stratum[0] in ("sphere", "box", "laplace", "plane") and world.stratum[1] != "10")
        and "5000 pairs, width 0.7" not in name
    )
    or name.endswith(LARGE)
)
