"""The example of a weather year runs on a small series, and its page has the stored figures."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import isolatent as iso

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("weather_year", ROOT / "examples/weather_year.py")
weather_year = importlib.util.module_from_spec(spec)
spec.loader.exec_module(weather_year)
sys.modules["weather_year"] = weather_year  # which the other example imports
spec = importlib.util.spec_from_file_location("weather_claims", ROOT / "examples/weather_claims.py")
weather_claims = importlib.util.module_from_spec(spec)
spec.loader.exec_module(weather_claims)
HEADER = "Date (MM/DD/YYYY),Time (HH:MM),ETR (W/m^2),GHI (W/m^2),GHI source,GHI uncert (%)"
MEASURED = ("Dry-bulb (C)", "RHum (%)", "Pressure (mbar)", "Hvis (m)", "Alb (unitless)")


@pytest.fixture
def station(tmp_path):
    """Two months of different years in the format of TMY3."""
    rng = np.random.default_rng(0)
    lines = ["1,TEST,XX,0,0,0,0", ",".join([HEADER, *MEASURED])]
    slow = np.cumsum(rng.normal(size=1440))
    for k in range(1440):
        month, day, hour = 1 + k // 720, 1 + k % 720 // 24, 1 + k % 24
        sun = max(0.0, np.cos(2 * np.pi * (hour - 12) / 24)) * 800
        warmth = 5 * np.cos(2 * np.pi * (hour - 15) / 24) + 0.1 * slow[k]
        values = [sun * rng.uniform(0.8, 1), "1", "9", warmth + rng.normal()]
        values += [rng.normal(), slow[k], -9900 if k == 7 else 10, 0.2]
        date = f"{month:02}/{day:02}/{1990 + month},{hour:02}:00"
        lines.append(",".join([date, str(sun), *map(str, values)]))
    path = tmp_path / "station.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_measurements_that_are_complete_and_vary_are_read(station):
    weather = weather_year.read_weather(station)
    assert weather.columns == ["GHI", "Dry-bulb", "RHum", "Pressure"]
    assert weather.values.shape == (1440, 4)
    assert weather.hour[:25].tolist() == [*range(1, 24), 0, 1]
    assert np.unique(weather.month).tolist() == [1, 2]
    without = weather_year.read_weather(station, without=("GHI",))
    assert without.columns == ["Dry-bulb", "RHum", "Pressure"]


def test_no_observation_crosses_the_border_of_a_session(station):
    weather = weather_year.read_weather(station)
    x, month, hour = weather_year.stack_hours(weather, window=6)
    assert len(x) == len(month) == len(hour) == 2 * (720 - 5)
    assert (hour[[0, 715]] == 6).all()


@pytest.mark.filterwarnings("ignore")
def test_the_cycle_of_a_small_series_is_found_and_drawn(station, tmp_path):
    weather = weather_year.read_weather(station)
    x, month, hour = weather_year.stack_hours(weather, window=6)
    options = {"relax": ["dynamics"], "recipe": iso.Recipe(max_steps=60, batch_size=128, warmup=10)}
    record, codes = weather_year.fit_seed(x, month, hour, 3, 0, **options)
    assert record["period"] == pytest.approx(24, rel=0.05)
    assert codes.shape == (len(x), 2)
    assert weather_year.hour_r2(codes, hour) == pytest.approx(record["block_hour_r2"], abs=1e-3)
    weather_year.draw(codes, hour, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000
    variant = weather_year.summarise("default", 1, fits=[record])
    assert variant["found"] == record["holds_24"]
    assert weather_year.table({"variants": [variant]}).count("\n") == 4


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install"):
        weather_year.find_station()


@pytest.fixture
def stored():
    return json.loads(weather_year.OUT.read_text())


def test_the_page_has_the_stored_figures(stored):
    page = weather_year.PAGE.read_text()
    assert weather_year.TABLE.search(page)[0] == weather_year.table(stored)
    default = stored["variants"][0]
    for pattern, number in (
        (r"(\d+) columns", len(default["columns"])),
        (r"(\d+) principal components with", default["components"]),
        (r"components hold (\d+) %", round(100 * default["principal_hour_r2"])),
    ):
        assert re.findall(pattern, page) == [str(number)]
    assert all(fit["warnings"] for fit in default["fits"])
    assert not any(fit["warnings"] for fit in stored["variants"][1]["fits"])


def test_the_default_finds_the_day_in_all_seeds(stored):
    default = stored["variants"][0]
    assert (default["name"], default["found"], default["seeds"]) == ("default", 5, 5)
    for fit in default["fits"]:
        daily = [code for code, period in enumerate(fit["periods"]) if period == 24]
        assert daily in fit["blocks"]


def test_the_picture_is_small():
    assert weather_year.PICTURE.stat().st_size < 150_000


def test_the_table_of_claims_is_that_of_the_stored_figures():
    page = (ROOT / "docs/weather_year.md").read_text()
    stored = json.loads((ROOT / "results/examples/weather_claims.json").read_text())
    assert weather_claims.table(stored) in page
    assert [*stored["models"]] == [*weather_claims.DECLARED]
