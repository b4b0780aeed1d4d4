"""Each term of the VAE losses equals its formula, evaluated in plain loops or by quadrature."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from isolatent.baselines.elbo import (
    Posterior,
    bernoulli_error,
    entropy,
    gaussian_error,
    kl_to_standard_normal,
    laplace_cross_entropy,
    mean_posterior,
    normal_cross_entropy,
    product_posterior,
    share,
    shared_dimensions,
    slow_divergence,
    twice_kl,
)

MEANS = [[0.0, -1.3, 0.4], [2.0, 0.1, -0.7]]
LOG_VARIANCES = [[0.0, -2.0, 0.5], [-4.0, 1.0, -0.3]]
OTHER_MEANS = [[0.2, -1.1, 3.0], [1.9, -2.0, -0.7]]
OTHER_LOG_VARIANCES = [[-1.0, -2.5, 0.0], [-3.0, 0.2, 0.7]]


def posterior(means, log_variances):
    return Posterior(*(torch.tensor(v, dtype=torch.float64) for v in (means, log_variances)))


Q = posterior(MEANS, LOG_VARIANCES)
Q_POS = posterior(OTHER_MEANS, OTHER_LOG_VARIANCES)


def expected(mean, log_variance, function):
    """Return E f(z) under a normal by quadrature; the Laplace density below has a kink at 0.3."""
    normal = stats.norm(mean, math.exp(log_variance / 2))
    low, high = normal.ppf(1e-14), normal.isf(1e-14)
    value, _ = integrate.quad(
        lambda z: normal.pdf(z) * function(z), low, high, points=[0.3], epsabs=1e-11, limit=200
    )
    return value


def summed(q, function):
    """Sum expectations over dimensions in a plain loop."""
    return [
        sum(expected(m, v, function(i)) for i, (m, v) in enumerate(zip(*row, strict=True)))
        for row in zip(*(part.tolist() for part in q), strict=True)
    ]


def close(values, oracle):
    return values.tolist() == pytest.approx(oracle, rel=1e-8, abs=1e-8)


def test_cross_entropies_and_entropy_equal_their_integrals():
    assert close(normal_cross_entropy(Q), summed(Q, lambda i: lambda z: -stats.norm.logpdf(z)))
    center = torch.full((2, 3), 0.3, dtype=torch.float64)
    laplace = stats.laplace(0.3, 1 / 6)
    oracle = summed(Q, lambda i: lambda z: -laplace.logpdf(z))
    assert close(laplace_cross_entropy(Q, center, 6.0), oracle)
    oracle = [sum(stats.norm(0, math.exp(v / 2)).entropy() for v in row) for row in LOG_VARIANCES]
    assert close(entropy(Q), oracle)


def test_kl_is_cross_entropy_minus_entropy_and_nonnegative():
    assert torch.allclose(kl_to_standard_normal(Q), normal_cross_entropy(Q) - entropy(Q))
    many = posterior(*np.random.default_rng(0).normal(0, 2, (2, 1000, 3)).tolist())
    assert (kl_to_standard_normal(many) > 0).all()
    assert (twice_kl(many, Posterior(many.mean.flip(0), many.log_variance.flip(0))) > 0).all()
    prior = posterior([[0.0, 0.0]], [[0.0, 0.0]])
    assert kl_to_standard_normal(prior).item() == 0


def test_reconstruction_errors_are_negative_log_densities():
    logits = torch.tensor([[[0.5, -2.0]], [[0.0, 30.0]]])
    x = torch.tensor([[[1.0, 0.25]], [[0.0, 1.0]]])
    p = 1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(2.0))
    first = -math.log(p[0]) - 0.25 * math.log(p[1]) - 0.75 * math.log(1 - p[1])
    assert bernoulli_error(logits, x).tolist() == pytest.approx([first, math.log(2)], rel=1e-6)
    mean, seen = torch.zeros(1, 2), torch.tensor([[0.3, -0.4]])
    constant = 2 * stats.norm(0, 0.1).logpdf(0)
    oracle = constant - stats.norm(0, 0.1).logpdf([0.3, -0.4]).sum()
    assert gaussian_error(mean, seen, 0.1).item() == pytest.approx(oracle, rel=1e-6)


def test_slow_divergence_counts_each_entropy_once():
    """γ weights two cross-entropies, one around the mean of each frame, and one mean entropy."""
    beta, gamma, rate = 1.5, 10.0, 6.0
    oracle = []
    for row in range(2):
        normal = laplace = entropies = 0.0
        for i in range(3):
            frames = [(MEANS, LOG_VARIANCES), (OTHER_MEANS, OTHER_LOG_VARIANCES)]
            (m, v), (m_pos, v_pos) = ((a[row][i], b[row][i]) for a, b in frames)
            for mean, log_variance, center in ((m, v, m_pos), (m_pos, v_pos, m)):
                std = math.exp(log_variance / 2)
                normal += 0.5 * (mean**2 + std**2 + math.log(2 * math.pi)) / 2
                entropies += stats.norm(0, std).entropy() / 2
                away = stats.foldnorm.mean(abs(mean - center) / std, scale=std)
                laplace += rate * away - math.log(rate / 2)
        oracle.append(beta * (normal - entropies) + gamma * (laplace - entropies))
    assert close(slow_divergence(Q, Q_POS, beta, gamma, rate), oracle)
    assert torch.allclose(
        slow_divergence(Q, Q_POS, beta, gamma, rate), slow_divergence(Q_POS, Q, beta, gamma, rate)
    )


def test_twice_kl_equals_its_integral():
    for row in range(2):
        for i in range(3):
            q = stats.norm(MEANS[row][i], math.exp(LOG_VARIANCES[row][i] / 2))
            q_pos = stats.norm(OTHER_MEANS[row][i], math.exp(OTHER_LOG_VARIANCES[row][i] / 2))
            oracle = 2 * expected(
                MEANS[row][i],
                LOG_VARIANCES[row][i],
                lambda z, q=q, q_pos=q_pos: q.logpdf(z) - q_pos.logpdf(z),
            )
            assert twice_kl(Q, Q_POS)[row, i].item() == pytest.approx(oracle, rel=1e-7)


def test_the_largest_divergence_is_not_shared_unless_all_are_equal():
    rng = np.random.default_rng(1)
    q, q_pos = (posterior(*rng.normal(size=(2, 500, 5)).tolist()) for _ in range(2))
    shared, delta = shared_dimensions(q, q_pos), twice_kl(q, q_pos)
    rows = torch.arange(500)
    assert not shared[rows, delta.argmax(1)].any()
    assert shared[rows, delta.argmin(1)].all()
    assert shared_dimensions(q, q).all()
    shifted = Posterior(q.mean + 1, q.log_variance)
    level = Posterior(q.mean, torch.zeros_like(q.mean))
    assert not shared_dimensions(q, shifted).all()  # 2 KL of a shift depends on the variance
    assert shared_dimensions(level, Posterior(level.mean, level.log_variance + 1)).all()


@pytest.mark.parametrize(
    "delta",
    [
        [0.0, 4.4, 4.6, 9.0],  # the threshold is 4.5
        [1.0, 5.4, 5.6, 10.0],  # 5.5; half of the maximum would be 5
        [8.0, 8.4, 8.6, 9.0],  # 8.5
    ],
)
def test_the_threshold_is_the_midpoint_of_minimum_and_maximum(delta):
    # 2 KL of two normals of variance v whose means differ by d is d² / v.
    for variance in (1.0, 0.25):
        moved = [math.sqrt(variance * d) for d in delta]
        log_variances = [[math.log(variance)] * 4]
        q, q_pos = posterior([[0.0] * 4], log_variances), posterior([moved], log_variances)
        assert twice_kl(q, q_pos)[0].tolist() == pytest.approx(delta, abs=1e-12)
        assert shared_dimensions(q, q_pos).tolist() == [[True, True, False, False]]


def test_averages_of_two_posteriors_by_hand():
    q, q_pos = posterior([[1.0]], [[math.log(4.0)]]), posterior([[3.0]], [[0.0]])
    mean, log_variance = mean_posterior(q, q_pos)
    assert (mean.item(), log_variance.exp().item()) == pytest.approx((2.0, 2.5))
    mean, log_variance = product_posterior(q, q_pos)
    # Precisions 1/4 and 1: their mean is 5/8, and the means are weighted 1 : 4.
    assert (mean.item(), log_variance.exp().item()) == pytest.approx((2.6, 1.6))


@pytest.mark.parametrize("average", [mean_posterior, product_posterior])
def test_only_shared_dimensions_are_replaced(average):
    assert all(torch.allclose(a, b) for a, b in zip(average(Q, Q), Q, strict=True))
    first, second = share(Q, Q_POS, average).halves()
    shared, common = shared_dimensions(Q, Q_POS), average(Q, Q_POS)
    assert 0 < shared.sum() < 6
    for k in range(2):
        assert torch.equal(first[k][shared], common[k][shared])
        assert torch.equal(second[k][shared], common[k][shared])
        assert torch.equal(first[k][~shared], Q[k][~shared])
        assert torch.equal(second[k][~shared], Q_POS[k][~shared])


def test_gradients_pass_gradcheck():
    def loss(*parts):
        return slow_divergence(Posterior(*parts[:2]), Posterior(*parts[2:]), 1.0, 10.0, 6.0)

    leaves = [part.clone().requires_grad_() for part in (*Q, *Q_POS)]
    assert torch.autograd.gradcheck(loss, leaves)
