"""The page of a comparison of runs."""

import numpy as np
import pytest

import isolatent as iso
from isolatent.report import page_of_consistency, render_page


@pytest.fixture(scope="module")
def codes():
    return np.random.default_rng(0).normal(size=(400, 2))


def test_the_verdict_follows_from_the_agreement(codes):
    rng = np.random.default_rng(1)
    other = rng.normal(size=codes.shape)
    noisy = codes + 0.6 * other
    states = {
        name: page_of_consistency(iso.consistency([codes, run])).headline.state
        for name, run in (("same", -codes), ("noisy", noisy), ("unrelated", other))
    }
    assert states == {"same": "good", "noisy": "open", "unrelated": "bad"}


def test_every_pair_of_runs_is_shown_by_its_names(codes):
    result = iso.consistency([codes, -codes, codes[:, ::-1]])
    html = render_page(page_of_consistency(result, ["a", "b", "<i>"]))
    for pair in ("a, b", "a, &lt;i&gt;", "b, &lt;i&gt;"):
        assert f"{pair} 1" in html
    assert "by chance" in html


def test_names_must_fit_the_runs(codes):
    result = iso.consistency([codes, codes])
    with pytest.raises(ValueError, match="names must be 2, one for each run, got 3"):
        page_of_consistency(result, ["a", "b", "c"])
    with pytest.raises(TypeError, match="result must be a Consistency, got float"):
        page_of_consistency(0.5)
