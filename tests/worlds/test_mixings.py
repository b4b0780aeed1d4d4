"""Laws of all mixings: inverse, state, reproducibility."""

import pytest
import torch

from isolatent.worlds import FlowMixing, Identity, InvertibleMLP, Linear, Mixing
from isolatent.worlds.mixings import ACTIVATIONS

MIXINGS = [
    Identity(),
    Linear(condition_draws=500),
    Linear(n_observed=25),
    Linear(matrix=[[2.0] + [0.0] * 9, *torch.eye(10)[1:].tolist()]),
    FlowMixing(),
    *(InvertibleMLP(3, activation, condition_draws=500) for activation in ACTIVATIONS),
    InvertibleMLP(layers=1, condition_draws=500),
    InvertibleMLP(layers=4, n_observed=20),
]


@pytest.mark.parametrize("mixing", MIXINGS, ids=repr)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)])
def test_inverse_recovers_the_latents(mixing, dtype, tolerance, generator):
    built = mixing.build(10, generator)
    z = torch.rand(2000, 10, generator=generator, dtype=dtype) * 2 - 1
    x = built(z)
    assert x.dtype == dtype
    assert x.shape == (2000, built.n_observed)
    assert (built.inverse(x) - z).abs().max() < tolerance
    if getattr(mixing, "activation", None) != "elu" and not isinstance(mixing, FlowMixing):
        wide = 3 * torch.randn(2000, 10, generator=generator, dtype=dtype)
        error = (built.inverse(built(wide)) - wide).norm(dim=-1) / wide.norm(dim=-1)
        assert error.max() < tolerance


def test_elu_raises_where_rounding_prevents_inversion(generator):
    mixing = InvertibleMLP(2, "elu", condition_draws=100).build(4, generator)
    far = 100 * torch.randn(500, 4, generator=generator)
    with pytest.raises(ValueError, match=r"x must give values above -1 .*leaky_elu"):
        mixing.inverse(mixing(far))


@pytest.mark.parametrize("mixing", MIXINGS, ids=repr)
def test_state_dict_holds_the_weights(mixing, generator):
    built, other = mixing.build(10, generator), mixing.build(10, generator)
    other.load_state_dict(built.state_dict())
    z = torch.rand(20, 10, generator=generator)
    assert torch.equal(other(z), built(z))
    assert torch.equal(other.inverse(built(z)), built.inverse(built(z)))
    assert not any(weight.requires_grad for weight in built.parameters())


def test_a_mixing_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Mixing()


@pytest.mark.parametrize("mixing", MIXINGS, ids=repr)
def test_the_seed_determines_the_map(mixing):
    z = torch.linspace(-1, 1, 50, dtype=torch.float64).reshape(5, 10)
    first, second, other = (mixing.build(10, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first(z), second(z))
    if not isinstance(mixing, Identity) and getattr(mixing, "matrix", None) is None:
        assert not torch.equal(first(z), other(z))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_increase_and_are_inverted(name):
    activate, deactivate = ACTIVATIONS[name]
    x = torch.linspace(-15, 100, 4001, dtype=torch.float64)
    y = activate(x, 0.2)
    assert (y.diff() > 0).all()
    torch.testing.assert_close(deactivate(y, 0.2), x, atol=1e-8, rtol=0)


def test_layers_follow_the_papers(generator):
    mixing = InvertibleMLP(layers=3).build(10, generator)
    for weight in mixing.weights:
        torch.testing.assert_close(weight.norm(dim=0), torch.ones(10, dtype=torch.float64))
        assert torch.linalg.cond(weight) < 4.5  # the smallest of 25 000 lies at 3.5 to 4.2
    z = torch.randn(7, 10, generator=generator, dtype=torch.float64)
    by_hand = z
    for depth, weight in enumerate(mixing.weights):
        by_hand = by_hand if depth == 0 else torch.where(by_hand > 0, by_hand, 0.2 * by_hand)
        by_hand = by_hand @ weight.T
    torch.testing.assert_close(mixing(z), by_hand)


def test_expanded_data_lie_in_no_linear_subspace(generator):
    mixing = InvertibleMLP(3, n_observed=12, condition_draws=100).build(3, generator)
    x = mixing(torch.randn(5000, 3, generator=generator, dtype=torch.float64))
    assert torch.linalg.matrix_rank(x - x.mean(0)) == 12


def test_building_leaves_the_global_generator_unchanged(generator):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for mixing in MIXINGS:
        mixing.build(10, generator)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda g: InvertibleMLP(0), ValueError, "layers must be an integer >= 1, got 0"),
        (
            lambda g: InvertibleMLP(3, "tanh"),
            ValueError,
            "activation must be one of 'leaky_relu', .* got 'tanh'",
        ),
        (lambda g: InvertibleMLP(3, slope=1.5), ValueError, "slope must be"),
        (lambda g: InvertibleMLP(3, n_observed=5).build(10, g), ValueError, "n_observed must be"),
        (lambda g: InvertibleMLP(3, condition_draws=0), ValueError, "condition_draws must be"),
        (lambda g: Linear(matrix=[[1.0, 1.0], [1.0, 1.0]]), ValueError, "full column rank"),
        (lambda g: Linear(matrix=[[1.0, 0.0], [0.0, 1.0]]).build(3, g), ValueError, "n = 3"),
        (
            lambda g: Linear(7, [[1.0, 0.0], [0.0, 1.0]]),
            ValueError,
            "n_observed must be None or the number",
        ),
        (lambda g: Linear(matrix="a"), ValueError, "matrix must be a finite m x n matrix"),
        (lambda g: Linear(matrix=[[1.0, 2.0], [3.0]]), ValueError, "matrix must be a rectangular"),
        (lambda g: Linear(matrix=torch.zeros(2, 0)), ValueError, "matrix must be a finite m x n"),
        (lambda g: FlowMixing(transforms=1), ValueError, "transforms must be an integer >= 2"),
        (lambda g: FlowMixing().build(1, g), ValueError, "n .for FlowMixing. must be"),
        (lambda g: Identity()(torch.zeros(2, 2)), RuntimeError, "has no weights"),
        (lambda g: Identity().build(3, g)(torch.zeros(2, 2)), ValueError, r"shape \(N, 3\)"),
        (lambda g: Identity().build(0, g), ValueError, "n must be an integer >= 1, got 0"),
        (
            lambda g: ACTIVATIONS["elu"][1](torch.tensor([-2.0]), 0.2),
            ValueError,
            "x must give values",
        ),
    ],
)
def test_wrong_arguments(make, error, message, generator):
    with pytest.raises(error, match=message):
        make(generator)
