import json
import math


def test_what_json_has_no_word_for_becomes_null(run, store):
    store.write(run, {"status": "done", "scores": {"a": [math.nan, math.inf, 1.0]}})
    text = (store.directory / run.file).read_text()
    assert json.loads(text, parse_constant=lambda name: 1 / 0)["scores"] == {"a": [None, None, 1.0]}
    assert store.has(run)


def test_a_failed_run_is_not_finished_and_nothing_partial_stays(run, store):
    assert not store.has(run)
    store.write(run, {"status": "failed"})
    assert not store.has(run)
    assert [p.name for p in store.directory.rglob("*") if p.is_file()] == [run.file.split("/")[-1]]


def test_cells_that_were_asked_for_earlier_stay(experiment, store):
    store.write_experiment(experiment)
    store.write_experiment(experiment.model_copy(update={"cells": experiment.cells[1:]}))
    (kept,) = store.experiments()
    assert [cell["name"] for cell in kept["cells"]] == ["first", "second"]


def test_what_is_no_record_is_passed_over(run, experiment, store):
    store.write_experiment(experiment)
    store.write(run, {"cell": "first", "seed": 0, "started": "1", "status": "done"})
    (store.directory / run.file).with_name("other.json").write_text('{"cell": "first"}')
    (store.directory / run.file).with_name("broken.json").write_text('{"cell": "fir')
    assert [record["seed"] for record in store.records("own")] == [0]


def test_the_record_of_a_cell_that_has_changed_is_not_its_result(run, experiment, store):
    record = {"cell": "first", "seed": 0, "started": "1", "spec": run.cell.to_dict()}
    store.write(run, record)
    mended = experiment.cells[0].model_copy(update={"note": "a word"})
    changed = experiment.cells[0].model_copy(update={"recipe": {"max_steps": 5, "batch_size": 16}})
    for cell, shown in ((mended, 1), (changed, 0)):
        store.write_experiment(experiment.model_copy(update={"cells": [cell]}))
        assert len(store.records("own")) == shown
