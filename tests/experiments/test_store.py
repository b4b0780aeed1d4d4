"""Records are stored atomically, and only those of the current cells are returned."""

import json
import math

import pytest

from isolatent.checks import IsolatentWarning


def test_nan_and_infinity_become_null(run, store):
    store.write(run, {"status": "done", "scores": {"a": [math.nan, math.inf, 1.0]}})
    text = (store.directory / run.file).read_text()
    assert json.loads(text, parse_constant=lambda name: 1 / 0)["scores"] == {"a": [None, None, 1.0]}
    assert store.finished(run)


def test_a_failed_run_is_not_finished_and_leaves_no_partial_file(run, store):
    assert not store.finished(run)
    store.write(run, {"status": "failed"})
    assert not store.finished(run)
    assert [p.name for p in store.directory.rglob("*") if p.is_file()] == [run.file.split("/")[-1]]


def test_cells_stored_earlier_are_kept(experiment, store):
    store.write_experiment(experiment)
    store.write_experiment(experiment.model_copy(update={"cells": experiment.cells[1:]}))
    (kept,) = store.experiments()
    assert [cell["name"] for cell in kept["cells"]] == ["first", "second"]


def test_files_that_are_not_records_are_left_out(run, experiment, store):
    store.write_experiment(experiment)
    store.write(run, {"cell": "first", "seed": 0, "started": "1", "status": "done"})
    (store.directory / run.file).with_name("other.json").write_text('{"cell": "first"}')
    (store.directory / run.file).with_name("broken.json").write_text('{"cell": "fir')
    with pytest.warns(IsolatentWarning, match="is left out") as caught:
        assert [record["seed"] for record in store.records("own")] == [0]
    messages = sorted(str(warning.message) for warning in caught)
    assert [message.split(" is damaged: ")[0][-11:] for message in messages] == [
        "broken.json",
        "/other.json",
    ]


def test_records_of_a_changed_cell_are_ignored(run, experiment, store):
    record = {"cell": "first", "seed": 0, "started": "1", "spec": run.cell.to_dict()}
    store.write(run, record)
    annotated = experiment.cells[0].model_copy(update={"note": "a note"})
    changed = experiment.cells[0].model_copy(update={"recipe": {"max_steps": 5, "batch_size": 16}})
    for cell, count in ((annotated, 1), (changed, 0)):
        store.write_experiment(experiment.model_copy(update={"cells": [cell]}))
        assert len(store.records("own")) == count
