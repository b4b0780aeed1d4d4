"""Pair sources give rows that belong together."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.pairs import ArrayPairs, PairSource, SeriesPairs, WorldPairs
from isolatent.worlds import Box, Identity, Normal, Uniform, World

WORLD = World(Box(2), Uniform(), Normal(0.01), Identity())
X = np.arange(40.0).reshape(20, 2)
SOURCES = [WorldPairs(WORLD), ArrayPairs(X, -X), SeriesPairs(X, lag=3)]


@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_contract(source):
    assert isinstance(source, PairSource)
    a, b = (source.sample(50, torch.Generator().manual_seed(1)) for _ in range(2))
    assert a[0].shape == a[1].shape == (50, 2)
    assert torch.equal(a[0], b[0])
    assert torch.equal(a[1], b[1])


def test_world_pairs_are_close():
    x, x_pos = WorldPairs(WORLD).sample(500, torch.Generator().manual_seed(0))
    assert (x - x_pos).abs().max() < 0.1


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    low=st.integers(1, 4),
    extra=st.integers(0, 4),
    seed=st.integers(0, 1000),
)
@settings(max_examples=150, deadline=None)
def test_series_pairs_stay_inside_their_session_and_window(lengths, low, extra, seed):
    # Two session names in turn: an id that comes back later is another session.
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
        assert {t for t, _ in drawn} == {t for t, _ in allowed}  # missed with p < 1e-20


def test_series_anchors_and_lags_are_uniform():
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
    """A sparse file far larger than the memory it may take: only the drawn rows are touched."""
    rows, width = 5_000_000, 1000  # 20 GB of address space, no blocks on disk
    recording = np.memmap(tmp_path / "big", np.float32, "w+", shape=(rows, width))
    recording[-1] = 7.0
    x, x_pos = SeriesPairs(recording, lag=10).sample(64, torch.Generator().manual_seed(0))
    assert x.shape == x_pos.shape == (64, width)
    assert x.dtype == torch.float32
    assert not x.any()


def test_a_bad_row_of_a_memory_map_is_named_when_it_is_drawn(tmp_path):
    recording = np.memmap(tmp_path / "map", np.float32, "w+", shape=(3, 2))
    recording[1] = np.nan
    with pytest.raises(ValueError, match="x must be finite, but row 1 holds NaN"):
        SeriesPairs(recording).sample(50, torch.Generator().manual_seed(0))


def test_a_split_deals_out_every_pair_once():
    most, rest = ArrayPairs(X, -X).split(0.25, torch.Generator().manual_seed(0))
    assert (len(most), len(rest)) == (15, 5)
    rows = torch.cat([most.all()[0], rest.all()[0]])
    assert sorted(rows[:, 0].tolist()) == X[:, 0].tolist()
    x, x_pos = rest.all()
    assert torch.equal(x, -x_pos)


@pytest.mark.parametrize("source", [ArrayPairs(X, -X), SeriesPairs(X, lag=(2, 4))], ids=repr)
def test_some_pairs_are_those_of_all_at_their_positions(source):
    positions = np.array([1, 4, 9])
    for every, some in zip(source.all(), source.all(positions), strict=True):
        assert torch.equal(every[positions], some)


def test_splits_share_the_arrays(tmp_path):
    big = np.memmap(tmp_path / "big", np.float32, "w+", shape=(5_000_000, 1000))  # 20 GB, sparse
    most, rest = ArrayPairs(big, big).split(0.1, torch.Generator().manual_seed(0))
    assert most.x is rest.x is rest.x_pos is big
    assert (len(most), len(rest)) == (4_500_000, 500_000)
    again, _ = rest.split(0.5, torch.Generator().manual_seed(0))
    assert set(again.rows) < set(rest.rows)
    assert again.sample(8, torch.Generator().manual_seed(0))[0].shape == (8, 1000)


@pytest.mark.parametrize(("rows", "batch"), [(20, 20), (20, 7), (1000, 100), (100_000, 5000)])
def test_no_pair_comes_twice_in_a_batch(rows, batch):
    x = np.arange(rows, dtype=float)[:, None]
    source, generator = ArrayPairs(x, x), torch.Generator().manual_seed(0)
    batches = [source.sample(batch, generator)[0] for _ in range(3)]
    assert all(len(drawn.unique()) == batch for drawn in batches)
    assert not torch.equal(batches[0], batches[1])


def test_a_batch_larger_than_the_data_goes_round():
    drawn, _ = ArrayPairs(X, X).sample(50, torch.Generator().manual_seed(0))
    assert len(drawn[:20].unique(dim=0)) == len(drawn[20:40].unique(dim=0)) == 20
    assert len(drawn) == 50


def test_each_pair_and_place_is_equally_likely():
    x = np.arange(9.0)[:, None]
    source, generator = ArrayPairs(x, x), torch.Generator().manual_seed(0)
    draws = torch.cat([source.sample(2, generator)[0].T for _ in range(9000)])
    for column in draws.T:
        counts = torch.bincount(column.long(), minlength=9)
        assert (counts - 1000).abs().max() < 4.5 * 1000**0.5


def test_foreign_numbers_are_converted():
    for array in (
        *(X.astype(dtype) for dtype in (">f8", ">f4", ">i2", np.longdouble, np.float16)),
        *(torch.from_numpy(X).to(dtype) for dtype in (torch.float16, torch.bfloat16)),
    ):
        x, x_pos = ArrayPairs(array, array).all()
        assert x.tolist() == x_pos.tolist() == X.tolist()
        SeriesPairs(array).sample(3, torch.Generator())


def test_dtypes():
    for given_dtype, expected in (
        (np.float64, torch.float64),
        (np.float32, torch.float32),
        (np.float16, torch.float32),
        (np.uint8, torch.float32),
        (np.bool_, torch.float32),
    ):
        array = np.ones((4, 2), given_dtype)
        x, _ = ArrayPairs(array, array).sample(3, torch.Generator().manual_seed(0))
        assert x.dtype == expected
    tensor = torch.ones(4, 2, requires_grad=True)
    assert ArrayPairs(tensor, tensor).sample(3, torch.Generator())[0].shape == (3, 2)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: WorldPairs(X), TypeError, "world must be a World"),
        (lambda: ArrayPairs(X, X[:-1]), ValueError, "x and x_pos must have the same shape"),
        (lambda: ArrayPairs(X[:1], X[:1]), ValueError, "x must have shape .* N >= 2"),
        (lambda: ArrayPairs(X[0], X[0]), ValueError, "x must have shape"),
        (lambda: ArrayPairs(X, X * np.nan), ValueError, "x_pos must be finite, but row 0"),
        (lambda: ArrayPairs(X.astype(str), X), TypeError, "x must be numeric, got dtype"),
        (lambda: ArrayPairs(X * 1j, X), TypeError, "x must be real, got dtype complex128"),
        (lambda: ArrayPairs(X, X).split(0.05, torch.Generator()), ValueError, "share must leave"),
        (lambda: ArrayPairs(X, X).split(0.95, torch.Generator()), ValueError, "share must leave"),
        (lambda: ArrayPairs(X, X).sample(3, 7), TypeError, "generator must be a torch.Generator"),
        (lambda: SeriesPairs(X).sample(3, None), TypeError, "generator must be a torch.Generator"),
        (lambda: WorldPairs(WORLD).sample(3, None), TypeError, "generator must be a torch.Gen"),
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


def parts_of_a_series(lengths, low, extra, share):
    """A source whose rows hold their place and their session, and the two parts of it."""
    run = np.repeat(np.arange(len(lengths)), lengths)
    rows = np.stack([np.arange(len(run)), run], 1).astype(float)
    source = SeriesPairs(rows, lag=(low, low + extra), groups=run)
    return source, source.split(share, torch.Generator().manual_seed(0))


def rows_of(part):
    """The places that a part ever shows, those of its anchors and the lags it gives."""
    draws = part.all(), part.sample(2000, torch.Generator().manual_seed(0))
    x, x_pos = (torch.cat(both) for both in zip(*draws, strict=True))
    assert torch.equal(x[:, 1], x_pos[:, 1])  # a pair stays in its session
    return set(torch.cat([x, x_pos])[:, 0].int().tolist()), (x_pos - x)[:, 0]


layouts = st.tuples(
    st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 3)
)


@given(layout=layouts)
@settings(max_examples=100, deadline=None)
def test_a_series_has_as_many_anchors_as_it_gives(layout):
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
def test_the_parts_of_a_series_share_no_row(layout, share):
    lengths, low, extra = layout
    try:
        source, parts = parts_of_a_series(lengths, low, extra, share)
    except ValueError as error:  # nothing to pair, or no way to cut
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
def test_of_many_short_sessions_the_last_are_held_out_whole(count, length, share):
    _, (most, rest) = parts_of_a_series([length] * count, length - 1, 0, share)
    assert len(most) + len(rest) == count
    assert abs(len(rest) - share * count) <= 1
    x, _ = rest.all()
    assert x[:, 1].tolist() == list(range(count - len(rest), count))


def test_one_long_session_does_not_spare_all_the_short_ones():
    _, (most, rest) = parts_of_a_series([60] + [4] * 1000, 3, 0, 0.1)
    assert len(rest) == pytest.approx(0.1 * (len(most) + len(rest)), rel=0.3)


@pytest.mark.parametrize(
    ("lengths", "share", "message"),
    [([3], 0.5, "share must leave a pair on either side of 1 anchors"), ([20], 0.05, "share must")],
)
def test_series_that_cannot_be_cut(lengths, share, message):
    with pytest.raises(ValueError, match=message):
        parts_of_a_series(lengths, 2, 0, share)
    with pytest.raises(ValueError, match="share must be a finite number > 0 and < 1, got 1"):
        parts_of_a_series(lengths, 2, 0, 1.0)
