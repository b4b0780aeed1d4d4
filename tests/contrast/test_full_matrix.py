"""InfoNCE with a full matrix: its value, what it is invariant to, and what it finds."""

import pytest
import torch

import isolatent as iso
from isolatent.contrast import FullAnInfoNCE
from isolatent.training.calibration import fit_loss

N, B = 3, 12


def random_loss(generator, n=N, **options):
    loss = FullAnInfoNCE(n, **options).double()
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return loss


def set_matrix(loss, matrix):
    """Set the parameters of a loss to those of a positive definite matrix."""
    factor = torch.linalg.cholesky(matrix)
    with torch.no_grad():
        loss.log_weights.copy_(2 * factor.diagonal().log())
        rows, columns = torch.tril_indices(loss.n, loss.n, -1)
        loss.below.copy_((factor / factor.diagonal())[rows, columns])


@pytest.mark.parametrize("engine", ["dense", "blockwise", "numba"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_loss_by_loops_over_pairs(engine, symmetric, generator):
    loss = random_loss(generator, engine=engine, symmetric=symmetric)
    h, h_pos = torch.randn(2, B, N, generator=generator, dtype=torch.float64)
    matrix = loss.matrix.detach()
    scores = torch.empty(B, B, dtype=torch.float64)
    for i in range(B):
        for j in range(B):
            step = h[i] - h_pos[j]
            scores[i, j] = -0.5 * sum(
                matrix[k, m] * step[k] * step[m] for k in range(N) for m in range(N)
            )
    ways = [scores.logsumexp(way) - scores.diagonal() for way in ((1, 0) if symmetric else (1,))]
    expected = torch.stack(ways).mean().item()
    assert loss(h, h_pos).item() == pytest.approx(expected, abs=1e-10)


def test_negatives_of_each_anchor_are_compared_by_the_same_matrix(generator):
    loss = random_loss(generator, symmetric=False, negatives_from="given")
    h, h_pos = torch.randn(2, B, N, generator=generator, dtype=torch.float64)
    negatives = torch.randn(B, 4, N, generator=generator, dtype=torch.float64)
    candidates = torch.cat([h_pos[:, None], negatives], 1) - h[:, None]
    scores = -0.5 * torch.einsum("bki,ij,bkj->bk", candidates, loss.matrix.detach(), candidates)
    expected = (scores.logsumexp(1) - scores[:, 0]).mean().item()
    assert loss(h, h_pos, negatives).item() == pytest.approx(expected, abs=1e-10)


def test_a_diagonal_matrix_is_aninfonce(generator):
    weights = [0.5, 2.0, 7.0]
    full, diagonal = FullAnInfoNCE(N).double(), iso.AnInfoNCE(N, weights).double()
    set_matrix(full, torch.diag(torch.tensor(weights, dtype=torch.float64)))
    h, h_pos = torch.randn(2, B, N, generator=generator, dtype=torch.float64)
    assert full(h, h_pos).item() == pytest.approx(diagonal(h, h_pos).item(), abs=1e-6)  # float32


def test_a_rotation_of_codes_is_undone_by_one_of_the_matrix(generator):
    """So the axes of codes are not identified."""
    loss, turned = random_loss(generator), FullAnInfoNCE(N).double()
    turn = torch.linalg.qr(torch.randn(N, N, generator=generator, dtype=torch.float64))[0]
    set_matrix(turned, turn.mT @ loss.matrix.detach() @ turn)
    h, h_pos = torch.randn(2, B, N, generator=generator, dtype=torch.float64)
    assert turned(h @ turn, h_pos @ turn).item() == pytest.approx(loss(h, h_pos).item(), abs=1e-10)
    torch.testing.assert_close(turned.axes()[0], loss.axes()[0])


def test_the_gradient_is_the_derivative_of_the_value(generator):
    loss = random_loss(generator, engine="dense")
    h, h_pos = torch.randn(2, 6, N, generator=generator, dtype=torch.float64, requires_grad=True)

    def value(h, h_pos, log_weights, below):
        parameters = {"log_weights": log_weights, "below": below}
        return torch.func.functional_call(loss, parameters, (h, h_pos))

    given = (h, h_pos, loss.log_weights, loss.below)
    assert torch.autograd.gradcheck(value, given)


def test_correlated_steps_are_found(generator):
    """The factors of an anisotropic world, rotated: the matrix and its axes are the true ones."""
    weights = torch.tensor([40.0, 15.0, 5.0], dtype=torch.float64)
    conditional = iso.AnisotropicNormal(tuple(weights.tolist()))
    world = iso.World(iso.Sphere(3), iso.Uniform(), conditional, iso.Identity(), seed=0)
    z, z_pos = (part.double() for part in world.sample_latents(16_384))
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
    loss = FullAnInfoNCE(3).double()
    fit_loss(loss, z @ turn, z_pos @ turn, 1024)
    values, vectors = loss.axes()
    torch.testing.assert_close(values, weights, rtol=0.15, atol=0)
    torch.testing.assert_close((turn @ vectors).abs(), torch.eye(3).double(), rtol=0, atol=0.1)
    torch.testing.assert_close(
        vectors @ torch.diag(values) @ vectors.mT, loss.matrix.detach(), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FullAnInfoNCE(0), "n must be"),
        (lambda: FullAnInfoNCE(3, weight=0.0), "weight must be"),
        (lambda: FullAnInfoNCE(3)(torch.ones(4, 2), torch.ones(4, 2)), "n = 3 codes, got 2"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
