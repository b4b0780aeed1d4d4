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
