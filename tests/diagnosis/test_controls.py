"""Controls: information against chance, and what a decoder leaves over."""

import math

import pytest
import torch

import isolatent as iso
from isolatent.diagnosis import controls
from isolatent.diagnosis.controls import Decoder, check_information, check_residuals
from isolatent.diagnosis.held_out import HeldOut

N = 4000


def pairs_of(parts):
    source = iso.ArrayPairs(*parts)
    half = N // 2
    batches = [iso.Batch(*(p[rows] for p in parts)) for rows in (slice(half), slice(half, N))]
    return HeldOut(source, *batches, N, source)


class FirstColumns(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n, self.weight = n, torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x[:, : self.n]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def draw(seed, *shape):
    return torch.randn(*shape, generator=generator(seed))


def test_information_is_that_of_normal_pairs():
    x = draw(0, N, 1)
    correlation = 0.6
    x_pos = correlation * x + math.sqrt(1 - correlation**2) * draw(1, N, 1)
    scale = correlation / (2 * (1 - correlation**2))  # e^s is the density ratio, up to potentials
    loss = iso.InfoNCE(
        iso.Lp(p=2, weights=scale),
        potential=_Square((correlation**2 - correlation) / (2 * (1 - correlation**2))),
        potential_pos=_Square((correlation**2 - correlation) / (2 * (1 - correlation**2))),
    )
    check = check_information(FirstColumns(1), loss, pairs_of((x, x_pos)))
    assert check.status == "supported"
    truth = -0.5 * math.log(1 - correlation**2)
    assert check.statistic == pytest.approx(truth, abs=0.03)
    assert 0 < check.error < 0.05
    assert check.reference < 0.05  # of shuffled pairs


class _Square(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, h):
        return self.factor * h.square().sum(-1)


def test_unrelated_pairs_are_at_chance():
    parts = draw(0, N, 2), draw(1, N, 2)
    check = check_information(FirstColumns(2), iso.InfoNCE(iso.Lp(p=2)), pairs_of(parts))
    assert check.status == "contradicted"


@pytest.mark.parametrize(
    ("information", "error", "status"),
    [
        (0.034, 0.005, "supported"),
        (0.008, 0.001, "cannot tell"),  # too little to use, but not by chance
        (0.08, 0.03, "cannot tell"),
        (0.002, 0.001, "contradicted"),
    ],
)
def test_information_is_told_by_its_error_over_twelve_batches(
    monkeypatch, information, error, status
):
    sizes = []

    def values(loss, codes, size):
        sizes.append(size)
        count = len(codes) // size
        spread = error * math.sqrt(count) * torch.linspace(-1, 1, count)
        return (information if len(sizes) == 1 else 0.0) + spread / torch.linspace(
            -1, 1, count
        ).std()

    monkeypatch.setattr(controls, "batch_values", values)
    parts = draw(0, N, 2), draw(1, N, 2)
    check = check_information(FirstColumns(2), iso.InfoNCE(iso.Lp(p=2)), pairs_of(parts))
    assert (check.status, check.error) == (status, pytest.approx(error, rel=1e-3))
    assert check.harm == (1.0 if status == "contradicted" else None)
    assert N // 2 // sizes[0] >= 12


def statuses(parts, n):
    decoder = Decoder.fit(FirstColumns(n), pairs_of(parts), "free", seed=0)
    return {check.key: check.status for check in check_residuals(decoder)}


def test_a_factor_that_is_left_out_is_told_from_noise():
    x = draw(0, N, 3)
    missing = statuses((x, x + 0.1 * draw(1, N, 3)), 2)
    assert (missing["n_components"], missing["noise"]) == ("contradicted", "cannot tell")
    noise = torch.cat([x[:, :2], draw(2, N, 1)], 1), torch.cat([x[:, :2], draw(3, N, 1)], 1)
    noisy = statuses(noise, 2)
    assert (noisy["n_components"], noisy["noise"]) == ("supported", "contradicted")


def test_codes_that_hold_all_leave_nothing():
    x = draw(0, N, 2)
    x = torch.cat([x, x.square().sum(1, keepdim=True)], 1)
    found = statuses((x, x + 0.0), 2)
    assert (found["n_components"], found["noise"]) == ("supported", "supported")


def test_what_codes_explain_says_nothing_of_a_fold():
    """A decoder recovers folded observations from codes as well, which are functions of them."""
    z = draw(0, N, 2)
    folded = torch.stack([z[:, 0].abs(), z[:, 1]], 1)  # z and its reflection look the same
    x = torch.cat([folded, folded.square().sum(1, keepdim=True)], 1)
    for codes in (2, 3):
        assert statuses((x, x + 0.0), codes)["injective"] == "cannot tell"


def test_observations_that_a_decoder_gives_of_counts_are_counts():
    """They are not negative, and vary around their mean as counts do."""
    rate = torch.exp(draw(0, N, 2) @ torch.tensor([[0.5, -0.5, 0.3, 0.8], [0.2, 0.4, -0.6, 0.1]]))
    x, x_pos = (torch.poisson(4 * rate, generator=generator(k)) for k in (1, 2))
    h = [draw(0, N, 2)[: N // 2], draw(0, N, 2)[N // 2 :]]
    testing = [(h[1], x[N // 2 :]), (h[1], x_pos[N // 2 :])]
    decoder = Decoder.fit_codes(h[0], x[: N // 2], testing, 0, 0, counts=True)
    drawn = decoder.observe(h[1], generator(3), noise=True)
    assert drawn.min() >= 0
    spread, truth = ((one - 4 * rate[N // 2 :]).std(0) for one in (drawn, x[N // 2 :]))
    torch.testing.assert_close(spread, truth, rtol=0.25, atol=0.0)
