"""Rows with NaN, and rows across a gap in time, are in no pair; windows do not cross them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.checks import IsolatentWarning
from isolatent.pairs import Recording, SeriesPairs, stack_recordings

LEFT_OUT = pytest.mark.filterwarnings("ignore:x. .* rows:isolatent.checks.IsolatentWarning")


def numbered(n_rows, missing=()):
    """Return a recording whose rows hold their number, twice, and NaN in the second column."""
    x = np.arange(n_rows, dtype=float)[:, None] * [1.0, 1.0]
    x[list(missing), 1] = np.nan
    return x


def drawn_pairs(source):
    """Return the set of pairs of row numbers that a source draws, by every way that it has."""
    draws = [source.sample(3000, torch.Generator().manual_seed(0)), source.all()]
    x, x_pos = (torch.cat(both) for both in zip(*draws, strict=True))
    assert x.isfinite().all()
    assert x_pos.isfinite().all()
    assert source.rows(10_000)[0].isfinite().all()
    middle = x.shape[1] // 2
    return {*zip(x[:, middle].int().tolist(), x_pos[:, middle].int().tolist(), strict=True)}


layouts = st.tuples(
    st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.integers(1, 5)), min_size=4, max_size=40
    ),
    st.integers(1, 3),
    st.integers(0, 2),
)


def brute_force(session, missing, times, low, high):
    """Return all pairs of rows that the definition allows."""
    n_rows = len(session)
    steps = np.diff(times)
    inside = steps[session[1:] == session[:-1]]
    median = np.median(inside) if len(inside) else 1.0
    cut = np.r_[0, np.cumsum((session[1:] != session[:-1]) | (steps > 1.5 * median))]
    return {
        (t, s)
        for t in range(n_rows)
        for s in range(t + low, min(t + high, n_rows - 1) + 1)
        if cut[t] == cut[s]
        and not missing[t]
        and not missing[s]
        and abs(times[s] - times[t] - (s - t) * median) <= 0.5 * median
    }


@LEFT_OUT
@given(layout=layouts)
@settings(max_examples=150, deadline=None)
@pytest.mark.filterwarnings("ignore:lag. the longest lag")
def test_pairs_are_those_of_the_definition(layout):
    rows, low, extra = layout
    session, missing, steps = (np.array(column) for column in zip(*rows, strict=True))
    times, high = np.cumsum(steps), low + extra
    allowed = brute_force(session, missing, times, low, high)
    x = numbered(len(rows), np.flatnonzero(missing))
    if not allowed:
        with pytest.raises(ValueError, match=r"but none is left: \d+ of \d+ rows hold NaN"):
            SeriesPairs(x, lag=(low, high), groups=session, times=times)
        return
    source = SeriesPairs(x, lag=(low, high), groups=session, times=times)
    assert len(source) == len({anchor for anchor, _ in allowed})
    x, x_pos = source.sample(3000, torch.Generator().manual_seed(0))
    drawn = {*zip(x[:, 0].int().tolist(), x_pos[:, 0].int().tolist(), strict=True)}
    assert drawn == allowed  # missed with a probability below 1e-10
    x, x_pos = source.all()
    nearest = {t: min(s for u, s in allowed if u == t) for t, _ in allowed}
    assert dict(zip(x[:, 0].int().tolist(), x_pos[:, 0].int().tolist(), strict=True)) == nearest


@LEFT_OUT
@given(missing=st.sets(st.integers(0, 59), max_size=30), window=st.sampled_from([1, 3, 5]))
@settings(max_examples=60, deadline=None)
def test_parts_of_a_recording_share_no_row_not_even_in_windows(missing, window):
    session = np.repeat([0, 1], 30)
    source = SeriesPairs(numbered(60, missing), groups=session, window=window)
    seen = []
    for part in source.split(0.3, torch.Generator()):
        x, x_pos = part.sample(500, torch.Generator().manual_seed(0))
        seen.append({*torch.cat([x, x_pos]).int().flatten().tolist()})
        assert not seen[-1] & missing
    assert not seen[0] & seen[1]


def test_lags_are_uniform_over_those_that_fit():
    with pytest.warns(IsolatentWarning, match="2 of 6 rows hold NaN and are left out"):
        source = SeriesPairs(numbered(6, [1, 5]), lag=5)
    x, x_pos = source.sample(30_000, torch.Generator().manual_seed(0))
    lags = torch.bincount((x_pos - x)[x[:, 0] == 0, 0].int(), minlength=6)
    expected = lags.sum() / 3
    assert lags[[0, 1, 5]].sum() == 0
    assert (lags[2:5] - expected).abs().max() < 4.5 * expected**0.5


def test_rows_have_another_session_number_after_one_that_is_left_out():
    with pytest.warns(IsolatentWarning):
        source = SeriesPairs(numbered(6, [2]), groups=[0, 0, 0, 0, 1, 1])
    rows, session = source.rows(10)
    assert rows[:, 0].tolist() == [0, 1, 3, 4, 5]
    assert session.tolist() == [0, 0, 1, 2, 2]


@given(
    missing=st.sets(st.integers(0, 29)),
    max_gap=st.integers(1, 4),
    steps=st.lists(st.floats(0.8, 1.2), min_size=29, max_size=29),
    timed=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_interpolation_is_exact_for_lines_and_only_in_short_gaps(missing, max_gap, steps, timed):
    times = np.r_[0, np.cumsum(steps)]
    at = times if timed else np.arange(30.0)
    session = np.repeat([0, 1], 15)
    line = np.stack([3 * at - 1, at], 1)
    x = line.copy()
    x[list(missing)] = np.nan
    recording = Recording(x, groups=session, times=times if timed else None, max_gap=max_gap)
    expected = np.zeros(30, dtype=bool)
    for row in missing:
        low, high = row, row
        while low in missing and session[low] == session[row]:
            low -= 1
        while high in missing and session[high] == session[row]:
            high += 1
        closed = low >= 0 and high < 30 and session[low] == session[high] == session[row]
        expected[row] = not closed or high - low - 1 > max_gap
    assert np.array_equal(np.isnan(recording.x[:, 0]), expected)
    np.testing.assert_allclose(recording.x[~expected], line[~expected])
    assert (recording.n_missing, recording.n_interpolated) == (
        expected.sum(),
        len(missing) - expected.sum(),
    )
    assert np.isnan(x[list(missing)]).all()  # the given array is not changed


def test_interpolation_keeps_what_was_measured():
    x = np.array([[0.0, 0.0], [np.nan, 9.0], [2.0, 2.0]], dtype=np.float32)
    filled = Recording(x, max_gap=1).x
    assert filled.dtype == np.float32
    assert filled.tolist() == [[0, 0], [1, 9], [2, 2]]


def test_interpolated_rows_are_said_and_take_part():
    with pytest.warns(IsolatentWarning, match=r"x: 2 of 9 rows hold NaN .*; 1 rows? with NaN were"):
        source = SeriesPairs(numbered(9, [2, 5, 6]), max_gap=1)
    assert {(1, 2), (2, 3)} <= drawn_pairs(source)


@LEFT_OUT
@given(
    missing=st.sets(st.integers(0, 19), max_size=8),
    window=st.sampled_from([3, 5, 7]),
    cut=st.integers(1, 19),
)
@settings(max_examples=80, deadline=None)
def test_windows_repeat_the_outermost_row_of_their_run(missing, window, cut):
    session = (np.arange(20) >= cut).astype(int)
    recording = Recording(numbered(20, missing), groups=session)
    rows = np.array(sorted({*range(20)} - missing))
    windows = recording.read(rows, window).reshape(len(rows), window, 2)[:, :, 0]
    for row, seen in zip(rows, windows.tolist(), strict=True):
        expected = [row]
        for step, place in ((-1, 0), (1, window)):
            at = row
            for _ in range(window // 2):
                beyond = at + step
                inside = 0 <= beyond < 20 and beyond not in missing
                at = beyond if inside and session[beyond] == session[row] else at
                expected.insert(0 if place == 0 else len(expected), at)
        assert seen == expected


def test_dates_are_times():
    days = np.array(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-09", "2024-01-10"], "M8[D]")
    source = SeriesPairs(numbered(5), times=days)
    assert drawn_pairs(source) == {(0, 1), (1, 2), (3, 4)}


def test_recordings_are_stacked_with_their_numbers_and_times():
    x, groups, times = stack_recordings(
        [numbered(3), torch.ones(2, 2)], times=[[0, 1, 2], np.array([0.5, 1])]
    )
    assert x.shape == (5, 2)
    assert groups.tolist() == [0, 0, 0, 1, 1]
    assert times.tolist() == [0, 1, 2, 0.5, 1]


X = numbered(5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SeriesPairs(X, times=[1, 2]), ValueError, r"times .* shape \(5,\), got \(2,\)"),
        (lambda: SeriesPairs(X, times=[0, 1, 1, 2, 3]), ValueError, "got 1 in row 2 after 1"),
        (lambda: SeriesPairs(X, times=[0, 1, 2, 1, 3]), ValueError, "times must increase within"),
        (lambda: SeriesPairs(X, times=[0, 1, np.nan, 3, 4]), ValueError, "got nan in row 2"),
        (lambda: SeriesPairs(X, times=[*"abcde"]), TypeError, "times must be numbers or datetime"),
        (lambda: SeriesPairs(X, max_gap=-1), ValueError, "max_gap must be an integer >= 0, got -1"),
        (lambda: SeriesPairs(X, max_gap=1.5), TypeError, "max_gap must be an integer >= 0"),
        (lambda: SeriesPairs(X, window=2), ValueError, "window must be an odd number of rows"),
        (lambda: SeriesPairs(X, window=0), ValueError, "window must be an integer >= 1, got 0"),
        (lambda: SeriesPairs(X[:, :, None], window=3), ValueError, "window must be 1 for x that"),
        (lambda: SeriesPairs(X / 0.0), ValueError, "x must be finite or NaN, but row 1 holds inf"),
        (lambda: SeriesPairs(X * np.nan), ValueError, "none is left: 5 of 5 rows hold NaN"),
        (lambda: stack_recordings([X, X[:, :1]]), ValueError, "0 has 2 and recording 1 has 1; sep"),
        (lambda: stack_recordings([X, X], [0, 1, 2]), ValueError, "times must be a list of 2"),
        (lambda: stack_recordings([X, X], [[0], [1]]), ValueError, "but recording 0 has 5 rows"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
