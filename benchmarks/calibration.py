"""Calibration of codes: scores before and after, where assumptions hold and where they do not.

Perfect or warped codes of synthetic worlds, and codes of short fits of the papers' worlds, are
calibrated as after training. "applied regardless" is the same estimate without the held-out
criterion. R² is the score of codes in a box, MCC the score of codes on a sphere.

Run: python benchmarks/calibration.py [--quick] [--max-steps 1000] [--seed 0]
Writes results/benchmarks/calibration.{json,md}; --quick leaves the fits out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Generator, Tensor

import isolatent as iso
from isolatent.encoders import PrincipalAxes, Straightening
from isolatent.pairs import WorldPairs
from isolatent.training import estimator
from isolatent.training.calibration import set_scale
from paper_rows import ROWS, Row, make_world

OUT = Path(__file__).parents[1] / "results/benchmarks/calibration.json"
PAIRS, TEST_CODES = 65_536, 16_384
MAX_LOSS = 0.002  # of a score, that calibration may cost
Pairs = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    """Codes to calibrate.

    Attributes:
        name: Key in the result file.
        holds: Whether the assumptions of the calibration hold.
        world: Space, marginal and conditional.
        codes: Maps factors to codes.
        change: Changes the pairs of factors; receives them and a generator.
        p: Power of the distance.
    """

    name: str
    holds: bool
    world: tuple[Any, Any, Any]
    codes: Callable[[Tensor], Tensor] = lambda z: z
    change: Callable[[Tensor, Tensor, Generator], Pairs] = lambda z, z_pos, _: (z, z_pos)
    p: float = 2.0


def _unrelated(share: float) -> Callable[[Tensor, Tensor, Generator], Pairs]:
    def change(z: Tensor, z_pos: Tensor, generator: Generator) -> Pairs:
        chosen = torch.rand(len(z), generator=generator) < share
        z_pos = z_pos.clone()
        z_pos[chosen] = z_pos[chosen].roll(1, 0)
        return z, z_pos

    return change


def _wider(width: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, Generator], Pairs]:
    """Make the width of steps depend on the place; steps are reflected at the walls."""

    def change(z: Tensor, _: Tensor, generator: Generator) -> Pairs:
        z_pos = (z + 0.05 * width(z) * torch.randn(z.shape, generator=generator)).abs()
        return z, 1 - (1 - z_pos).abs()

    return change


def _heavy_tails(z: Tensor, _: Tensor, generator: Generator) -> Pairs:
    step, size = (torch.randn(z.shape, generator=generator) for _ in range(2))
    z_pos = (z + (0.02 * step / size.abs().clamp(min=0.02)).clamp(-1, 1)).abs()
    return z, 1 - (1 - z_pos).abs()


def _warp(z: Tensor) -> Tensor:
    """Contract codes towards the walls, as the saturated loss does."""
    return 0.5 + 0.4 * torch.sin(2.4 * (z - 0.5)) / torch.sin(torch.tensor(1.2))


def _turn(z: Tensor) -> Tensor:
    n = z.shape[1]
    generator = Generator().manual_seed(1)
    return z @ torch.linalg.qr(torch.randn(n, n, generator=generator))[0]


BOX, UNIFORM, NORMAL = iso.Box(5), iso.Uniform(), iso.Normal(0.05)
LINSPACE = tuple(torch.linspace(5, 25, 10).tolist())
LINEAR = iso.AnisotropicNormal(LINSPACE)
CLOSE = iso.AnisotropicNormal(tuple(10 * 1.02**k for k in range(10)))
THREE = iso.AnisotropicNormal((5.0, 10.0, 20.0))
BLOCKS = iso.AnisotropicNormal((5.0,) * 5 + (25.0,) * 5)
S10, S3 = iso.Sphere(10), iso.Sphere(3)
ON_BOX, ON_SPHERE = (BOX, UNIFORM, NORMAL), (S10, UNIFORM, LINEAR)

CASES = [
    Case("box, perfect", True, ON_BOX),
    Case("box, warped", True, ON_BOX, _warp),
    Case("box, Laplace, warped", True, (BOX, UNIFORM, iso.Laplace(0.05)), _warp, p=1.0),
    Case("box, cubic, warped", True, (BOX, UNIFORM, iso.GeneralizedNormal(3, 0.05)), _warp, p=3.0),
    Case("box, 1 % unrelated pairs", False, ON_BOX, change=_unrelated(0.01)),
    Case("box, 10 % unrelated pairs", False, ON_BOX, change=_unrelated(0.1)),
    Case("box, 1 % unrelated pairs, warped", False, ON_BOX, _warp, _unrelated(0.01)),
    Case("box, 10 % unrelated pairs, warped", False, ON_BOX, _warp, _unrelated(0.1)),
    Case("box, steps wider to the right", False, ON_BOX, change=_wider(lambda z: 0.3 + 1.4 * z)),
    Case("box, steps wider in the middle", False, ON_BOX,
         change=_wider(lambda z: 0.3 + 4 * z * (1 - z))),
    Case("box, steps wider at the walls", False, ON_BOX,
         change=_wider(lambda z: 1.3 - 4 * z * (1 - z))),
    Case("box, heavy tails", False, ON_BOX, change=_heavy_tails),
    Case("box, normal marginal", False, (BOX, iso.Normal(0.2), NORMAL)),
    Case("sphere, perfect", True, ON_SPHERE),
    Case("sphere, rotated", True, ON_SPHERE, _turn),
    Case("sphere, two blocks of weights", True, (S10, UNIFORM, BLOCKS)),
    Case("sphere, marginal κ = 2", False, (S10, iso.VonMisesFisher(2.0), LINEAR)),
    Case("sphere, marginal κ = 4", False, (S10, iso.VonMisesFisher(4.0), LINEAR)),
    Case("sphere, three weights, κ = 2", False, (S3, iso.VonMisesFisher(2.0), THREE)),
    Case("sphere, three weights, κ = 4", False, (S3, iso.VonMisesFisher(4.0), THREE)),
    Case("sphere, marginal κ = 4, rotated", False, (S10, iso.VonMisesFisher(4.0), LINEAR), _turn),
    Case("sphere, weights 2 % apart", False, (S10, UNIFORM, CLOSE)),
    Case("sphere, 1 % unrelated pairs", False, ON_SPHERE, change=_unrelated(0.01)),
    Case("sphere, 10 % unrelated pairs, rotated", False, ON_SPHERE, _turn, _unrelated(0.1)),
]  # fmt: skip
# Fits: name, whether assumptions hold, row of a paper, share of unrelated pairs, true scale.
FITS = [
    ("box_normal", True, "box_normal", 0.0, 200.0),
    ("box_normal, 1 % unrelated pairs", False, "box_normal", 0.01, 200.0),
    ("box_laplace", True, "box_laplace", 0.0, 20.0),
    ("box_cubic", True, "box_cubic", 0.0, 8000.0),
    ("box_laplace_normal", False, "box_laplace_normal", 0.0, None),
    ("aniso_linspace", True, "aniso_linspace", 0.0, None),
]


def calibrate_case(case: Case, seed: int) -> dict[str, Any]:
    """Calibrate the codes of a synthetic world."""
    world = iso.World(*case.world, iso.Identity(), seed=seed)
    z, z_pos = world.sample_latents(PAIRS, Generator().manual_seed(seed))
    z, z_pos = case.change(z, z_pos, Generator().manual_seed(seed + 1))
    return _scores(z, case.codes(z), case.codes(z_pos), case.p, "sphere" in case.name)


def calibrate_fit(row: Row, unrelated: float, max_steps: int, seed: int) -> dict[str, Any]:
    """Train without calibration, and calibrate the codes of new pairs."""
    world = make_world(row, seed)

    class Pairs(WorldPairs):
        def sample(self, batch_size: int, generator: Generator) -> Any:
            x, x_pos = super().sample(batch_size, generator)
            return _unrelated(unrelated)(x, x_pos, generator)

    recipe = iso.Recipe(max_steps=max_steps)
    model = iso.ContrastiveICA(10, **row.model, random_state=seed, recipe=recipe)
    with mock.patch.object(estimator, "calibrate", return_value=""):
        model.fit(Pairs(world))
    generator = Generator().manual_seed(seed + 1_000_003)
    z, z_pos = world.sample_latents(PAIRS, generator)
    z, z_pos = _unrelated(unrelated)(z, z_pos, generator)
    h, h_pos = (torch.as_tensor(model.transform(world.observe(part))) for part in (z, z_pos))
    p = row.model["p"] or (1.0 if row.model["conditional"] == "laplace" else 2.0)
    return _scores(z, h, h_pos, p, row.model["space"] == "sphere")


def _scores(z: Tensor, h: Tensor, h_pos: Tensor, p: float, sphere: bool) -> dict[str, Any]:
    n = h.shape[1]
    layer, regardless = (
        PrincipalAxes(n) if sphere else Straightening(n, p) for _ in ("supported", "regardless")
    )
    applied = layer.fit_if_supported(h, h_pos)
    regardless.fit(h, h_pos)
    score = iso.mcc if sphere else iso.linear_r2
    scores = [score(z[:TEST_CODES], c[:TEST_CODES]) for c in (h, layer(h), regardless(h))]
    result: dict[str, Any] = {"score": "MCC" if sphere else "R²"}
    result |= zip(("before", "after", "regardless"), scores, strict=True)
    result["applied"] = applied
    if not sphere:
        similarity = iso.Lp(p, learn_weights=True)
        set_scale(iso.InfoNCE(similarity), layer(h), layer(h_pos), "box")
        result["scale"] = similarity.weights.item()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--max-steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="leave the fits out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}

    def store(name: str, holds: bool, result: dict[str, Any]) -> None:
        results[name] = {"holds": holds} | result
        print(f"{name}: {result}", flush=True)
        OUT.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        OUT.with_suffix(".md").write_text(_table(results, options))

    for case in CASES:
        store(case.name, case.holds, calibrate_case(case, options.seed))
    for name, holds, row_name, unrelated, scale in [] if options.quick else FITS:
        row = next(row for row in ROWS if row.name == row_name)
        result = calibrate_fit(row, unrelated, options.max_steps, options.seed)
        store(f"fit of {name}", holds, result | {"true_scale": scale})


def _table(results: dict[str, Any], options: argparse.Namespace) -> str:
    changes = [result["after"] - result["before"] for result in results.values()]
    flags = " --quick" if options.quick else f" --max-steps {options.max_steps}"
    lines = [
        "# Calibration: scores before and after",
        "",
        f"Written by `python benchmarks/calibration.py{flags} --seed {options.seed}`, with {PAIRS} "
        'pairs. "Regardless" is the same estimate without the held-out criterion.',
        "",
        f"{len(results)} worlds, {sum(not r['holds'] for r in results.values())} with a violated "
        f"assumption. Largest loss of a score: {max(0.0, -min(changes)):.4f} "
        f"(bound: {MAX_LOSS}); largest gain: {max(changes):.4f}.",
        "",
        "| world | assumptions | score | before | after | regardless | applied | scale / truth |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        truth = result.get("true_scale")
        ratio = f"{result['scale'] / truth:.3f}" if truth else ""
        lines.append(
            f"| {name} | {'hold' if result['holds'] else 'violated'} | {result['score']} "
            f"| {result['before']:.4f} | {result['after']:.4f} | {result['regardless']:.4f} "
            f"| {result['applied']} | {ratio} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
