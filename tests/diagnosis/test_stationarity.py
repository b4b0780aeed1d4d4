"""Sessions of a recording: false alarms of slow codes, and what differs between sessions."""

import numpy as np
import pytest

from isolatent.diagnosis.stationarity import compare_sessions
from isolatent.pairs import SeriesPairs


def sessions_of(rng, rate, count=8, rows=500, width=None, shift=0.0):
    """Return codes, squared steps and session numbers of autoregressive sessions."""
    codes, steps, numbers = [], [], []
    for number in range(count):
        noise = rng.normal(size=(rows + 200, 2)) * np.sqrt(1 - rate**2)
        z = np.zeros_like(noise)
        for t in range(1, len(z)):
            z[t] = rate * z[t - 1] + noise[t]
        z = z[200:]
        scale = 1.0 if width is None or number else width
        codes.append(z[:-1] + (shift if number == 0 else 0.0))
        steps.append((scale * np.diff(z, axis=0)) ** 2)
        numbers.append(np.full(rows - 1, number))
    return np.concatenate(codes), np.concatenate(steps).sum(1), np.concatenate(numbers)


@pytest.mark.parametrize("rate", [0.0, 0.9, 0.98])
def test_sessions_of_one_process_do_not_differ(rate):
    rng = np.random.default_rng(0)
    found = [compare_sessions(*sessions_of(rng, rate)) for _ in range(40)]
    assert not any(one.wider or one.elsewhere for one in found)
    assert all(one.n_sessions == 8 for one in found)


def test_one_session_that_differs_is_found():
    rng = np.random.default_rng(1)
    wide = compare_sessions(*sessions_of(rng, 0.9, width=2.0))
    assert wide.wider
    assert not wide.elsewhere
    assert wide.ratio == pytest.approx(2.0, rel=0.15)
    far = compare_sessions(*sessions_of(rng, 0.9, shift=3.0))
    assert far.elsewhere
    assert not far.wider


def test_one_session_or_short_ones_are_not_compared():
    rng = np.random.default_rng(2)
    assert compare_sessions(*sessions_of(rng, 0.5, count=1)) is None
    assert compare_sessions(*sessions_of(rng, 0.5, rows=90)) is None


def test_session_numbers_belong_to_the_anchors():
    x = np.arange(30.0)[:, None]
    x[12] = np.nan
    with pytest.warns(match="NaN"):
        pairs = SeriesPairs(x, lag=2, groups=np.repeat([5, 3, 5], 10))
    anchors = pairs.all()[0].numpy().squeeze(1)
    assert pairs.sessions().tolist() == (anchors // 10).tolist()
    whole = SeriesPairs(np.arange(30.0)[:, None], lag=2, groups=np.repeat([5, 3, 5], 10))
    for part in (whole, *whole.split(0.3, None)):
        assert part.sessions().tolist() == (part.all()[0].numpy().squeeze(1) // 10).tolist()
