"""The display shows the cells of the experiment and their results, errors verbatim."""

import io

import pytest
from rich.console import Console

from isolatent.experiments import Event, Experiment, ReproductionDisplay, reproduce


@pytest.fixture
def shown(experiment):
    """Return a function that passes events to a display and returns its output."""

    def shown(events, *, experiment=experiment, seeds=1, **options):
        text = io.StringIO()
        options = {"width": 100, "height": 40} | options
        console = Console(file=text, **options)
        with ReproductionDisplay(experiment, seeds, console=console) as display:
            for event in events:
                display(event)
        return text.getvalue()

    return shown


def record_of(run, score=0.9, **about):
    scores = {"unsupervised": {"linear_r2": score}, "identity": {"linear_r2": 0.25}}
    record = {"status": "done", "error": None, "seconds": {"total": 1.0}, "scores": scores}
    record |= {"cell": run.cell.name, "seed": run.seed, "hash": run.hash}
    return record | {"spec": run.cell.to_dict(), **about}


def events(experiment):
    for run in experiment.runs([0]):
        yield Event("started", run)
        yield Event("finished", run, record_of(run))


def rows(text):
    """Return the columns of each line of the last table, by cell."""
    lines = [line.split("│") for line in text.splitlines() if "│" in line]
    return {line[1].strip(): [part.strip() for part in line[2:-1]] for line in lines}


def test_plain_lines_without_a_terminal(experiment, shown):
    first, second = shown(events(experiment)).splitlines()
    assert first == "[1/2] first seed 0: done linear_r2 90.00 %, 1 s of wall time"
    assert second.startswith("[2/2] second")


def test_the_table_is_updated_on_a_terminal(experiment, shown):
    first, _ = experiment.runs([0])
    on = {"force_terminal": True}
    begun = [Event("started", first)]
    text = shown(begun, **on)
    assert rows(text)["first"] == ["linear_r2", "", "0/1", "", "1 running"]
    assert "0 of 2 runs" in text
    text = shown([*begun, Event("finished", first, record_of(first))], **on)
    assert rows(text)["first"] == ["linear_r2", "90.00", "1/1", "", ""]
    assert rows(text)["second"] == ["linear_r2", "", "0/1", "", ""]
    text = shown(events(experiment), **on)
    assert "2 of 2 runs" in text
    assert rows(text)["second"][1] == "90.00"


def test_an_error_is_shown_verbatim(experiment, shown):
    """Rich would interpret brackets as markup: it would omit some and fail on others."""
    (run, _) = experiment.runs([0])
    error = "ValueError: x [/tmp/a] y [batch] [bold]z :smile: \\[a]"
    failed = record_of(run, status="failed", error=error, scores={})
    events = [Event("started", run), Event("finished", run, failed)]
    assert shown(events, width=30) == f"[1/2] first seed 0: failed {error}, 1 s of wall time\n"
    assert rows(shown(events, force_terminal=True))["first"][-1] == "1 failed"


@pytest.mark.parametrize("approaches", [["identity", "unsupervised"], ["unsupervised", "identity"]])
def test_the_unsupervised_score_is_shown_in_any_order_of_approaches(tiny, shown, approaches):
    paper = {"unsupervised": 99.0, "identity": 60.0}
    cell = {"name": "first", **tiny, "approaches": approaches, "published": paper}
    own = Experiment.model_validate({"name": "own", "title": "", "cells": [cell]})
    assert "linear_r2 90.00 % (paper 99.00)" in shown(events(own), experiment=own)
    cell |= {"approaches": ["identity"], "published": {"identity": 60.0}}
    own = Experiment.model_validate({"name": "own", "title": "", "cells": [cell]})
    assert "linear_r2 25.00 % (paper 60.00)" in shown(events(own), experiment=own)


def stand_in(runs, *about):
    for run in runs:
        yield run, record_of(run, 0.5, started="2")


def test_stored_results_are_shown_for_unchanged_cells_and_requested_seeds_only(
    tiny, store, monkeypatch, shown
):
    """The store holds an unchanged, a changed and a failed cell, and a seed not requested."""
    monkeypatch.setattr("isolatent.experiments.runner.map_runs", stand_in)
    before = [{"name": name, **tiny} for name in ("same", "changed", "broken")]
    before = Experiment.model_validate({"name": "own", "title": "", "cells": before})
    store.write_experiment(before)
    for run in before.runs([0, 7]):
        about = {"started": "1", "status": "failed" if run.cell.name == "broken" else "done"}
        store.write(run, record_of(run, {"same": 0.9, "changed": 0.8}.get(run.cell.name), **about))
    same, changed, broken = before.cells
    changed = changed.model_copy(update={"recipe": {"max_steps": 5, "batch_size": 16}})
    after = before.model_copy(update={"cells": [same, changed, broken]})
    seen = []
    reproduce(after, store, [0], callback=seen.append)
    begun = [event for event in seen if event.kind != "finished"]
    on = {"force_terminal": True, "experiment": after}
    assert {name: row[1:] for name, row in rows(shown(begun, **on)).items() if name != "cell"} == {
        "same": ["90.00", "1/1", "", ""],
        "changed": ["", "0/1", "", "1 running"],
        "broken": ["", "0/1", "", "1 running"],
    }
    table = rows(shown(seen, **on))
    assert [table[name][1] for name in ("same", "changed", "broken")] == ["90.00", "50.00", "50.00"]
    # Changed back: the first result is still stored.
    seen = []
    reproduce(before, store, [0], callback=seen.append)
    assert rows(shown(seen, force_terminal=True, experiment=before))["changed"][1] == "80.00"


def test_a_quiet_display_writes_nothing(experiment):
    text = io.StringIO()
    with ReproductionDisplay(experiment, 1, quiet=True, console=Console(file=text)) as display:
        for event in events(experiment):
            display(event)
    assert not text.getvalue()


def test_seconds_say_what_they_are(experiment, shown):
    """Of the processor where they were measured, since the wall time depends on other jobs."""
    (first, _) = experiment.runs([0])
    record = record_of(first) | {"seconds": {"total": 9.0, "cpu": 7.0}}
    text = shown([Event("started", first), Event("finished", first, record)])
    assert text.rstrip().endswith(", 7 s of processor time")
