"""Modules prepared for many calls compute what they are, and estimators what they transform to."""

import numpy as np
import pytest
import torch
from torch import nn

from isolatent import ContrastiveICA, Recipe
from isolatent.baselines import BetaVAE, SupervisedEncoder
from isolatent.encoders import ConvEncoder
from isolatent.evaluation import EncodedGrid
from isolatent.evaluation.disentanglement.inference import has_known_layers, prepared

FEW = Recipe(max_steps=30, batch_size=32)
VECTORS = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)).cumsum(0)
IMAGES = torch.rand(64, 1, 64, 64, generator=torch.Generator().manual_seed(0))


class Shown:
    """A grid that shows one observation at each of its points."""

    names, categorical = ("place",), (False,)

    def __init__(self, observations):
        self.observations, self.sizes = observations, (len(observations),)

    def __len__(self):
        return len(self.observations)

    def factors_at(self, index):
        return index[:, None]

    def observe(self, factors):
        return self.observations[factors[:, 0]]


def fitted():
    for space, conditional in [("sphere", "vmf"), ("sphere", "anisotropic"), ("box", "laplace")]:
        model = ContrastiveICA(2, space=space, conditional=conditional, recipe=FEW, random_state=0)
        yield model.fit(VECTORS), VECTORS
    images = ContrastiveICA(2, encoder="conv", recipe=FEW, random_state=0)
    yield images.fit(IMAGES), IMAGES
    yield ContrastiveICA(2, recipe=FEW, random_state=0).fit(VECTORS.double()), VECTORS.double()
    yield BetaVAE(2, max_steps=2, random_state=0).fit(VECTORS), VECTORS
    yield BetaVAE(2, max_steps=2, random_state=0).fit(IMAGES), IMAGES
    yield SupervisedEncoder(2, max_steps=100, batch_size=32).fit(VECTORS, VECTORS[:, :2]), VECTORS


@pytest.mark.filterwarnings("ignore::isolatent.checks.IsolatentWarning")
def test_codes_on_the_grid_are_those_of_transform(monkeypatch):
    for model, x in fitted():
        assert has_known_layers(model.code_module()), model  # so that threads share the batches
        expected = model.transform(x)
        with monkeypatch.context() as patch:
            patch.setattr(type(model), "transform", None)
            codes = EncodedGrid(model, Shown(x), 0).codes_at(np.arange(len(x)))
        np.testing.assert_allclose(codes, expected, rtol=1e-4, atol=1e-5, err_msg=str(model))


def test_a_module_of_known_layers_is_frozen_and_computes_the_same():
    torch.manual_seed(0)
    encoder = ConvEncoder(3).train()
    call = prepared(encoder)
    for rows in (4, 7):
        x = torch.rand(rows, 1, 64, 64)
        torch.testing.assert_close(call(x), encoder(x).detach(), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(call(x), encoder(x).detach(), atol=1e-6, rtol=1e-5)
    assert encoder.training


def test_a_module_of_other_layers_is_called_as_it_is_in_evaluation_mode():
    class Deciding(nn.Module):
        def forward(self, x):
            assert not self.training
            return x if x.sum() > 0 else -2 * x

    call = prepared(Deciding())
    for sign in (1.0, -1.0, 1.0):
        x = sign * torch.ones(3, 2)
        torch.testing.assert_close(call(x), x if sign > 0 else -2 * x)
