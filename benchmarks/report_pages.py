"""Size of a report page, and the time to write and to load it, by the number of points.

Loading is the time of a headless browser with the page, until all of it is drawn, less that with an
empty page; the median over repeats. Without Chromium, pages are only written.

Run: .venv/bin/python benchmarks/report_pages.py [--points 10 1000 100000] [--repeats 5]
Writes results/benchmarks/report_pages.json.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import isolatent as iso
from isolatent.files import write_json
from isolatent.report import page_of_fit, render_page

OUT = Path(__file__).parents[1] / "results/benchmarks/report_pages.json"
BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium")
COLUMNS, FACTORS = 8, 3


def load(path: Path, profile: Path) -> float:
    """Return the seconds that a browser takes for a page, all of which is in its window."""
    started = time.perf_counter()
    subprocess.run(
        [
            *(str(BROWSER), "--headless", "--no-sandbox", "--no-first-run"),
            *("--disable-dev-shm-usage", "--enable-unsafe-swiftshader"),
            *(f"--user-data-dir={profile}", "--window-size=1200,8000"),
            *("--virtual-time-budget=10000", "--dump-dom", path.as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return time.perf_counter() - started


def main() -> None:
    """Measure pages of a recording with each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, nargs="+", default=[10, 1000, 100_000])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    z = np.cumsum(rng.normal(size=(max(options.points), FACTORS)), axis=0) / 100
    x = np.tanh(z @ rng.normal(size=(FACTORS, COLUMNS)))
    recipe = iso.Recipe(max_steps=200, batch_size=128)
    model = iso.ContrastiveICA(FACTORS, recipe=recipe, random_state=0).fit(x[:2000])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty.html")
        empty.write_text("<!doctype html><title>empty</title>")
        profile = Path(folder, "profile")
        idle = (
            statistics.median(load(empty, profile) for _ in range(options.repeats))
            if BROWSER
            else 0
        )
        for count in options.points:
            path, times = Path(folder, f"{count}.html"), []
            for _ in range(options.repeats):
                started = time.perf_counter()
                html = render_page(page_of_fit(model, x[:count]))
                times.append(time.perf_counter() - started)
            path.write_text(html, encoding="utf-8")
            row = {"points": count, "bytes": len(html.encode()), "write": statistics.median(times)}
            if BROWSER:
                loads = [load(path, profile) for _ in range(options.repeats)]
                row["load"] = statistics.median(loads) - idle
            rows.append(row)
            print(row, flush=True)
    write_json(OUT, {"columns": COLUMNS, "factors": FACTORS, "rows": rows}, indent=2)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
