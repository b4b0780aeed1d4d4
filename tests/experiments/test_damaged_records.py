"""Tables and pages of damaged records: the file is named and left out, nothing else happens."""

import json
import random
import warnings
from pathlib import Path

import pytest

from isolatent.checks import IsolatentWarning
from isolatent.experiments import Store, as_markdown
from isolatent.experiments.results import rows_of
from isolatent.report import page_of_runs, read_results

RESULTS = Path(__file__).parents[2] / "results"
VALUES = [None, True, -1, 0, 3.5, 1e300, "", "x", "\x1b[2J", [], [1], {}, {"a": 1}, [[[]]], [{}]]
NAMES = ["zimmermann2021/table1", "zimmermann2020/dsprites"]


def places(data, path=()):
    """Yield the path of every value in nested data; of long lists the first ones only."""
    items = data.items() if isinstance(data, dict) else list(enumerate(data))[:2]
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def harmed(data, rng):
    """Return data with one value replaced or removed."""
    copied = json.loads(json.dumps(data))
    *way, last = rng.choice(list(places(data)))
    inner = copied
    for key in way:
        inner = inner[key]
    if rng.random() < 0.25:
        del inner[last]
    else:
        inner[last] = rng.choice(VALUES)
    return copied


def small_store(name, directory):
    """Copy an experiment with one record of one cell."""
    source = Store(RESULTS / name)
    (experiment,) = source.experiments()
    record = source.records(experiment["name"])[0]
    cells = [cell for cell in experiment["cells"] if cell["name"] == record["cell"]]
    experiment = experiment | {"cells": cells}
    folder = name.replace("/", "-")
    paths = directory / f"experiments/{folder}.json", directory / f"runs/{folder}/one.json"
    for path, data in zip(paths, (experiment, record), strict=True):
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(data))
    return dict(zip(paths, (experiment, record), strict=True))


def show(directory):
    """Make all that is made of results; return the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IsolatentWarning)
        for experiment, records in (found := read_results(directory)):
            as_markdown(rows_of(experiment, records))
        if found:
            page_of_runs(found)
    return [str(w.message) for w in caught]


def attack(name, directory, count):
    """Return how often a file was named, of so many changes of each file."""
    named = 0
    rng = random.Random(0)
    for path, data in small_store(name, directory).items():
        for _ in range(count):
            path.write_text(json.dumps(harmed(data, rng)))
            for message in show(directory):
                assert str(path) in message
                named += 1
        text = json.dumps(data)
        for _ in range(count):
            path.write_text(text[: rng.randrange(len(text))])
            assert all(str(path) in message for message in show(directory))
        path.write_text(text)
    assert show(directory) == []
    return named


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_record_is_named(tmp_path, name):
    assert attack(name, tmp_path, 40) > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_damaged_records_are_named(tmp_path, name):
    assert attack(name, tmp_path, 1000) > 5
