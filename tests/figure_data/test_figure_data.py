"""The data behind figures: what is kept, what is left out, and what is said about it."""

import ast
import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import isolatent as iso
from isolatent.diagnosis import Check, Diagnosis, ExpectedScore
from isolatent.diagnosis.controls import SHARED
from isolatent.figure_data import (
    against_factors_data,
    codes_data,
    diagnosis_data,
    encode_rows,
    over_time_data,
    score_against_pairs_data,
    training_data,
    traversal_data,
)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def top_level_imports(path):
    """Names of the modules that are imported when a file is, outside of functions and tests."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("package", ["figure_data", "plot"])
def test_neither_matplotlib_nor_plotly_is_imported(package):
    files = [*(Path(iso.__file__).parent / package).glob("*.py")]
    imported = {name.split(".")[0] for path in files for name in top_level_imports(path)}
    assert "isolatent" in imported
    assert not imported & {"matplotlib", "plotly"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"X": np.zeros((3, 2))}, ValueError, "X must not be given with codes"),
        ({"groups": [0, 1]}, ValueError, r"groups must have one value per row, shape \(5,\)"),
        ({"times": list("abcde")}, TypeError, "times must be numbers or datetime64"),
    ],
)
def test_rows_that_do_not_fit_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        encode_rows(normal(5, 2), **options)


@pytest.mark.parametrize("codes", [np.zeros(3), np.zeros((0, 2)), np.zeros((2, 2, 2))])
def test_codes_must_be_a_matrix(codes):
    with pytest.raises(ValueError, match=r"codes must have shape \(N, n\)"):
        encode_rows(codes)


def test_models_must_be_fitted_and_need_observations():
    model = iso.ContrastiveICA(2)
    with pytest.raises(ValueError, match="not fitted yet"):
        encode_rows(model, normal(5, 2))
    with pytest.raises(TypeError, match="codes must be a fitted model or numbers"):
        encode_rows("model")


def test_points_are_drawn_at_random_from_rows_with_codes():
    codes = normal(500, 2)
    codes[::5, 1] = np.nan
    rows = encode_rows(codes)
    data = codes_data(rows, colour=codes[:, 0], max_points=100, random_state=3)
    assert np.array_equal(data.points, codes[data.rows])
    assert np.array_equal(data.colour, codes[data.rows, 0])
    assert np.isfinite(data.points).all()
    assert len(np.unique(data.rows)) == 100
    assert data.thinning == "100 of 400 rows, drawn at random with seed 3"
    again = codes_data(rows, max_points=100, random_state=3)
    other = codes_data(rows, max_points=100, random_state=4)
    assert np.array_equal(again.rows, data.rows)
    assert not np.array_equal(other.rows, data.rows)
    whole = codes_data(rows)
    assert (len(whole.points), whole.thinning) == (400, "")


@pytest.mark.parametrize(
    ("colour", "values", "categories"),
    [
        ("time", [0, 1, 2], ()),
        ("session", [0, 1, 0], ("b", "a")),
        (["x", "y", "x"], [0, 1, 0], ("x", "y")),
        ([True, False, True], [0, 1, 0], ("True", "False")),
        ([0.5, np.nan, 2], [0.5, np.nan, 2], ()),
    ],
)
def test_colours(colour, values, categories):
    data = codes_data(encode_rows(normal(3, 2), groups=["b", "a", "b"]), colour=colour)
    assert np.array_equal(data.colour, values, equal_nan=True)
    assert data.categories == categories


def test_dates_stay_dates():
    days = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]")
    data = codes_data(encode_rows(normal(2, 2), times=days), colour="time")
    assert data.colour.dtype.kind == "M"
    assert data.colour_name == "time"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"colour": "speed"}, ValueError, "colour must be 'time', 'session', 'relatedness'"),
        ({"colour": [1, 2]}, ValueError, r"one value per row, shape \(9,\), got \(2,\)"),
        ({"colour": "session"}, ValueError, "groups must be given"),
        ({"colour": "relatedness"}, ValueError, "X_pos must be given"),
        ({"colour": np.zeros(9, complex)}, TypeError, "numbers, times or labels"),
        ({"components": [0, 2]}, ValueError, "components must be from 0 to 1"),
        ({"components": [0, 0]}, ValueError, "components must be different codes"),
        ({"components": [0.5]}, TypeError, "components must be numbers of codes"),
        ({"max_points": 0}, ValueError, "max_points must be an integer >= 1"),
    ],
)
def test_bad_choices_of_points_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        codes_data(encode_rows(normal(9, 2)), **options)


def test_codes_without_a_usable_row_are_refused():
    with pytest.raises(ValueError, match="at least one row without NaN"):
        codes_data(encode_rows(np.full((3, 2), np.nan)))


def test_lines_break_at_sessions_jumps_of_time_and_gaps():
    codes = normal(10, 1)
    codes[2] = np.nan
    times = [0, 1, 2, 3, 10, 11, 0, 1, 2, 3]
    rows = encode_rows(codes, groups=["a"] * 6 + ["b"] * 4, times=times)
    data = over_time_data(rows)
    assert (data.starts.tolist(), data.ends.tolist()) == ([0, 4, 6], [4, 6, 10])
    assert data.stretch_sessions.tolist() == [0, 0, 1]
    assert np.array_equal(data.values, codes, equal_nan=True)
    assert data.times.tolist() == times


def test_thinned_time_courses_keep_peaks_and_gaps():
    codes = 0.1 * normal(20_000, 2)
    codes[12_345, 0], codes[777, 1] = 9, -9
    codes[5000:5010] = np.nan
    groups = np.repeat([0, 1, 0], [7000, 6000, 7000])
    data = over_time_data(encode_rows(codes, groups=groups), max_points=1000)
    assert len(data.times) < 1100
    assert np.array_equal(data.values, codes[data.rows], equal_nan=True)
    assert {12_345, 777, 0, 6999, 7000, 19_999} <= set(data.rows.tolist())
    assert np.isnan(data.values).any(axis=1).sum() == 1
    assert data.rows[data.starts].tolist() == [0, 7000, 13_000]
    assert data.rows[data.ends - 1].tolist() == [6999, 12_999, 19_999]
    assert data.stretch_sessions.tolist() == [0, 1, 0]
    assert data.thinning.endswith("of 20,000 rows, the extremes of short intervals")


def test_codes_are_matched_with_factors():
    z = normal(400, 3)
    z[:5, 0] = np.nan
    codes = np.stack([z[:, 2], normal(400, seed=1), -2 * z[:, 0], z[:, 1] ** 3], axis=1)
    codes[7] = np.nan
    names = ["x", "y", "z"]
    data = against_factors_data(encode_rows(codes), z, factor_names=names)
    assert data.matched.tolist() == [2, 3, 0]
    assert data.order.tolist() == [2, 3, 0, 1]
    assert data.correlations[0, 2] == pytest.approx(-1)
    assert data.n_rows == 394
    usable = np.isfinite(z).all(1) & np.isfinite(codes).all(1)
    assert data.mcc == pytest.approx(iso.mcc(z[usable], codes[usable]))
    assert data.linear_r2 == pytest.approx(iso.linear_r2(z[usable], codes[usable]))
    ranks = against_factors_data(encode_rows(codes), z, method="spearman")
    assert abs(ranks.correlations[1, 3]) == pytest.approx(1)


def test_fewer_codes_than_factors_leave_factors_unmatched():
    z = normal(6, 2)
    data = against_factors_data(encode_rows(z[:, :1]), z)
    assert data.matched.tolist() == [0, -1]
    assert np.isfinite(data.r2).all()
    assert np.isnan(against_factors_data(encode_rows(z[:4]), z[:4]).r2).all()  # too few rows


@pytest.mark.parametrize(
    ("factors", "options", "message"),
    [
        (normal(4, 2), {}, r"factors must have shape \(9, F\)"),
        (normal(9, 2), {"factor_names": ["one"]}, "factor_names must be 2 names"),
        (np.ones((9, 1)), {}, "factors must vary"),
        (normal(9, 2), {"method": "kendall"}, "method must be one of"),
    ],
)
def test_bad_factors_are_refused(factors, options, message):
    with pytest.raises(ValueError, match=message):
        against_factors_data(encode_rows(normal(9, 2)), factors, **options)


def history(held_out, every=10, information=True):
    """A history whose held-out losses are given."""
    steps = every * len(held_out)
    return [
        iso.training.Step(
            k, steps, 1 + 1 / k, 2.0 if information else None, 1.0,
            held_out=held_out[k // every - 1] if k % every == 0 else None,
        )
        for k in range(1, steps + 1)
    ]  # fmt: skip


FALLS = (2 - np.arange(20) / 20).tolist()
RISES = [*FALLS[:10], *(1.55 + 0.05 * np.arange(10)).tolist()]
NOISY = (1 + 0.1 * normal(20)).tolist()


@pytest.mark.parametrize(
    ("held_out", "start"), [(FALLS, None), (RISES, 100), (NOISY, None), (RISES[:4], None)]
)
def test_overfitting_starts_at_the_lowest_held_out_loss(held_out, start):
    data = training_data(history(held_out))
    assert data.overfits_from == start
    assert data.lowest == 10 * (1 + int(np.argmin(held_out)))
    assert data.held_out.values.tolist() == held_out
    assert len(data.loss.steps) == 10 * len(held_out)


def test_losses_before_another_objective_do_not_count():
    steps = history([3.0, 0.1, 3.0, *FALLS])
    steps = [dataclasses.replace(s, information=None) if s.number > 25 else s for s in steps]
    data = training_data(steps)
    assert data.changed_at == 26
    assert data.lowest == 230
    assert data.overfits_from is None


def test_a_moving_average_keeps_lines_and_removes_noise():
    steps = [{"number": k, "loss": float(k)} for k in range(1, 501)]
    assert training_data(steps).smooth_loss.values == pytest.approx(np.arange(1, 501))
    noisy = [{"number": k, "loss": float(v)} for k, v in enumerate(normal(1000))]
    assert training_data({"curve": noisy}).smooth_loss.values.std() < 0.35


@pytest.mark.parametrize(
    ("run", "error", "message"),
    [
        ([], ValueError, "at least one step with a loss"),
        ({}, ValueError, "at least one step with a loss"),
        (3, TypeError, "run must be a fitted model"),
        (iso.ContrastiveICA(2), TypeError, "call fit first"),
    ],
)
def test_runs_without_a_curve_are_refused(run, error, message):
    with pytest.raises(error, match=message):
        training_data(run)


def test_a_traversal_moves_what_the_code_moves():
    z = normal(600, 2)
    x = np.stack([3 * z[:, 0], 5 + 0.01 * z[:, 1], np.ones(600)], axis=1)
    x[3] = np.nan
    data = traversal_data(encode_rows(z), x, steps=5)
    assert data.observations.shape == (2, 5, 3)
    assert np.abs(data.effects).round(0).tolist() == [[3, 0, 0], [0, 3, 0]]
    assert data.explained > 0.95
    assert np.isnan(data.explained_by_column[2])
    low, high = np.percentile(np.delete(z, 3, 0), (5, 95), axis=0)
    assert data.values[:, [0, -1]] == pytest.approx(np.stack([low, high], axis=1))
    fitted = data.values / 1.0
    assert data.observations[0, :, 0] == pytest.approx(3 * fitted[0], abs=0.4)
    noise = traversal_data(encode_rows(normal(600, 2, seed=5)), x)
    assert noise.explained < 0.1


def test_points_of_a_traversal_stay_on_the_sphere():
    z = normal(200, 3)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    seen = []
    rows = dataclasses.replace(encode_rows(z), head="sphere")
    data = traversal_data(rows, z, decode=lambda h: seen.append(h) or h)
    assert data.decoder == "own"
    assert np.linalg.norm(seen[0], axis=1) == pytest.approx(1)
    assert seen[0][:9, 0] == pytest.approx(data.values[0])
    assert data.explained == pytest.approx(1)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (normal(5, 2), {}, "X must have 50 rows"),
        (normal(50, 2), {"column_names": ["a"]}, "column_names must be 2 names"),
        (np.full((50, 2), np.nan), {}, "X must have at least 40 rows with codes"),
        (np.ones((50, 2)), {}, "X must vary"),
        (normal(50, 2), {"steps": 1}, "steps must be an integer >= 2"),
        ([normal(25, 2), normal(25, 3)], {}, "X must be one recording"),
    ],
)
def test_bad_observations_of_a_traversal_are_refused(x, options, message):
    with pytest.raises(ValueError, match=message):
        traversal_data(encode_rows(normal(50, 2)), x, **options)


CHECKS = (
    Check("information", "supported", 1.5, "", 0.0, error=0.1, reference=-3.0),
    Check("optimum", "contradicted", 0.5, "", harm=0.3),
    Check("pairing", "contradicted", 0.2, "", 0.0, 0.1, error=0.05),
    Check("noise", "cannot tell", None, "further factors hide it"),
)


def test_checks_say_what_they_compare():
    score = ExpectedScore(0.98, 0.97, 0.99, "mcc")
    data = diagnosis_data(Diagnosis(False, (), score, CHECKS, "broken"))
    information, optimum, pairing, noise = data.checks
    assert information.labels == ("pairs", "shuffled pairs")
    assert information.values.tolist() == [1.5, 0.0]
    assert (optimum.limit, optimum.limit_is_least) == (pytest.approx(0.95**2), True)
    assert (optimum.harm, optimum.is_harmful) == (0.3, True)
    assert pairing.labels == ("as declared", "relaxed")
    assert pairing.errors[1] == 0.05
    assert len(noise.values) == 0
    assert data.expected_score == score
    with pytest.raises(TypeError, match="diagnosis must be a Diagnosis, got dict"):
        diagnosis_data({})


def test_the_number_of_codes_is_drawn_in_the_unit_of_its_check():
    checks = [
        Check("n_components", "supported", -0.002, "", unit=unit)
        for unit in ("nats on held-out pairs", "share of the observations", "")
    ]
    nats, share, unknown = diagnosis_data(Diagnosis(True, (), None, tuple(checks), "")).checks
    assert (nats.quantity, nats.limit) == ("nats on held-out pairs", None)
    assert (share.quantity, share.limit) == ("share of the observations", SHARED)
    assert unknown.quantity == ""


def test_a_check_by_a_rehearsal_is_drawn_beside_it():
    """Whatever other ways there are to check the same assumption."""
    for key in ("marginal", "conditional", "injective"):
        check = Check(key, "supported", 0.02, "", 0.4, error=0.01, unit="u", rehearsed=0.03)
        (data,) = diagnosis_data(Diagnosis(True, (), None, (check,), "")).checks
        assert (data.quantity, data.limit) == ("u", None)
        assert data.labels == ("pairs", "rehearsal")
        assert data.values.tolist() == [0.02, 0.03]


def test_scores_are_averaged_over_runs():
    runs = [
        {"approach": "a", "size": 10, "r2": 0.5},
        {"approach": "b", "size": 10, "r2": None},
        {"approach": "a", "size": 10, "r2": 0.7},
        {"approach": "a", "size": 5, "r2": float("nan")},
    ]
    data = score_against_pairs_data(runs, score="r2", pairs="size", method="approach")
    first, second = data.lines
    assert (first.mean.tolist(), first.lowest.tolist(), first.highest.tolist()) == (
        [0.6], [0.5], [0.7],
    )  # fmt: skip
    assert (first.n_failed, second.n_failed, len(second.pairs)) == (1, 1, 0)


@pytest.mark.parametrize(
    ("runs", "error", "message"),
    [
        ([], ValueError, "at least one score 'mcc', got none"),
        ([{"method": "a"}], ValueError, "records must have 'pairs', but record 0 has 'method'"),
        ([{"method": "a", "pairs": -1}], ValueError, "positive number of pairs, got -1"),
        ([3], TypeError, "records must be mappings, got int"),
    ],
)
def test_bad_records_are_refused(runs, error, message):
    with pytest.raises(error, match=message):
        score_against_pairs_data(runs)


def test_codes_may_be_a_data_frame():
    """It has a method transform, as models do."""
    codes = normal(30, 2)
    rows = encode_rows(pd.DataFrame(codes, columns=["h0", "h1"]))
    np.testing.assert_array_equal(rows.codes, codes)
