"""Evenly spaced numbers, such as a scale or a weight for each dimension."""

import torch


def linspace(low, high, n):
    return tuple(torch.linspace(low, high, n).tolist())
