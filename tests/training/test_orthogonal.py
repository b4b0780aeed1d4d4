"""Orthogonalised steps, which many codes are trained with."""

import re

import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.encoders import MLP, PaperMLP
from isolatent.training.orthogonal import (
    MANY_CODES,
    OrthogonalAdamW,
    matrices_of_many_codes,
    orthogonalize,
)


@pytest.mark.parametrize("shape", [(30, 30), (12, 40), (40, 12)])
def test_a_step_keeps_singular_vectors_and_makes_singular_values_about_one(shape):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(shape, generator=generator)
    u, values, v = torch.linalg.svd(matrix, full_matrices=False)
    found = u.mT @ orthogonalize(matrix) @ v.mT
    inside = found.diagonal()[values > 0.05 * values[0]]
    assert ((inside > 0.6) & (inside < 1.3)).all()
    assert (found - found.diagonal().diag()).abs().max() < 1e-4


def test_a_gradient_of_zero_is_no_step():
    assert torch.equal(orthogonalize(torch.zeros(3, 2)), torch.zeros(3, 2))


def test_other_parameters_take_the_steps_of_adamw():
    """A group that is not marked does not notice the groups that are."""
    both = [nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2)]
    weight = nn.Parameter(torch.eye(2))
    turned = {"params": [weight], "orthogonal": True}
    optimisers = [
        OrthogonalAdamW([{"params": [both[0]]}, turned], lr=0.1),
        torch.optim.AdamW([both[1]], lr=0.1),
    ]
    for _ in range(5):
        for vector, optimiser in zip(both, optimisers, strict=True):
            optimiser.zero_grad()
            (vector.square().sum() + weight.square().sum()).backward()
            optimiser.step()
    assert torch.equal(*both)


def test_what_does_not_matter_to_the_loss_stays():
    """A matrix without a gradient keeps its value, whatever the decay."""
    weight = nn.Parameter(torch.eye(2))
    OrthogonalAdamW([{"params": [weight], "orthogonal": True}], lr=1.0).step()
    assert torch.equal(weight, torch.eye(2))


def test_only_default_perceptrons_of_many_codes_are_trained_so():
    many, few = MANY_CODES, MANY_CODES - 1
    assert len(matrices_of_many_codes(MLP(8, many))) == 4  # two hidden layers, the last, the skip
    for other in (MLP(8, few), MLP(8, many, dropout=0.1), PaperMLP(8, many), nn.Linear(8, many)):
        assert matrices_of_many_codes(other) == []


def test_a_run_of_many_codes_is_resumed_bit_for_bit(tmp_path):
    n = MANY_CODES
    world = iso.World(iso.Sphere(n), iso.Uniform(), iso.VonMisesFisher(30.0), iso.Linear(), seed=0)
    x, x_pos = world.sample_pairs(1200)

    def fit(steps, **options):
        recipe = iso.Recipe(max_steps=12, batch_size=64, warmup=2)
        model = iso.ContrastiveICA(n, space="sphere", recipe=recipe, random_state=0)

        def stop(step):
            if step.number == steps:
                raise KeyboardInterrupt

        try:
            model.fit(x, x_pos, on_step=stop, **options)
        except KeyboardInterrupt:
            return None
        return model.transform(x)

    whole = fit(None)
    assert fit(6, checkpoint=tmp_path) is None
    assert (fit(None, resume=tmp_path) == whole).all()


def test_many_codes_on_a_sphere_go_on_with_a_smaller_scale_once():
    """The loss that replaces a saturated one is an InfoNCE, which is not replaced again."""
    n = MANY_CODES
    world = iso.World(iso.Sphere(n), iso.Uniform(), iso.VonMisesFisher(1e4), iso.Linear(), seed=0)
    recipe = iso.Recipe(max_steps=60, batch_size=64, warmup=2)
    model = iso.ContrastiveICA(n, space="sphere", recipe=recipe, random_state=0).fit(world)
    found = re.search(r"then a smaller scale from step (\d+) \(saturated\)", str(model.guarantee_))
    assert found is not None, model.guarantee_
    assert int(found[1]) < 50
