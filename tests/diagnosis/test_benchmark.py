"""The benchmark of diagnoses: its worlds, and the targets of its report."""

import importlib
from collections import Counter
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STRENGTHS = ("weak", "medium", "strong")


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


@pytest.fixture
def worlds(module):
    return module("diagnosis_worlds")


def test_half_of_at_least_120_worlds_are_as_declared(worlds):
    broken = Counter(bool(world.broken) for world in worlds.WORLDS.values())
    assert broken.total() >= 120
    assert abs(broken[True] - broken[False]) <= 0.1 * broken.total()
    defaults = [w for w in worlds.WORLDS.values() if not w.declared and not w.broken]
    assert {"recording", "box"} <= {word for w in defaults for word in w.name.split()}


def test_halves_have_the_same_assumptions_and_strengths(worlds):
    """Up to one world for each assumption, and for each strength."""
    for name in ("broken", "strength"):
        halves = [Counter(), Counter()]
        for world in worlds.WORLDS.values():
            strength = world.name.split()[-1] if world.broken else ""
            halves[world.is_held_back][world.broken if name == "broken" else strength] += 1
        assert set(halves[0]) == set(halves[1])
        assert all(abs(halves[0][key] - halves[1][key]) <= 1 for key in halves[0])


def test_strengths_differ_in_nothing_else_than_strength(worlds):
    """The number of codes is the same at all strengths, but where it is what is wrong."""
    codes = {}
    for world in worlds.WORLDS.values():
        if world.broken and world.broken != "n_components":
            series, _, strength = world.name.rpartition(", ")
            assert strength in STRENGTHS, world.name
            codes.setdefault(series, []).append(world.codes)
    assert all(len(found) == 3 and len({*found}) == 1 for found in codes.values())


def test_forty_worlds_are_chosen_from(worlds):
    chosen = [worlds.WORLDS[name] for name in worlds.CHOSEN]
    assert len(chosen) == 40
    assert not any(world.broken for world in chosen)
    assert any("recording" in world.name for world in chosen)
    assert max(world.codes for world in chosen) == 10


def record(score, holds, **changes):
    values = {"broken_by_design": "", "broken": [], "checks": [], "seconds": 10.0}
    values |= {"diagnosis_seconds": 30.0, "checks_seconds": 0.1}
    return {"score": score, "holds": holds, "expected_score": {"value": score}, **values, **changes}


def test_targets_are_met_or_not(module):
    targets = module("diagnosis").targets_of_diagnoses
    right = [record(0.99, True), record(0.6, False, broken_by_design="a", broken=["b", "a"])]
    assert all(target.is_met for target in targets(right))
    wrong = [record(0.99, False, expected_score=None, diagnosis_seconds=41.0, checks_seconds=2.0)]
    wrong.append(record(0.6, True, broken_by_design="a"))
    assert not any(target.is_met for target in targets(wrong))
    assert all(target.is_met is None for target in targets([]))


def test_a_training_that_failed_is_no_false_alarm(module):
    targets = module("diagnosis").targets_of_diagnoses([record(0.6, False)])
    assert next(t for t in targets if "false alarms" in t.name).is_met


def test_p_values_are_uniform_or_not(module):
    def target(values):
        checks = ({"key": "space", "p_value": value} for value in values)
        return module("diagnosis").target_of_p_values([record(1, True, checks=[c]) for c in checks])

    even = [(k + 0.5) / 40 for k in range(40)]
    assert target(even).is_met is True
    assert target([value**3 for value in even]).is_met is False
    assert target(even[:5]).is_met is None
