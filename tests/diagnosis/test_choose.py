"""Choice of beliefs: the true ones, too few pairs, null data, interruption and bad input."""

import json
from importlib import import_module

import numpy as np
import pytest

import isolatent as iso
from isolatent.diagnosis import Diagnosis
from isolatent.diagnosis.trials import Candidate, prepare, run_trial
from isolatent.files import DamagedFileError, LockedError, lock_directory
from isolatent.pairs import Batch

BOX = iso.World(iso.Box(2), iso.Uniform(), iso.Laplace(0.08), iso.Linear(), seed=0)
QUICK = {"steps": 20, "diagnose": False, "relax": False}


@pytest.fixture(scope="module")
def pairs():
    return BOX.sample_pairs(3000)


def test_the_true_conditional_is_chosen(pairs):
    found = iso.choose(*pairs, n_components=2, spaces=["box"], **QUICK | {"steps": 40})
    assert found.best["conditional"] == "laplace"
    assert found.n_factors == 2
    assert found.trials[0].status == "chosen"
    assert found.holds is None
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()


def test_the_number_of_codes_is_counted():
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Linear(), seed=0)
    z, z_pos = world.sample_latents(2400)
    mixing = np.random.default_rng(0).normal(size=(2, 5))
    x, x_pos = (np.tanh(0.5 * part.numpy() @ mixing) for part in (z, z_pos))
    found = iso.choose(x, x_pos, spaces=["box"], conditionals=["normal"], **QUICK | {"steps": 40})
    assert found.best["n_components"] == 2


def test_shuffled_pairs_leave_nothing_to_choose(pairs):
    found = iso.choose(pairs[0], pairs[1].roll(5, 0), n_components=2, spaces=["box"], **QUICK)
    assert (found.best, found.holds, found.tied) == (None, False, ())
    assert found.verdict.startswith("Nothing to find")


@pytest.mark.slow
def test_the_best_is_fitted_and_diagnosed(pairs):
    recipe = iso.Recipe(max_steps=120, batch_size=256, warmup=20)
    found = iso.choose(
        *pairs,
        n_components=2,
        candidates=[{"space": "box", "conditional": "laplace"}],
        model=iso.ContrastiveICA(recipe=recipe),
        **QUICK | {"diagnose": True},
    )
    assert found.diagnosis is not None
    assert found.holds == found.diagnosis.holds
    assert found.model.beliefs_.conditional == "laplace"


def test_a_choice_continues_where_it_was_interrupted(pairs, tmp_path):
    options = {"n_components": 2, "spaces": ["box"], **QUICK}
    whole = iso.choose(*pairs, **options)
    done = []

    def interrupt(line):
        done.append(line)
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        iso.choose(*pairs, directory=tmp_path / "choice", on_trial=interrupt, **options)
    rest = []
    found = iso.choose(*pairs, directory=tmp_path / "choice", on_trial=rest.append, **options)
    assert found == whole
    assert not set(rest) & set(done)
    again = []
    assert iso.choose(*pairs, directory=tmp_path / "choice", on_trial=again.append, **options)
    assert again == []
    with pytest.raises(ValueError, match="directory must be new"):
        iso.choose(*pairs, directory=tmp_path / "choice", **options | {"steps": 50})


def test_a_directory_is_of_one_choice(tmp_path):
    x = np.random.default_rng(0).normal(size=(1500, 3)).cumsum(axis=0)
    recipe = iso.Recipe(batch_size=64)
    options = {
        **{"n_components": 2, "lags": [1, 5], "directory": tmp_path / "choice"},
        **{"candidates": [{"space": "box"}], **QUICK, "steps": 10},
    }
    iso.choose(x, model=iso.ContrastiveICA(recipe=recipe, axes=None), **options)
    again = []
    iso.choose(
        x, model=iso.ContrastiveICA(recipe=recipe, axes=None), on_trial=again.append, **options
    )
    assert again == []  # the same data
    for row in (0, 700, 1499):  # whichever row it is, trained with or held out
        changed = x.copy()
        changed[row] += 1e-6
        with pytest.raises(ValueError, match="directory must be new"):
            iso.choose(changed, model=iso.ContrastiveICA(recipe=recipe, axes=None), **options)
    for parameters in ({"recipe": iso.Recipe(batch_size=64, warmup=7)}, {"axes": "ica"}):
        model = iso.ContrastiveICA(**{"recipe": recipe, "axes": None} | parameters)
        with pytest.raises(ValueError, match="directory must be new"):
            iso.choose(x, model=model, **options)
    with lock_directory(tmp_path / "choice"), pytest.raises(LockedError):
        iso.choose(x, model=iso.ContrastiveICA(recipe=recipe, axes=None), **options)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"identity": "a", "trials": 3}', "[]", "{"])
def test_a_damaged_file_is_named(pairs, tmp_path, content):
    (tmp_path / "choice.json").write_text(content)
    with pytest.raises(DamagedFileError, match=r"choice\.json is damaged"):
        iso.choose(*pairs, n_components=2, directory=tmp_path, **QUICK)


def test_of_lags_the_shortest_that_does_not_saturate_is_taken():
    rng = np.random.default_rng(0)
    x = np.zeros((4000, 2))
    for t in range(1, len(x)):
        x[t] = 0.9 * x[t - 1] + rng.normal(size=2) * np.sqrt(1 - 0.81)
    found = iso.choose(
        x, n_components=2, lags=[2, 1], spaces=["euclidean"], conditionals=["normal"], **QUICK
    )
    assert found.best["lag"] == (1, 1)


def test_too_few_pairs_cannot_tell(pairs):
    found = iso.choose(pairs[0][:300], pairs[1][:300])
    assert (found.best, found.holds, found.trials) == (None, None, ())
    assert found.verdict.startswith("Cannot tell: 300 pairs")


def test_columns_are_whitened_once(pairs):
    """What all runs share has the directions that pairs share, and keeps pairs together."""
    mixing = np.random.default_rng(0).normal(size=(2, 30))
    rng = np.random.default_rng(1)
    x, x_pos = (p.numpy() @ mixing + 0.1 * rng.normal(size=(len(p), 30)) for p in pairs)
    source = iso.ArrayPairs(x[:2000], x_pos[:2000])
    testing = iso.ArrayPairs(x[2000:], x_pos[2000:])
    shared = prepare(iso.ContrastiveICA(), source, Batch.of(testing.all()), n_components=2, seed=0)
    assert shared.testing.x.shape[1] < 30
    values = run_trial(Candidate("box", "laplace", 2), shared, 60, 0)
    assert np.mean(values) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": "many"}, "n_components must be 'auto' or a positive integer"),
        ({"n_components": 9}, "n_components must be at most 2"),
        ({"spaces": ["torus"]}, "spaces must be one of"),
        ({"spaces": "box"}, "spaces must be a sequence"),
        ({"spaces": ["sphere"], "conditionals": ["laplace"]}, "must suit one of the spaces"),
        ({"candidates": [{"conditional": "normal"}]}, "candidates must have a space"),
        ({"lags": [1]}, "lags must be None when x_pos is given"),
        ({"model": iso.ContrastiveICA(loss="nce")}, "must have loss='infonce'"),
        ({"steps": 1}, "steps must be"),
    ],
)
def test_bad_input(pairs, options, message):
    with pytest.raises(ValueError, match=message):
        iso.choose(*pairs, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lags": 5}, "lags must be a sequence of numbers of rows, or None, got 5"),
        ({"candidates": ["sphere"]}, "candidates must be dicts .*, got 'sphere'"),
        ({"candidates": {"space": "sphere"}}, "candidates must be a sequence of dicts"),
        ({"candidates": 3}, "candidates must be a sequence of dicts"),
    ],
)
def test_arguments_of_another_type(pairs, options, message):
    with pytest.raises(TypeError, match=message):
        iso.choose(pairs[0], **options)


def test_something_else_than_a_model(pairs):
    with pytest.raises(TypeError, match="model must be a ContrastiveICA or None"):
        iso.choose(*pairs, model="sphere")


def test_one_code_leaves_spheres_out():
    world = iso.World(iso.Box(1), iso.Uniform(), iso.Normal(0.1), iso.Linear(), seed=0)
    found = iso.choose(*world.sample_pairs(1600), n_components=1, **QUICK)
    assert {trial.parameters["space"] for trial in found.trials} == {"box", "euclidean"}
    with pytest.raises(ValueError, match="at least 2 on a sphere"):
        iso.choose(*world.sample_pairs(1600), n_components=1, spaces=["sphere"], **QUICK)


def test_a_tie_that_cannot_be_told_is_preferred_to_what_is_contradicted(pairs, monkeypatch):
    holds = iter([False, None])

    def diagnosed(comparison, candidate, source):
        found = Diagnosis(next(holds), (), None, (), "Found.")
        return iso.ContrastiveICA(2, conditional=candidate.conditional), found

    module = import_module("isolatent.diagnosis.choose")
    monkeypatch.setattr(module, "_diagnosed", diagnosed)
    monkeypatch.setattr(module, "BEHIND", (9.0, 9.0, 9.0))  # all are tied
    options = {"n_components": 2, "spaces": ["box"], **QUICK, "diagnose": True}
    found = iso.choose(*pairs, **options)
    assert found.holds is None
    assert found.model.conditional == found.best["conditional"]
    assert "cannot be told" in found.verdict
