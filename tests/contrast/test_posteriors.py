"""Posteriors of codes: closed forms against samples, limits, and what pairs leave open."""

import numpy as np
import pytest
import torch
from scipy import special
from torch import Generator, nn

import isolatent as iso
from isolatent.contrast import NetworkPotential, PosteriorHead, PosteriorInfoNCE
from isolatent.contrast.posteriors import (
    GEOMETRIES,
    expected_scores,
    posterior_size,
    posterior_std,
)
from isolatent.contrast.vmf import concentration, spread_of

GENERATOR = Generator().manual_seed(0)


def posteriors(geometry: str, count: int = 6, n: int = 3) -> torch.Tensor:
    head = PosteriorHead(n, geometry).double()
    return head(torch.randn(count, head.n_inputs, generator=GENERATOR, dtype=torch.float64))


def test_expectation_under_normal_posteriors_is_that_of_samples() -> None:
    a, b = posteriors("free", 4, 2), posteriors("free", 5, 2)
    step = torch.tensor([0.5, 0.2], dtype=torch.float64)
    draws = 200_000
    found = expected_scores(a, b, step, "free")
    offset = 0.5 * step.log().sum()  # log of the density is without constants
    for i, j in ((0, 0), (1, 4), (3, 2)):
        noise = torch.randn(2, draws, 2, generator=GENERATOR, dtype=torch.float64)
        z, z_pos = (h[:2] + h[2:].sqrt() * e for h, e in zip((a[i], b[j]), noise, strict=True))
        mean = (-0.5 * ((z - z_pos) ** 2 / step).sum(1)).exp().mean().log()
        assert float(found[i, j] + offset) == pytest.approx(float(mean), abs=0.03)


def series(cosine: np.ndarray, kappas: tuple[float, ...], n: int) -> np.ndarray:
    """Return the density of a chain of vMF steps against the uniform one, as a series."""
    total, order = np.zeros_like(cosine), n / 2 - 1
    for k in range(200):
        factors = [special.ive(order + k, q) / special.ive(order, q) for q in kappas]
        term = (2 * k + n - 2) / (n - 2) * np.prod(factors)
        total += term * special.eval_gegenbauer(k, order, cosine)
    return total


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("kappas", [(5, 5, 5), (2, 10, 30), (20, 100, 20), (50, 200, 100)])
def test_expectation_under_vmf_posteriors_is_nearly_exact(n: int, kappas: tuple) -> None:
    cosine = np.linspace(-1, 1, 401)
    w = [float(spread_of(kappa, n)) for kappa in kappas]
    pole = torch.zeros(1, n, dtype=torch.float64)
    pole[0, 0] = 1
    others = torch.zeros(len(cosine), n, dtype=torch.float64)
    others[:, 0] = torch.from_numpy(cosine)
    others[:, 1] = (1 - others[:, 0] ** 2).clamp(min=0).sqrt()
    a = torch.cat([pole, torch.full((1, 1), w[0])], 1)
    b = torch.cat([others, torch.full((len(cosine), 1), w[2])], 1)
    found = expected_scores(a, b, torch.tensor([w[1]], dtype=torch.float64), "sphere")[0].numpy()
    exact = series(cosine, kappas, n)
    mass = np.maximum(exact, 1e-30) * np.maximum(1 - cosine**2, 0) ** ((n - 3) / 2)
    error = np.log(np.maximum(exact, 1e-30)) - found
    assert abs((mass * error).sum() / mass.sum()) < 0.006  # nats of divergence


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_gradients(geometry: str) -> None:
    a, b = (posteriors(geometry, 4).requires_grad_() for _ in range(2))
    step = torch.full((posterior_size(3, geometry) - 3,), 0.3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda *h: expected_scores(*h, step, geometry), (a, b))
    loss, head = PosteriorInfoNCE(3, geometry).double(), PosteriorHead(3, geometry).double()
    raw = torch.randn(5, head.n_inputs, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: loss(head(x), head(x.roll(1, 1))), (raw,))


@pytest.mark.parametrize("symmetric", [True, False])
def test_without_noise_it_is_the_plain_loss(symmetric: bool) -> None:
    h, h_pos = torch.randn(2, 12, 3, generator=GENERATOR, dtype=torch.float64)
    certain = torch.full((12, 3), 1e-9, dtype=torch.float64)
    free = PosteriorInfoNCE(3, "free", step=[0.5, 0.25, 1.0], symmetric=symmetric)
    plain = iso.InfoNCE(iso.Lp(p=2, weights=[1.0, 2.0, 0.5]), symmetric=symmetric)
    found = free(torch.cat([h, certain], 1), torch.cat([h_pos, certain], 1))
    torch.testing.assert_close(found, plain(h, h_pos), rtol=1e-6, atol=0)

    h, h_pos = (nn.functional.normalize(part, dim=1) for part in (h, h_pos))
    sphere = PosteriorInfoNCE(3, "sphere", step=float(spread_of(7.0, 3)), symmetric=symmetric)
    plain = iso.InfoNCE(iso.Dot(scale=7.0), symmetric=symmetric)
    found = sphere(*(torch.cat([part, certain[:, :1]], 1) for part in (h, h_pos)))
    torch.testing.assert_close(found, plain(h, h_pos), rtol=1e-5, atol=0)


@pytest.mark.parametrize("share", [0.4, 0.8, 1.0])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_pairs_do_not_tell_noise_from_steps(geometry: str, share: float) -> None:
    size = posterior_size(3, geometry)
    networks = [NetworkPotential(size) for _ in range(2)]
    for network in networks:
        nn.init.normal_(network.out.weight)
    loss = PosteriorInfoNCE(3, geometry, potential=networks[0], potential_pos=networks[1]).double()
    head = PosteriorHead(3, geometry).double()
    x, x_pos = 0.05 * torch.randn(2, 60, size, generator=GENERATOR, dtype=torch.float64)
    before = loss(head(x), head(x_pos))
    found, least = loss.set_noise_share(head, head(x), head(x_pos), share)
    h, h_pos = head(x), head(x_pos)
    assert least < 0.4
    assert found == pytest.approx(share)
    noise = torch.cat([h, h_pos])[:, 3:].mean(0) * 2
    assert (noise / (noise + loss.step)).mean().item() == pytest.approx(share, rel=1e-4)
    torch.testing.assert_close(loss(h, h_pos), before, rtol=1e-5, atol=0)


def test_share_is_at_least_what_differs_between_observations() -> None:
    loss, head = PosteriorInfoNCE(2, "sphere"), PosteriorHead(2, "sphere")
    x = 2 * torch.randn(500, 3, generator=GENERATOR)
    found, least = loss.set_noise_share(head, head(x), head(x), 0.1)
    assert found == pytest.approx(least)
    assert least > 0.3
    assert bool((head(x)[:, 2] > 0).all())


def test_standard_deviations_are_those_of_samples() -> None:
    kappa, n = 12.0, 3
    mode = nn.functional.normalize(torch.tensor([[1.0, 0.5, -0.2]]), dim=1)
    posterior = torch.cat([mode, torch.full((1, 1), float(spread_of(kappa, n)))], 1)
    draws = iso.VonMisesFisher(kappa).sample(iso.Sphere(n), mode.expand(100_000, n), GENERATOR)
    found = posterior_std(posterior, n, "sphere")[0]
    torch.testing.assert_close(found, draws.std(0), rtol=0.02, atol=0)
    assert float(concentration(posterior[0, n:], n)) == pytest.approx(kappa, rel=1e-3)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: PosteriorHead(2, "box"), "geometry must be"),
        (lambda: PosteriorHead(1, "sphere"), "n must be"),
        (lambda: PosteriorHead(2, "free")(torch.zeros(3, 2)), r"h must have shape \(N, 4\)"),
        (lambda: PosteriorInfoNCE(2, "cube"), "geometry must be"),
        (lambda: PosteriorInfoNCE(2, "free", step=-1.0), "step must be"),
        (lambda: PosteriorInfoNCE(2, "sphere", step=[1.0, 2.0]), "step must be"),
        (lambda: PosteriorInfoNCE(2, "free")(torch.zeros(3, 2), torch.zeros(3, 2)), "posteriors"),
        (lambda: PosteriorInfoNCE(2, "free")(torch.ones(1, 4), torch.ones(1, 4)), "at least 2"),
    ],
)
def test_bad_input(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
