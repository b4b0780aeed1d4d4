"""Pairs from recordings stay within a session and a window of lags."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.checks import IsolatentWarning
from isolatent.pairs import SeriesPairs

X = np.arange(40.0).reshape(20, 2)


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    low=st.integers(1, 4),
    extra=st.integers(0, 4),
    seed=st.integers(0, 1000),
)
@settings(max_examples=150, deadline=None)
@pytest.mark.filterwarnings("ignore:lag. the longest lag")
def test_pairs_stay_inside_their_session_and_window(lengths, low, extra, seed):
    # Two alternating ids: an id that comes back later is another session.
    groups = np.repeat(np.arange(len(lengths)) % 2, lengths)
    run = np.repeat(np.arange(len(lengths)), lengths)
    recording = np.arange(len(groups), dtype=float)[:, None]
    allowed = {
        (t, s)
        for t in range(len(groups))
        for s in range(t + low, min(t + low + extra, len(groups) - 1) + 1)
        if run[t] == run[s]
    }
    if len(recording) < 2 or not allowed:
        with pytest.raises(ValueError, match=r"lag must be shorter|N >= 2"):
            SeriesPairs(recording, lag=(low, low + extra), groups=groups)
        return
    source = SeriesPairs(recording, lag=(low, low + extra), groups=groups)
    x, x_pos = source.sample(4000, torch.Generator().manual_seed(seed))
    drawn = set(zip(x[:, 0].int().tolist(), x_pos[:, 0].int().tolist(), strict=True))
    assert drawn <= allowed
    if len(allowed) <= 60:
        assert {t for t, _ in drawn} == {t for t, _ in allowed}  # missed with probability < 1e-20


def test_anchors_and_lags_are_uniform():
    source = SeriesPairs(np.arange(100.0)[:, None], lag=4)
    x, x_pos = source.sample(99_000, torch.Generator().manual_seed(0))
    counts = torch.bincount(x[:, 0].long(), minlength=100)
    assert counts[99] == 0
    assert (counts[:99] - 1000).abs().max() < 4.5 * 1000**0.5
    inner = x[:, 0] <= 95
    lags = torch.bincount((x_pos - x)[inner, 0].long(), minlength=5)[1:]
    expected = inner.sum() / 4
    assert (lags - expected).abs().max() < 4.5 * expected**0.5


def test_memory_maps_are_read_by_rows(tmp_path):
    """A sparse file far larger than memory: only the drawn rows are read."""
    rows, width = 5_000_000, 1000  # 20 GB of address space, no blocks on disk
    recording = np.memmap(tmp_path / "big", np.float32, "w+", shape=(rows, width))
    recording[-1] = 7.0
    x, x_pos = SeriesPairs(recording, lag=10).sample(64, torch.Generator().manual_seed(0))
    assert x.shape == x_pos.shape == (64, width)
    assert x.dtype == torch.float32
    assert not x.any()


def test_a_row_of_a_memory_map_that_is_not_finite_is_named_when_drawn(tmp_path):
    recording = np.memmap(tmp_path / "map", np.float32, "w+", shape=(3, 2))
    recording[1] = np.nan
    with pytest.raises(ValueError, match="x must be finite, but row 1 holds NaN"):
        SeriesPairs(recording).sample(50, torch.Generator().manual_seed(0))


def parts_of_a_series(lengths, low, extra, share):
    """Return a source whose rows hold their position and session, and its two parts."""
    run = np.repeat(np.arange(len(lengths)), lengths)
    rows = np.stack([np.arange(len(run)), run], 1).astype(float)
    source = SeriesPairs(rows, lag=(low, low + extra), groups=run)
    return source, source.split(share, torch.Generator().manual_seed(0))


def rows_of(part):
    """Return the positions of all rows that a part draws, and the lags of its pairs."""
    draws = part.all(), part.sample(2000, torch.Generator().manual_seed(0))
    x, x_pos = (torch.cat(both) for both in zip(*draws, strict=True))
    assert torch.equal(x[:, 1], x_pos[:, 1])  # a pair stays in its session
    return set(torch.cat([x, x_pos])[:, 0].int().tolist()), (x_pos - x)[:, 0]


layouts = st.tuples(
    st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 3)
)


@given(layout=layouts)
@settings(max_examples=100, deadline=None)
@pytest.mark.filterwarnings("ignore:lag. the longest lag")
def test_the_length_is_the_number_of_anchors(layout):
    lengths, low, extra = layout
    anchors = sum(max(length - low, 0) for length in lengths)
    if anchors == 0 or sum(lengths) < 2:
        return
    run = np.repeat(np.arange(len(lengths)), lengths)
    rows = np.stack([np.arange(len(run)), run], 1).astype(float)
    source = SeriesPairs(rows, lag=(low, low + extra), groups=run)
    x, x_pos = source.all()
    assert len(source) == len(x) == len(x_pos) == anchors
    assert len(x[:, 0].unique()) == anchors  # each once,
    assert (x[:, 0].diff() > 0).all()  # in order,
    assert (x_pos[:, 0] - x[:, 0] == low).all()  # with its nearest positive
    assert torch.equal(x[:, 1], x_pos[:, 1])


@given(layout=layouts, share=st.floats(0.05, 0.5))
@settings(max_examples=200, deadline=None)
@pytest.mark.filterwarnings("ignore:lag. the longest lag")
def test_the_parts_of_a_series_share_no_row(layout, share):
    lengths, low, extra = layout
    try:
        source, parts = parts_of_a_series(lengths, low, extra, share)
    except ValueError as error:  # no pairs, or too few to split
        if re.search("lag must be|share must leave|N >= 2", str(error)):
            return
        raise
    seen = [rows_of(part) for part in parts]
    assert not seen[0][0] & seen[1][0]
    assert all(((lags >= low) & (lags <= low + extra)).all() for _, lags in seen)
    assert min(len(part) for part in parts) >= 1
    assert sum(len(part) for part in parts) <= len(source)


@given(length=st.integers(30, 3000), low=st.integers(1, 3), share=st.floats(0.1, 0.5))
@settings(max_examples=60, deadline=None)
def test_the_end_of_one_long_session_is_held_out(length, low, share):
    if round(share * length) <= low:
        return
    _, (most, rest) = parts_of_a_series([length], low, 0, share)
    held_out, _ = rows_of(rest)
    assert (min(held_out), max(held_out)) == (length - round(share * length), length - 1)
    assert len(rest) == round(share * length) - low
    assert len(most) == length - round(share * length) - low


@given(count=st.integers(10, 200), length=st.integers(3, 8), share=st.floats(0.1, 0.5))
@settings(max_examples=60, deadline=None)
def test_the_last_of_many_short_sessions_are_held_out_as_a_whole(count, length, share):
    _, (most, rest) = parts_of_a_series([length] * count, length - 1, 0, share)
    assert len(most) + len(rest) == count
    assert abs(len(rest) - share * count) <= 1
    x, _ = rest.all()
    assert x[:, 1].tolist() == list(range(count - len(rest), count))


def test_short_sessions_are_held_out_also_beside_a_long_one():
    _, (most, rest) = parts_of_a_series([60] + [4] * 1000, 3, 0, 0.1)
    assert len(rest) == pytest.approx(0.1 * (len(most) + len(rest)), rel=0.3)


@pytest.mark.parametrize(
    ("lengths", "share", "message"),
    [([3], 0.5, "share must leave a pair on either side of 1 anchors"), ([20], 0.05, "share must")],
)
def test_series_that_cannot_be_split(lengths, share, message):
    with pytest.raises(ValueError, match=message):
        parts_of_a_series(lengths, 2, 0, share)
    with pytest.raises(ValueError, match="share must be a finite number > 0 and < 1, got 1"):
        parts_of_a_series(lengths, 2, 0, 1.0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SeriesPairs(X).sample(3, None), TypeError, "generator must be a torch.Generator"),
        (lambda: SeriesPairs(X, lag=(1, 2, 3)), ValueError, "the shortest and the longest lag"),
        (lambda: SeriesPairs(X, lag=[3]), ValueError, "the shortest and the longest lag"),
        (lambda: SeriesPairs(X, lag="12"), TypeError, "lag must be an integer >= 1, got '12'"),
        (lambda: SeriesPairs(X, lag=[3, 2]), ValueError, "lag must be an integer >= 3, got 2"),
        (lambda: SeriesPairs(X, lag=0), ValueError, "lag must be an integer >= 1, got 0"),
        (lambda: SeriesPairs(X, lag=(3, 2)), ValueError, "lag must be an integer >= 3, got 2"),
        (lambda: SeriesPairs(X, lag=(20, 20)), ValueError, "lag must be shorter than some session"),
        (lambda: SeriesPairs(X, groups=[0, 1]), ValueError, r"groups must have one id per row"),
        (lambda: SeriesPairs(X).sample(0, torch.Generator()), ValueError, "batch_size must be"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("lag", "groups", "warns"),
    [(300, None, True), (400, None, True), (299, None, False), (100, [0, 1, 2], True)],
)
def test_a_lag_that_no_session_reaches_is_warned_of(lag, groups, warns, recwarn):
    """Pairs are as far apart as sessions are long, which is not what was asked for."""
    groups = None if groups is None else np.repeat(groups, 100)
    pairs = SeriesPairs(np.arange(300.0)[:, None], lag=lag, groups=groups)
    x, x_pos = pairs.sample(3000, torch.Generator().manual_seed(0))
    messages = [str(w.message) for w in recwarn if issubclass(w.category, IsolatentWarning)]
    assert bool(messages) == warns
    most = 299 if groups is None else 99
    assert int((x_pos - x).max()) <= most
    if warns:
        assert f"the longest lag is {lag} rows" in messages[0]
        assert f"no pair is more than {most} rows apart" in messages[0]
