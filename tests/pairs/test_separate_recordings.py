"""Pairs within and across recordings with columns of their own."""

import numpy as np
import pytest
import torch

from isolatent.pairs import SeparateRecordings, SeriesPairs, lay_out


def clocks(*lengths, starts=None, width=1):
    """Recordings whose first column is the time, from different starts."""
    starts = starts or [0] * len(lengths)
    return [
        np.stack([start + np.arange(float(n))] * (k + width), 1)
        for k, (n, start) in enumerate(zip(lengths, starts, strict=True))
    ]


def generator():
    return torch.Generator().manual_seed(0)


def source(recordings, common="times", lag=1, **options):
    series = [
        SeriesPairs(x, lag=lag, times=x[:, 0] if common == "times" else None, **options)
        for x in recordings
    ]
    return SeparateRecordings(series, common)


@pytest.mark.parametrize("lag", [1, (2, 2), 3])
@pytest.mark.parametrize("common", ["times", "labels"])
def test_pairs_across_recordings_have_the_lags_of_those_within(common, lag):
    recordings = clocks(50, 40, 60, starts=[0, 15, 5])
    if common == "labels":
        common = [x[:, 0].astype(int) for x in recordings]
    pairs = source(recordings, common, lag)
    shortest, longest = (1, lag) if isinstance(lag, int) else lag
    crossed = 0
    draws = generator()
    for batch in [pairs.all(), *(pairs.sample(30, draws) for _ in range(20))]:
        lags = batch.x_pos[:, 1] - batch.x[:, 1]
        assert lags.min() >= shortest
        assert lags.max() <= longest
        crossed += int((batch.x[:, 0] != batch.x_pos[:, 0]).sum())
    assert crossed > 100


def test_a_block_has_anchors_of_one_recording_and_positives_of_one():
    pairs = source(clocks(50, 50, 50))
    draws = generator()
    for batch in [pairs.all(), *(pairs.sample(31, draws) for _ in range(10))]:
        for block in batch.split_blocks():
            assert len(block.x[:, 0].unique()) == len(block.x_pos[:, 0].unique()) == 1
    assert [len(block) for block in pairs.sample(31, draws).split_blocks()] == [11, 10, 10]


def test_parts_of_a_split_share_no_row():
    recordings = clocks(50, 40, starts=[0, 10])
    most, rest = source(recordings).split(0.2, generator())
    seen = []
    for part in (most, rest):
        batch = part.all()
        both = torch.cat([batch.x[:, :2], batch.x_pos[:, :2]])
        seen.append({tuple(row) for row in both.tolist()})
    assert not seen[0] & seen[1]
    assert most.is_shared
    assert rest.is_shared


def test_rows_without_a_label_or_with_nan_are_no_common_moment():
    x, y = clocks(30, 30)
    y[7] = np.nan
    labels = np.arange(30.0)
    labels[3] = np.nan
    with pytest.warns(match="1 of 30 rows hold NaN"):
        pairs = source([x, y], [labels, labels])
    batch = pairs.all()
    across = batch.x[:, 0] != batch.x_pos[:, 0]
    positives = set(batch.x_pos[across, 1].tolist())
    assert {5.0, 6.0} <= positives
    assert 3.0 not in positives
    assert batch.x_pos.isfinite().all()
    assert 7.0 not in batch.x_pos[across & (batch.x_pos[:, 0] == 1), 1]


def test_repeated_labels_are_all_drawn():
    x, y = clocks(10, 30)
    pairs = source([x, y], [np.arange(10), np.arange(30) % 10])
    draws = generator()
    drawn = torch.cat([pairs.sample(20, draws).x_pos for _ in range(60)])
    assert set(drawn[drawn[:, 0] == 1, 1].tolist()) == set(map(float, range(1, 30)))


def test_only_chains_of_common_moments_are_shared():
    a, b, c, d = clocks(20, 20, 20, 20)
    first, second = np.arange(20), np.arange(20) + 100
    apart = source([a, b, c, d], [first, first, second, second])
    joined = source([a, b, c], [first, np.r_[first[:10], second[:10]], second])
    assert (apart.is_shared, joined.is_shared, source([a, b], None).is_shared) == (
        False,
        True,
        False,
    )
    with pytest.raises(ValueError, match="no pair of recording 0 has a positive at a moment"):
        source([a, b], [first, second])


def test_nanoseconds_since_1970_are_compared_exactly():
    start = np.datetime64("2024-01-01T00:00:00", "ns")
    times = [start + np.arange(20) * np.timedelta64(10, "ns"),
             start + np.arange(5, 25) * np.timedelta64(10, "ns")]  # fmt: skip
    x, y = clocks(20, 20, starts=[0, 5])
    series = [SeriesPairs(one, times=at) for one, at in zip((x, y), times, strict=True)]
    batch = SeparateRecordings(series, "times").all()
    assert (batch.x_pos[:, 1] - batch.x[:, 1] == 1).all()
    assert (batch.x[:, 0] != batch.x_pos[:, 0]).sum() == 14 + 15


def test_layout_is_number_columns_and_zeros():
    x = torch.rand(4, 2)
    laid_out = lay_out(x, 1, 5)
    assert torch.equal(laid_out[:, 1:3], x)
    assert (laid_out[:, 0] == 1).all()
    assert (laid_out[:, 3:] == 0).all()
