"""Find the daily cycle in a year of hourly weather, with nothing declared.

The data are a typical meteorological year of Greensboro, North Carolina, that comes with the
package pvlib: months of different years, so each month is a session. The estimator is told the
number of codes and the lag. It is not told the hour, nor that there is a cycle.

    pip install 'isolatent[examples]'
    python examples/weather_year.py [--seeds 5] [--report]

Prints the period with its 95 % interval for each seed. Writes results/examples/weather_year.json
after every fit, docs/weather_year.png, and the table of docs/weather_year.md; with --report the
table alone, from the stored figures. A fit takes about a minute of one core.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import re
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.encoders import Dynamics, find_dynamic_axes
from isolatent.files import write_json, write_text

ROOT = Path(__file__).parents[1]
OUT, PICTURE = ROOT / "results/examples/weather_year.json", ROOT / "docs/weather_year.png"
PAGE = ROOT / "docs/weather_year.md"
TABLE = re.compile(r"(?<=<!-- table -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)
STATION = "723170TYA.CSV"
COMPUTED = ("ETR", "ETRN")  # sunlight above the atmosphere: a function of date and hour
MISSING = -9900.0
WINDOW = 6  # hours per observation: a single hour does not tell morning from evening
SUNLIGHT = ("GHI", "DNI", "DHI", "GH illum", "DN illum", "DH illum", "Zenith lum")
VARIANCE = 0.95  # share that the principal components keep
CODES = 6
CONTROL_SEEDS = 2  # of the variants
DAY = 24.0
Array = NDArray[Any]


class Variant(NamedTuple):
    """A way to look at the year.

    Attributes:
        lag: Hours from anchor to positive.
        without: Measurements that are left out.
        options: Options of the estimator.
    """

    lag: int = WINDOW // 2
    without: tuple[str, ...] = ()
    options: Mapping[str, Any] = {}


VARIANTS = {
    "default": Variant(),
    "no shared hours": Variant(lag=WINDOW),
    "without sunlight": Variant(without=SUNLIGHT),
    "without dynamics": Variant(options={"relax": ()}),
}


class Weather(NamedTuple):
    """Hourly measurements.

    Attributes:
        columns: Names of the measurements.
        values: Measurements (T, m).
        month: Month of each row (T,), which is its session.
        hour: Hour of the day of each row (T,). The estimator does not get it.
    """

    columns: list[str]
    values: Array
    month: Array
    hour: Array


def find_station() -> Path:
    """Return the path of the weather file in the package pvlib, which is not imported."""
    spec = importlib.util.find_spec("pvlib")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "This example reads a weather file of the package pvlib, which is not installed: "
            "pip install 'isolatent[examples]', or pip install --no-deps pvlib"
        )
    return Path(spec.origin).parent / "data" / STATION


def read_weather(path: Path, without: tuple[str, ...] = ()) -> Weather:
    """Read a TMY3 file: the columns that were measured in every hour, and vary.

    Args:
        path: The file: a line about the station, a header, and one line per hour.
        without: Names of measurements to leave out, without their units.
    """
    with path.open(encoding="utf-8") as file:
        next(file)
        header, *rows = csv.reader(file)
    names, kept = [name.partition(" (")[0] for name in header], []
    for column, name in enumerate(names[2:], start=2):
        about = name.endswith(("source", "uncert", "quantity")) or name == "PresWth"
        if not about and name not in (*COMPUTED, *without):
            kept.append(column)
    values = np.array([[float(row[column]) for column in kept] for row in rows])
    complete = (values != MISSING).all(0) & (np.ptp(values, axis=0) > 0)
    month = np.array([int(row[0][:2]) for row in rows])
    hour = np.array([int(row[1][:2]) % 24 for row in rows])
    columns = [names[column] for column, keep in zip(kept, complete, strict=True) if keep]
    return Weather(columns, values[:, complete], month, hour)


def stack_hours(weather: Weather, window: int) -> tuple[Array, Array, Array]:
    """Return observations of several hours, their sessions, and the hour of the last row of each.

    Columns are standardised, and principal components keep most of the variance.
    """
    x = (weather.values - weather.values.mean(0)) / weather.values.std(0)
    last = np.arange(window - 1, len(x))
    last = last[weather.month[last] == weather.month[last - window + 1]]
    stacked = np.concatenate([x[last - k] for k in range(window)], 1)
    components = PCA(VARIANCE, svd_solver="full").fit_transform(stacked)
    return components.astype(np.float32), weather.month[last], weather.hour[last]


class DailyBlock(NamedTuple):
    """The two codes that oscillate with the period nearest to a day.

    Attributes:
        codes: The codes (T, 2), of unit variance.
        period: Rows per oscillation; infinite if no codes oscillate.
        interval: Its 95 % interval.
    """

    codes: Array
    period: float
    interval: tuple[float, float]


def daily_block(dynamics: Dynamics, h: Array) -> DailyBlock:
    """Return the block of codes with the period nearest to a day.

    The eigenvectors of the dynamics span it, in whichever axes the codes are.
    """
    nearest = int(np.argmin(np.abs(1 / np.array(dynamics.periods) - 1 / DAY)))
    values, vectors = np.linalg.eig(np.array(dynamics.matrix).T)
    angle, modulus = dynamics.angles[nearest], dynamics.moduli[nearest]
    mode = vectors[:, np.abs(values - modulus * np.exp(1j * angle)).argmin()]
    y = (h - h.mean(0)) @ mode
    codes = np.stack([y.real, y.imag], 1)
    scale = codes.std(0).clip(1e-12)
    return DailyBlock(codes / scale, dynamics.periods[nearest], dynamics.periods_intervals[nearest])


def hour_r2(codes: Array, hour: Array) -> float:
    """Return the share of sine and cosine of the hour that is linear in codes."""
    angle = 2 * np.pi * hour / DAY
    return iso.linear_r2(np.stack([np.sin(angle), np.cos(angle)], 1), codes)


def one_lag_period(h: Array, month: Array, lag: int) -> float:
    """Return the period nearest to a day by a regression of codes on those one lag before."""
    within = month[lag:] == month[:-lag]
    dynamics = find_dynamic_axes(h[:-lag][within], h_pos=h[lag:][within]).dynamics
    periods = lag * np.array(() if dynamics is None else dynamics.periods)
    return float(periods[np.abs(1 / periods - 1 / DAY).argmin()])


def fit_seed(
    x: Array, month: Array, hour: Array, lag: int, seed: int, **options: Any
) -> tuple[dict[str, Any], Array]:
    """Fit one model; return its figures and the codes of its daily block."""
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IsolatentWarning)
        model = iso.ContrastiveICA(CODES, lag=(lag, lag), random_state=seed, **options)
        h = model.fit(x, groups=month).transform(x)
    axes, dynamics = model.axes_, model.dynamics_
    if axes is None or dynamics is None:
        raise RuntimeError("the codes are linearly dependent, so they have no axes and no dynamics")
    block = daily_block(dynamics, h)
    low, high = block.interval
    record = {
        "seed": seed,
        "relaxed": list(model.relaxed_),
        "gain": [round(float(g), 4) for g in model.gains_.get("dynamics", ())],
        "period": round(block.period, 4),
        "interval": [round(low, 4), round(high, 4)],
        "holds_24": low <= DAY <= high,
        "one_lag_period": round(one_lag_period(h, month, lag), 4),
        "hour_r2": round(hour_r2(h, hour), 4),
        "block_hour_r2": round(hour_r2(block.codes, hour), 4),
        "blocks": [list(b) for b in axes.blocks],
        "periods": [round(p, 2) if np.isfinite(p) else None for p in dynamics.periods],
        "axes": axes.reason,
        "warnings": [str(w.message) for w in caught if issubclass(w.category, IsolatentWarning)],
        "seconds": round(time.perf_counter() - started, 1),
    }
    return record, block.codes


def draw(codes: Array, hour: Array, path: Path) -> None:
    """Draw the daily block over a week, and against the hour."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
    start = int(np.flatnonzero(hour == 0)[1])  # midnight
    week = slice(start, start + 7 * 24)
    colours = ("tab:blue", "tab:orange")
    for k, colour in enumerate(colours):
        left.plot(np.arange(7 * 24) / 24, codes[week, k], color=colour, lw=1, label=f"code {k + 1}")
        bands = [np.quantile(codes[hour == at, k], (0.1, 0.5, 0.9)) for at in range(24)]
        low, middle, high = np.array(bands).T
        right.fill_between(range(24), low, high, color=colour, alpha=0.25, lw=0)
        right.plot(range(24), middle, color=colour)
    left.set(xlabel="days, from midnight", ylabel="code", title="one week", xticks=range(8))
    right.set(
        xlabel="hour of the day", title="all days: median, 10 to 90 %", xticks=range(0, 24, 4)
    )
    left.legend(loc="upper right", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, metadata={"Software": None})
    pyplot.close(figure)


def summarise(name: str, seeds: int, **record: Any) -> dict[str, Any]:
    """Return the figures of one variant, with those that all seeds have in common."""
    fits = record["fits"]
    return {
        "name": name,
        **record,
        "found": sum(fit["holds_24"] and abs(fit["period"] / DAY - 1) <= 0.05 for fit in fits),
        "seeds": seeds,
    }


def table(stored: Mapping[str, Any]) -> str:
    """Return how often the day was found, and a table of all fits, in Markdown."""
    lines = [
        f"- {variant['name']}: found in {variant['found']} of {variant['seeds']} seeds"
        for variant in stored["variants"]
    ]
    lines += [
        "",
        "| variant | seed | dynamics gain (nats) | period (h) | 95 % interval | by one lag (h) "
        "| hour (R², %) |",
        "|---|---|---|---|---|---|---|",
    ]
    for variant in stored["variants"]:
        for fit in variant["fits"]:
            used = "dynamics" in fit["relaxed"] and fit["gain"]
            gain = f"{fit['gain'][0]:.2f}" if used else "not used"
            low, high = (_number(end) for end in fit["interval"])
            cells = [
                *(variant["name"], str(fit["seed"]), gain, _number(fit["period"])),
                f"{low} to {high}" if fit["period"] else "none",
                _number(fit["one_lag_period"]),
                f"{100 * fit['hour_r2']:.0f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "∞" if value is None else f"{value:.2f}"


def main() -> None:
    """Run the example, and write the table of its page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--report", action="store_true", help="write the table alone")
    arguments = parser.parse_args()
    if not arguments.report:
        run(arguments.seeds)
    page = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, TABLE.sub(table(json.loads(OUT.read_text())), page))


def run(seeds: int) -> None:
    """Fit all variants, store their figures, and draw the first seed of the default."""
    torch.set_num_threads(1)
    path = find_station()
    results: list[dict[str, Any]] = []
    for name, (lag, without, options) in VARIANTS.items():
        weather = read_weather(path, without)
        x, month, hour = stack_hours(weather, WINDOW)
        about = {
            "lag": lag,
            "columns": weather.columns,
            "components": x.shape[1],
            "rows": len(x),
            "principal_hour_r2": round(hour_r2(x[:, :CODES], hour), 4),
        }
        print(f"{name}: {len(weather.columns)} columns, {x.shape[1]} components, lag {lag} hours")
        fits: list[dict[str, Any]] = []
        count = seeds if name == "default" else min(seeds, CONTROL_SEEDS)
        for seed in range(count):
            record, codes = fit_seed(x, month, hour, lag, seed, **options)
            fits.append(record)
            low, high = record["interval"]
            print(
                f"  seed {seed}: period {record['period']:.2f} h ({low:.2f} to {high:.2f}), "
                f"{100 * record['hour_r2']:.0f} % of the hour, {record['seconds']:.0f} s",
                flush=True,
            )
            variants = [*results, summarise(name, count, **about, fits=fits)]
            write_json(
                OUT, {"station": STATION, "codes": CODES, "window": WINDOW, "variants": variants}
            )
            if name == "default" and seed == 0:
                draw(codes, hour, PICTURE)
        results = variants


if __name__ == "__main__":
    main()
