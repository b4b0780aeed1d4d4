"""A small contrastive training run on a world with three factors, and batches for it."""

import torch
from torch import nn

import isolatent as iso
from isolatent.contrast import Dot, InfoNCE
from isolatent.pairs import Batch
from isolatent.training import ContrastiveTraining

WORLD = iso.World(
    iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(20.0), iso.InvertibleMLP(2, condition_draws=50)
)


def small_encoder(seed=0, *layers):
    """Return a perceptron in float64, with further layers after its activation."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), *layers, nn.Linear(16, 3)).double()


def small_run(recipe, network=None, loss=None, saturated_loss=None):
    return ContrastiveTraining(
        network or small_encoder(),
        loss or InfoNCE(Dot(learn_scale=True)),
        recipe,
        torch.Generator().manual_seed(0),
        saturated_loss,
    )


def small_batch(count=64, seed=0):
    x, x_pos = WORLD.sample_pairs(count, torch.Generator().manual_seed(seed))
    return Batch(x.double(), x_pos.double())


def trained_parameters(run):
    """Return copies of all parameters of a run."""
    modules = (run.network, *run.modules.values())
    return [p.detach().clone() for module in modules for p in module.parameters()]
