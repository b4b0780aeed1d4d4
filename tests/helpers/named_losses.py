"""Every loss by a name, and its value and gradients."""

import torch

from isolatent.contrast import NCE, NWJ, InfoNCE, SpectralContrastive

LOSSES = {
    "infonce": InfoNCE,
    "decoupled": lambda s, **k: InfoNCE(s, positive_in_denominator=False, **k),
    "nce": NCE,
    "nce counted": lambda s, **k: NCE(s, ratio="count", **k),
    "spectral": SpectralContrastive,
    "nwj": NWJ,
}


def value_and_gradients(loss, h, h_pos, negatives):
    inputs = [
        x.clone().requires_grad_() for x in (h, h_pos) + (() if negatives is None else (negatives,))
    ]
    value = loss(*inputs[:2], negatives=None if negatives is None else inputs[2])
    return value, torch.autograd.grad(value, [*inputs, *loss.parameters()])
