"""Derive the guarantee of every stored run anew, and copy titles and notes from the specs.

A guarantee follows from the world and the model of a cell, not from training, so a correction of
the theory, or of a note, changes stored results without a run:

    python docs/derive_guarantees.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isolatent.experiments import Store, find_experiment
from isolatent.experiments.experiment import UNHASHED, AnyCell
from isolatent.files import write_json

RESULTS = Path(__file__).parents[1] / "results"


def update(record: dict[str, Any], cell: AnyCell) -> dict[str, Any]:
    """Return a record with the card, the note and the published scores of its cell."""
    fields = {key: value for key, value in cell.to_dict().items() if key in UNHASHED}
    return record | {
        "spec": record["spec"] | fields,
        "guarantee": cell.guarantee().to_dict(),
    }


def main() -> None:
    """Rewrite the stored results whose card or description has changed."""
    total = changed = claims = 0
    for directory in sorted({path.parents[1] for path in RESULTS.glob("*/*/experiments/*.json")}):
        store = Store(directory)
        for stored in store.experiments():
            experiment = find_experiment(stored["name"])
            store.write_experiment(experiment)
            cells = {cell.name: cell for cell in experiment.cells}
            for path in sorted(directory.glob("runs/*/*.json")):
                record = json.loads(path.read_text())
                updated = update(record, cells[record["cell"]])
                total += 1
                if updated != record:
                    write_json(path, updated)
                    changed += 1
                old, new = (r["guarantee"]["equivalence"] for r in (record, updated))
                claims += old != new
    print(f"{total} runs, {changed} rewritten, {claims} with another claim")


if __name__ == "__main__":
    main()
