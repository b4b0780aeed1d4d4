"""How often a fit ends in a bad minimum: many seeds of the default on each of many recordings.

Each of 20 recordings has its own process and mixing: two to four relaxing factors with Gaussian or
Laplace innovations, behind 10 to 100 channels at 20 dB, with lags 1 to 10 and 3 000 to 20 000 rows.
``ContrastiveICA(n, lag=...)`` is fitted from ten seeds, which draw the held-out pairs, the weights
and the batches. A fit is bad if its R² on fresh rows is more than 0.02 below that of the best seed
of the same recording.

Run: python benchmarks/restarts.py [--seeds 10] [--jobs 2] [--recordings 0 7 ...] [--full]
         [--report]
Writes results/benchmarks/restarts.{json,md} after every fit. Fits that are there are not run again,
unless the code has changed. With --full also n_init=1.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

import isolatent as iso
from default import default_model
from fit_store import Fit, FitStore, Record, group_records, make_parser, mean_and_least
from isolatent.experiments.program import digest_code, program_digest
from isolatent.files import digest_json
from recordings import Recording, autoregression

OUT = Path(__file__).parents[1] / "results/benchmarks/restarts.json"
N_RECORDINGS, TEST_ROWS, TEST_SEED = 20, 20_000, 1_000_003
TIME_SCALES = (10.0, 100.0)  # rows
CHANNELS, LAGS, ROWS = (10, 20, 40, 60, 100), (1, 2, 3, 5, 7, 10), (3_000, 20_000)
DECIBELS = 20.0
MAX_DEFICIT = 0.02
AUTO, ONCE = 'n_init="auto"', "n_init=1"
APPROACHES = (AUTO, ONCE)


def make_recording(number: int) -> Recording:
    """Return a recording with a process, a number of channels, a lag and a length by its number."""
    rng = np.random.default_rng(number)
    n = 2 + number % 3
    # One time scale in each of n ranges, so that no two are nearly equal.
    low, high = map(math.log, TIME_SCALES)
    places = (np.arange(n) + rng.uniform(0.2, 0.8, n)) / n
    scales = np.exp(low + (high - low) * places)
    poles = tuple(float(pole) for pole in np.exp(-1 / scales))
    innovations = ("Gaussian", "Laplace")[int(rng.integers(2))]
    channels, lag = int(rng.choice(CHANNELS)), int(rng.choice(LAGS))
    rows = round(float(np.exp(rng.uniform(*np.log(ROWS)))), -2)
    return Recording(
        f"recording {number}, {n} factors, {innovations}, {channels} channels, lag {lag}, "
        f"{rows:.0f} rows",
        "",
        partial(autoregression, poles=poles, innovations=innovations),
        n,
        {},
        axes=True,
        reason="",
        rows=int(rows),
        lag=lag,
        poles=poles,
        decibels=DECIBELS,
        channels=channels,
    )


RECORDINGS = {
    recording.name: (number, recording)
    for number, recording in enumerate(map(make_recording, range(N_RECORDINGS)))
}


def measure(fit: Fit, max_steps: int | None) -> Record:
    """Run a fit, and return its record."""
    number, recording = RECORDINGS[fit.world]
    mixing = recording.mixing(number)
    x, _ = recording.sample(recording.rows, number, mixing)
    test_x, test_z = recording.sample(TEST_ROWS, TEST_SEED + number, mixing)
    recipe = {} if max_steps is None else {"recipe": iso.Recipe(max_steps=max_steps)}
    n_init = "auto" if fit.approach == AUTO else 1
    model = default_model(recording.n, recording.lag, fit.seed, n_init=n_init, **recipe)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.process_time()
        model.fit(x.numpy())
        seconds = time.process_time() - started
        codes = torch.as_tensor(model.transform(test_x.numpy()))
    return {
        "r2": iso.linear_r2(test_z, codes),
        "mcc": iso.mcc(test_z, codes),
        "seconds": round(seconds, 1),
        "steps": len(model.history_),
        "capacity": list(model.capacity_ or ()),
        "relaxed": list(model.relaxed_),
    }


def program(max_steps: int | None = None) -> str:
    """Return the identity of the program and of the recordings that records depend on."""
    code = digest_code(Path(__file__).with_name("recordings.py"))
    declared = digest_json([(name, recording.poles) for name, (_, recording) in RECORDINGS.items()])
    identity = f"{program_digest()}-{code}-{declared[:16]}"
    return identity + ("" if max_steps is None else f"-{max_steps}")


def main() -> None:
    parser = make_parser(__doc__, OUT, seeds=10)
    parser.add_argument("--recordings", nargs="+", type=int, default=[], help="their numbers")
    parser.add_argument("--full", action="store_true", help="also n_init=1")
    options = parser.parse_args()
    today = program(options.max_steps)
    store = FitStore(options.out, lambda _: today, lambda records: Report(records).text())
    if options.report:
        store.write()
        return
    fits = [
        Fit(name, approach, seed)
        for approach in (APPROACHES if options.full else (AUTO,))
        for seed in range(options.seeds)
        for name, (number, _) in RECORDINGS.items()
        if not options.recordings or number in options.recordings
    ]
    shown = ("error", "r2", "mcc", "seconds", "steps", "capacity", "relaxed")
    store.run(fits, measure, jobs=options.jobs, max_steps=options.max_steps, shown=shown)


class Report:
    """The share of bad fits, and a table of the recordings."""

    def __init__(self, results: dict[str, Record]) -> None:
        self.records, self.failures = group_records(results, RECORDINGS)

    def text(self) -> str:
        """Return the report in Markdown."""
        lines = [
            "# Bad minima by the first weights",
            "",
            "Written by `python benchmarks/restarts.py`, which describes the recordings. R² of "
            "fresh rows; means over seeds, in brackets the seeds' least. A fit is bad if it is "
            f"more than {MAX_DEFICIT:g} below the best seed of the same recording.",
            "",
            *self._shares(),
            "",
            "| recording | approach | seeds | R² | best | bad fits | seconds |",
            "|---|---|---|---|---|---|---|",
            *self._rows(),
        ]
        if self.failures:
            lines += ["", "## Failures", "", *self.failures]
        return "\n".join([*lines, ""])

    def _scores(self, approach: str) -> dict[str, list[float]]:
        return {
            name: [run["r2"] for run in world[approach].values()]
            for name, world in self.records.items()
            if approach in world
        }

    def _shares(self) -> Iterator[str]:
        both = {
            name: max(run["r2"] for runs in world.values() for run in runs.values())
            for name, world in self.records.items()
        }
        for approach in APPROACHES:
            scores = self._scores(approach)
            total = sum(map(len, scores.values()))
            if not total:
                continue
            bad = sum(count_bad(values, max(values)) for values in scores.values())
            line = f"- {approach}: {bad} of {total} fits ({bad / total:.1%}) are bad"
            # A way of starting that never finds the best minimum would otherwise have no bad fit.
            if len({a for world in self.records.values() for a in world}) > 1:
                bad = sum(count_bad(values, both[name]) for name, values in scores.items())
                line += f"; {bad} ({bad / total:.1%}) by the best seed of either approach"
            yield f"{line}."

    def _rows(self) -> Iterator[str]:
        for name in RECORDINGS:
            for approach in APPROACHES:
                runs = [*self.records.get(name, {}).get(approach, {}).values()]
                if not runs:
                    continue
                scores = [run["r2"] for run in runs]
                seconds = statistics.mean(run["seconds"] for run in runs)
                cells = (
                    name,
                    approach,
                    str(len(runs)),
                    mean_and_least(scores),
                    f"{max(scores):.4f}",
                    str(count_bad(scores, max(scores))),
                    f"{seconds:.0f}",
                )
                yield f"| {' | '.join(cells)} |"


def count_bad(scores: list[float], best: float) -> int:
    """Return how many scores are more than the allowed deficit below the best.

    Example:
        >>> count_bad([0.99, 0.98, 0.96], 0.99)
        1
    """
    return sum(score < best - MAX_DEFICIT for score in scores)


if __name__ == "__main__":
    main()
