"""R² of recordings with different sensors, with and without common moments.

python benchmarks/separate_recordings.py
"""

import warnings

import numpy as np

import isolatent as iso
from isolatent.checks import IsolatentWarning

ROWS, MODULI, SENSORS = 4000, (0.97, 0.9, 0.7), (6, 4, 8)


def main() -> None:
    rng = np.random.default_rng(0)
    z = np.zeros((ROWS, len(MODULI)))
    for t in range(1, ROWS):
        z[t] = np.array(MODULI) * z[t - 1] + rng.laplace(size=len(MODULI))
    z /= z.std(0)
    recordings = []
    for seed, m in enumerate(SENSORS, start=1):
        weights = np.random.default_rng(seed)
        linear, mixing = weights.normal(size=(len(MODULI), m)), weights.normal(size=(m, m))
        recordings.append(np.tanh(z @ linear / 2) @ mixing / np.sqrt(m) + 0.3 * z @ linear)
    times = [0.1 * np.arange(ROWS)] * len(SENSORS)
    every = np.concatenate([z] * len(SENSORS))
    for common in ("times", None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IsolatentWarning)
            model = iso.ContrastiveICA(len(MODULI), random_state=0)
            model.fit(recordings, times=times, common=common)
        codes = [model.transform(x, recording=k) for k, x in enumerate(recordings)]
        stacked = np.concatenate(codes)
        single = ", ".join(f"{iso.linear_r2(z, h):.3f}" for h in codes)
        print(f"| {common} | {single} | {iso.linear_r2(every, stacked):.3f} |", flush=True)


if __name__ == "__main__":
    main()
