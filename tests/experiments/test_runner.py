"""Runs are independent: they resume, fail alone, and respect the time budget."""

import json
from itertools import count

import pytest

from isolatent.experiments import Experiment, as_markdown, runner, tabulate
from isolatent.experiments.execution import execute
from isolatent.experiments.runner import Summary, reproduce, select_cells
from isolatent.experiments.store import Store


def outcomes(store, experiment):
    """Return the parts of the records that must not depend on interruptions."""
    keys = ("cell", "seed", "hash", "status", "scores", "curve", "scatter", "scale", "correlation")
    keys += ("measures", "guarantee")
    return [{key: r[key] for key in keys} for r in store.records(experiment.name)]


def test_a_resumed_reproduction_equals_an_uninterrupted_one(tiny, tmp_path):
    measure = {"measure": ["total_variation", "gradient_noise"]}
    cells = [{"name": name, **tiny, **measure} for name in ("first", "second")]
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": cells})
    through, broken = Store(tmp_path / "through"), Store(tmp_path / "broken")
    assert reproduce(experiment, through, [0], jobs=1) == Summary(done=2)

    def interrupt(event):
        if event.kind == "started" and len(broken.records("own")) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment, broken, [0], jobs=1, callback=interrupt)
    assert len(broken.records("own")) == 1
    events = []
    summary = reproduce(experiment, broken, [0], jobs=1, callback=events.append)
    assert summary == Summary(skipped=1, done=1)
    assert [event.kind for event in events] == ["skipped", "started", "finished"]
    assert outcomes(broken, experiment) == outcomes(through, experiment)
    assert as_markdown(tabulate(broken)) == as_markdown(tabulate(through))


def test_a_run_with_a_damaged_file_is_repeated(experiment, store):
    one = select_cells(experiment, "first")
    reproduce(one, store, [0], jobs=1)
    (path,) = store.directory.glob("runs/*/*.json")
    path.write_text(path.read_text()[:100])
    assert reproduce(one, store, [0], jobs=1) == Summary(done=1)


def test_a_failing_cell_is_recorded_and_the_others_finish(failing, store):
    assert reproduce(failing, store, [0], jobs=1) == Summary(done=2, failed=1)
    by_cell = {r["cell"]: r for r in store.records("own")}
    assert by_cell["broken"]["status"] == "failed"
    assert "X must have shape" in by_cell["broken"]["error"]
    assert by_cell["last"]["scores"]["unsupervised"]["linear_r2"] > 0
    # The failed run is repeated; the others are not.
    assert reproduce(failing, store, [0], jobs=1) == Summary(skipped=2, failed=1)


def test_an_infinite_loss_is_recorded(tiny, store):
    cell = {
        "name": "wild",
        **tiny,
        "recipe": {"max_steps": 40, "batch_size": 16, "learning_rate": 1e30},
    }
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": [cell]})
    record = execute(experiment.runs([0])[0])
    assert record["status"] == "diverged", record["error"]
    json.dumps(record)


@pytest.mark.parametrize("loss", ["infonce", "scl", "nwj", "nce"])
@pytest.mark.parametrize("rate", [1e2, 1e6, 1e30])
def test_codes_and_scales_that_overflow_before_the_loss_does_are_divergence(tiny, loss, rate):
    recipe = {"max_steps": 40, "batch_size": 16, "learning_rate": rate}
    cell = {"name": "wild", **tiny, "model": {**tiny["model"], "loss": loss}, "recipe": recipe}
    experiment = Experiment.model_validate({"name": "own", "title": "", "cells": [cell]})
    record = execute(experiment.runs([0])[0])
    assert record["status"] == "diverged", record["error"]


def test_runs_are_counted_before_they_are_made(experiment, store):
    with pytest.raises(ValueError, match="must make at most 100000 runs, got 8589934592"):
        reproduce(experiment, store, range(2**32))
    assert not store.directory.exists()


def test_the_budget_stops_new_runs(experiment, store, monkeypatch):
    assert reproduce(experiment, store, [0, 1], jobs=1, budget=0) == Summary(left=4)
    ticks = count(step=45)  # seconds between two readings of the clock
    monkeypatch.setattr(runner.time, "monotonic", lambda: float(next(ticks)))
    # Checked at 45 and 90 seconds: one run starts within the minute, none after.
    assert reproduce(experiment, store, [0, 1], jobs=1, budget=1) == Summary(done=1, left=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "slurm"}, "backend must be one of 'local', 'ray', got 'slurm'"),
        ({"jobs": 0}, "jobs must be an integer >= 1"),
        ({"budget": -1.0}, "budget must be a finite number >= 0"),
    ],
)
def test_invalid_options_are_rejected_before_anything_is_written(
    experiment, store, options, message
):
    with pytest.raises(ValueError, match=message):
        reproduce(experiment, store, [0], **options)
    assert not store.directory.exists()


def test_select_cells(experiment):
    assert [c.name for c in select_cells(experiment, "f*").cells] == ["first"]
    with pytest.raises(ValueError, match="cells are first, second"):
        select_cells(experiment, "third")


def test_stale_runs_are_kept_by_default_and_repeated_on_demand(experiment, store):
    assert reproduce(experiment, store, [0], jobs=1) == Summary(done=2)
    (first, second) = sorted(store.directory.glob("runs/*/*.json"))
    for path, program in ((first, "0123456789abcdef"), (second, None)):
        record = json.loads(path.read_text()) | {"program": program, "scores": {}}
        path.write_text(json.dumps(record))
    assert reproduce(experiment, store, [0], jobs=1) == Summary(skipped=2, stale=2)
    assert [row.ours for row in tabulate(store)] == [None] * 4
    one = select_cells(experiment, "first")
    assert reproduce(one, store, [0], jobs=1, stale=True) == Summary(done=1)
    assert reproduce(experiment, store, [0], jobs=1) == Summary(skipped=2, stale=1)
    assert len([*store.directory.glob("runs/*/*.json")]) == 2  # the record was replaced
