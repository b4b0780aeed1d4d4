"""R² with few pairs, without and with further observations that are in no pair.

python benchmarks/unpaired.py [--pairs 1000] [--unpaired 20000] [--seeds 2]
"""

import argparse
import time
from typing import Any
from unittest import mock

import isolatent as iso
from isolatent.training.capacity import Capacity, Start

WORLDS = {
    "sphere": lambda seed: iso.World(
        iso.Sphere(10),
        iso.Uniform(),
        iso.VonMisesFisher(kappa=10.0),
        iso.InvertibleMLP(layers=3),
        seed=seed,
    ),
    "box": lambda seed: iso.World(
        iso.Box(5), iso.Uniform(), iso.Laplace(0.1), iso.InvertibleMLP(layers=3), seed=seed
    ),
}
DECLARED = {"sphere": {}, "box": {"conditional": "laplace"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", nargs="*", choices=WORLDS, default=[*WORLDS])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--unpaired", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", action="store_true", help="fit with unpaired observations only")
    parser.add_argument("--capacity", nargs=3, type=float, help="width, dropout, decoder's weight")
    options = parser.parse_args()
    if options.capacity:
        width, dropout, weight = options.capacity
        start = Start(Capacity(int(width), dropout, weight))
        mock.patch.object(iso.ContrastiveICA, "_choose_start", return_value=start).start()
    print("world   seed  unpaired      R²     MCC  seconds  capacity")
    for name in options.worlds:
        for seed in range(options.seeds):
            world = WORLDS[name](seed)
            z, z_pos = world.sample_latents(options.pairs)
            pairs = world.observe(z), world.observe(z_pos)
            unpaired = world.observe(world.sample_latents(options.unpaired)[0])
            z_test = world.sample_latents(10_000)[0]
            x_test = world.observe(z_test)
            for given in (unpaired,) if options.only else (None, unpaired):
                declared: dict[str, Any] = DECLARED[name]
                model = iso.ContrastiveICA(z.shape[1], space=name, random_state=seed, **declared)
                began = time.perf_counter()
                codes = model.fit(*pairs, unpaired=given).transform(x_test)
                seconds = time.perf_counter() - began
                r2, mcc = iso.linear_r2(z_test, codes), iso.mcc(z_test, codes)
                count = 0 if given is None else len(given)
                print(
                    f"{name:7} {seed:4} {count:9} {r2:7.3f} {mcc:7.3f} {seconds:8.1f}  "
                    f"{model.capacity_}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
