"""Modules compiled for inference, or applied in chunks, compute the same outputs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from isolatent import inference
from isolatent.encoders import ConvEncoder
from isolatent.inference import (
    CHUNK_NUMBERS,
    CHUNK_ROWS,
    chunk_slices,
    compile_for_inference,
    device_of,
    dtype_of,
    encode_chunks,
    has_known_layers,
)


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


@given(n_rows=st.integers(0, 50_000), row_size=st.integers(0, 2**23))
def test_slices_cover_all_rows_in_order_and_are_bounded(n_rows, row_size):
    if row_size > CHUNK_NUMBERS:
        n_rows = min(n_rows, 100)  # one row at a time
    slices = [*chunk_slices(n_rows, row_size)]
    assert [row for part in slices for row in range(part.start, part.stop)] == list(range(n_rows))
    for part in slices:
        rows = part.stop - part.start
        assert 1 <= rows <= CHUNK_ROWS
        assert rows == 1 or rows * row_size <= CHUNK_NUMBERS


@pytest.mark.parametrize("shape", [(1, 3), (7, 3), (20, 3), (20, 1, 2, 2)])
def test_chunks_give_the_codes_of_all_rows_at_once(monkeypatch, shape, generator):
    monkeypatch.setattr(inference, "CHUNK_ROWS", 6)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    module = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 2), nn.Tanh()).double()
    sizes = []
    module.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    codes = encode_chunks(module, x)
    assert max(sizes) <= 6
    assert sum(sizes) == len(x)
    torch.testing.assert_close(codes, module(x).detach(), rtol=0, atol=1e-14)
    assert not codes.requires_grad


def test_rows_are_converted_to_the_precision_of_the_module():
    module = nn.Linear(3, 2)
    assert encode_chunks(module, torch.ones(4, 3, dtype=torch.float64)).dtype == torch.float32
    assert encode_chunks(module.double(), torch.ones(4, 3)).dtype == torch.float64


def test_another_function_can_be_applied():
    module = nn.Linear(3, 2)
    x = torch.arange(12.0).view(4, 3)
    assert torch.equal(encode_chunks(module, x, lambda rows: rows.sum(1)), x.sum(1))


def test_the_precision_is_that_of_the_trained_parameters():
    module = nn.Sequential(nn.Linear(2, 2).double().requires_grad_(False), nn.Linear(2, 2))
    assert dtype_of(module) == torch.float32
    assert device_of(module) == torch.device("cpu")
    with pytest.raises(ValueError, match="encoder must have parameters to train, got Identity"):
        dtype_of(nn.Identity())
