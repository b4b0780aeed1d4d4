"""What is claimed of a year of hourly weather, with spaces declared and with nothing declared?

The data are those of weather_year.py, hour by hour: 19 columns, no windows. Each model says what
held-out pairs support, and is diagnosed. The hour of the day, which no model gets, is read out of
the codes and of the raw columns by a linear map.

    pip install 'isolatent[examples]'
    python examples/weather_claims.py [--max-steps 600] [--report]

Writes results/examples/weather_claims.json after every model, and the table of
docs/weather_year.md; with --report the table alone. A fit and its diagnosis take minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.files import write_json, write_text
from weather_year import CODES, PAGE, ROOT, WINDOW, find_station, hour_r2, read_weather

OUT = ROOT / "results/examples/weather_claims.json"
TABLE = re.compile(r"(?<=<!-- claims -->\n\n).*?(?=\n\n<!-- end of claims -->)", re.DOTALL)
LAG = WINDOW // 2
DECLARED: dict[str, dict[str, Any]] = {
    "sphere": {"space": "sphere"},
    "box": {"space": "box"},
    "plane": {"space": "euclidean"},
    "nothing": {},
}


def claim_of(
    x: Any, month: Any, hour: Any, declared: dict[str, Any], max_steps: int
) -> dict[str, Any]:
    """Fit and diagnose one model; return what is claimed, and how much of the hour it holds."""
    recipe = iso.Recipe(max_steps=max_steps, batch_size=512)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = iso.ContrastiveICA(CODES, lag=(LAG, LAG), recipe=recipe, random_state=0, **declared)
        codes = model.fit(x, groups=month).transform(x)
    card = model.guarantee_
    return {
        "equivalence": card.equivalence,
        "withdrawn": card.withdrawn,
        "support": card.support,
        "relaxed": list(model.relaxed_),
        "hour_r2": round(hour_r2(codes, hour), 4),
        "warnings": [str(w.message) for w in caught if issubclass(w.category, IsolatentWarning)],
        "diagnosis": model.diagnose(x, groups=month).to_dict(),
    }


def table(stored: dict[str, Any]) -> str:
    """Return what is claimed by each model, in Markdown."""
    lines = [
        f"The raw columns hold {100 * stored['raw_hour_r2']:.0f} % of sine and cosine of the hour.",
        "",
        "| declared | card after the fit | diagnosis | contradicted | hour (R², %) |",
        "|---|---|---|---|---|",
    ]
    for name, record in stored["models"].items():
        card = record["equivalence"] or f"not supported (would be: {record['withdrawn']})"
        found = record["diagnosis"]
        holds = {True: "holds", False: "does not hold", None: "cannot tell"}[found["holds"]]
        broken = ", ".join(found["broken"]) or "none"
        lines.append(f"| {name} | {card} | {holds} | {broken} | {100 * record['hour_r2']:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Run the example, and write the table of its page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--max-steps", type=int, default=600)
    parser.add_argument("--report", action="store_true", help="write the table alone")
    arguments = parser.parse_args()
    if not arguments.report:
        run(arguments.max_steps)
    page = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, TABLE.sub(lambda match: table(json.loads(OUT.read_text())), page))


def run(max_steps: int, path: Path | None = None) -> None:
    """Fit and diagnose all models, and store what they claim."""
    torch.set_num_threads(1)
    weather = read_weather(find_station() if path is None else path)
    x = ((weather.values - weather.values.mean(0)) / weather.values.std(0)).astype(np.float32)
    stored: dict[str, Any] = {
        "columns": weather.columns,
        "codes": CODES,
        "lag": LAG,
        "max_steps": max_steps,
        "raw_hour_r2": round(hour_r2(x, weather.hour), 4),
        "models": {},
    }
    for name, declared in DECLARED.items():
        record = claim_of(x, weather.month, weather.hour, declared, max_steps)
        stored["models"][name] = record
        write_json(OUT, stored, indent=1)
        print(f"{name}: {record['diagnosis']['verdict']}", flush=True)


if __name__ == "__main__":
    main()
