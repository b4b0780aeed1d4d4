"""Modules compiled for inference compute the same outputs, in evaluation mode."""

import torch
from torch import nn

from isolatent.encoders import ConvEncoder
from isolatent.inference import compile_for_inference, has_known_layers


def test_a_module_of_known_layers_is_frozen_and_computes_the_same():
    torch.manual_seed(0)
    encoder = ConvEncoder(3).train()
    assert has_known_layers(encoder)
    call = compile_for_inference(encoder)
    for rows in (4, 7):
        x = torch.rand(rows, 1, 64, 64)
        torch.testing.assert_close(call(x), encoder(x).detach(), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(call(x), encoder(x).detach(), atol=1e-6, rtol=1e-5)
    assert encoder.training


def test_a_module_of_other_layers_is_called_in_evaluation_mode():
    class Branching(nn.Module):
        def forward(self, x):
            assert not self.training
            return x if x.sum() > 0 else -2 * x

    assert not has_known_layers(Branching())
    call = compile_for_inference(Branching())
    for sign in (1.0, -1.0, 1.0):
        x = sign * torch.ones(3, 2)
        torch.testing.assert_close(call(x), x if sign > 0 else -2 * x)
