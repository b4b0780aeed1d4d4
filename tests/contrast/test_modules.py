"""Every public module follows its device and its dtype, and needs no float64."""

import contextlib

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from isolatent import contrast, encoders
from isolatent.contrast import (
    NCE,
    NWJ,
    AlignUniform,
    AnchorScale,
    AnInfoNCE,
    ConstantPotential,
    Dot,
    Ensemble,
    FactorScale,
    FullAnInfoNCE,
    InfoNCE,
    LinearDynamics,
    Lp,
    NetworkDynamics,
    NetworkPotential,
    Pairing,
    PosteriorHead,
    PosteriorInfoNCE,
    SaturatedAnInfoNCE,
    SaturatedInfoNCE,
    SpectralContrastive,
    SphereMoments,
)
from isolatent.encoders import (
    MLP,
    Anscombe,
    BoxHead,
    ConvEncoder,
    LinearAxes,
    PaperMLP,
    PooledEncoder,
    PrincipalAxes,
    ProjectedEncoder,
    RecordingEncoders,
    ResidualEncoder,
    SphereHead,
    Straightening,
    Whitening,
)

N = 3
SIMILARITIES = [lambda: Dot(0.1), lambda: Lp(1.5, weights=[0.1, 0.2, 0.3])]
LOSSES = [
    lambda: InfoNCE(Dot(0.1), potential=ConstantPotential(), potential_pos=NetworkPotential(N)),
    lambda: InfoNCE(Lp(1.0, weights=[0.1, 0.2, 0.3]), negatives_from="both"),
    lambda: AnInfoNCE(N, symmetric=False),
    lambda: NCE(Dot(learn_scale=True)),
    lambda: AlignUniform(),
    lambda: SpectralContrastive(Lp(weights=0.1)),
    lambda: NWJ(Lp(3.0)),
    lambda: SaturatedInfoNCE(N),
    lambda: SaturatedInfoNCE(N, geometry="box"),
    lambda: SaturatedInfoNCE(N, geometry="free"),
    lambda: SaturatedInfoNCE(N, geometry="box", unrelated=0.3),
    lambda: SaturatedAnInfoNCE(N),
    lambda: SphereMoments(),
    lambda: FullAnInfoNCE(N),
    lambda: PosteriorInfoNCE(N - 1, "sphere"),
    lambda: InfoNCE(
        Dot(0.1),
        pairing=Pairing(),
        anchor_scale=AnchorScale(N),
        factor_scale=FactorScale(N),
        dynamics=NetworkDynamics(N),
    ),
]
ON_CODES = [
    *[lambda: ConstantPotential(), lambda: NetworkPotential(N), lambda: MLP(N, N)],
    *[lambda: PaperMLP(N, N), lambda: BoxHead(), lambda: SphereHead(2.0), lambda: Whitening(N)],
    Anscombe,
    *[lambda: PrincipalAxes(N), lambda: Straightening(N), lambda: AnchorScale(N)],
    lambda: LinearAxes(N),
    *[lambda: LinearDynamics(N), lambda: NetworkDynamics(N)],
    lambda: PosteriorHead(N - 1, "sphere"),
]
WITHOUT_ARGUMENTS = [lambda: Pairing(), lambda: FactorScale(N)]
ON_IMAGES = [
    *[lambda: ConvEncoder(N), lambda: PooledEncoder(N), lambda: ResidualEncoder(N, channels=1)],
    lambda: ProjectedEncoder(N, 1, (8, 16), n_features=16),
]
ALL = [
    *[*SIMILARITIES, *LOSSES, *ON_CODES, *ON_IMAGES, *WITHOUT_ARGUMENTS],
    lambda: Ensemble([AnInfoNCE(N), InfoNCE(Dot(0.1))]),
    lambda: RecordingEncoders([MLP(N, N), MLP(N, N)], (N, N)),
]


def test_every_public_module_is_listed():
    public = {
        item
        for package in (contrast, encoders)
        for item in (getattr(package, name) for name in package.__all__)
        if isinstance(item, type) and issubclass(item, nn.Module)
        if not getattr(item, "__abstractmethods__", None)
    }
    assert {type(make()) for make in ALL} == public


def tensors(module):
    """All tensors of a module and its parts, also those that are neither parameter nor buffer."""
    yield from module.parameters()
    yield from module.buffers()
    for part in module.modules():
        yield from (x for x in tree_leaves(vars(part)) if isinstance(x, torch.Tensor))


@pytest.mark.parametrize("make", ALL)
def test_tensors_have_the_dtype_and_the_device_that_are_asked_for(make):
    assert {x.dtype for x in tensors(make())} - {torch.bool} <= {torch.float32}
    assert {x.dtype for x in tensors(make().double())} - {torch.bool} <= {torch.float64}
    assert {x.device.type for x in tensors(make().to("meta"))} <= {"meta"}


class NoFloat64(TorchDispatchMode):
    """Raise an error for float64 tensors on a device other than the CPU."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.device.type != "cpu":
                assert x.dtype != torch.float64, function
        return out


@pytest.fixture
def device(monkeypatch):
    """A device without values, autocast or float64; a tensor left on the CPU raises an error."""
    monkeypatch.setattr(torch, "autocast", lambda *args, **options: contextlib.nullcontext())
    with NoFloat64():
        yield torch.device("meta")


@pytest.mark.parametrize("make", LOSSES)
@pytest.mark.parametrize("engine", ["blockwise", "dense"])
def test_a_loss_computes_on_the_device_of_its_codes(make, engine, device):
    loss = make().to(device)
    loss.engine = engine
    loss.warned = True  # whether to warn depends on values
    h = torch.empty(5, N, device=device, requires_grad=True)
    value = loss(h, torch.empty_like(h))
    value.backward()
    for x in (value, h.grad, *(p.grad for p in loss.parameters())):
        assert (x.device, x.dtype) == (device, torch.float32)


@pytest.mark.parametrize(("make", "shape"), [
    *((make, (5, N)) for make in ON_CODES), *((make, (2, 1, 64, 64)) for make in ON_IMAGES)
])  # fmt: skip
def test_an_encoder_computes_on_the_device_of_its_inputs(make, shape, device):
    out = make().to(device)(torch.empty(shape, device=device))
    assert (out.device, out.dtype, len(out)) == (device, torch.float32, shape[0])


@pytest.mark.parametrize("make", SIMILARITIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fixed_numbers_are_exact_in_every_dtype(make, dtype, generator):
    """0.1 is no binary number; whether the module was made double does not matter."""
    u, v = torch.randn(2, 4, N, generator=generator, dtype=dtype)
    similarity = make()
    values = similarity.exact_scale if similarity.p is None else similarity.exact_weights
    expected = torch.tensor(values, dtype=dtype).expand(N)
    for module in (similarity, make().double(), make().double().float()):
        assert torch.equal(module.coordinate_weights(N, like=u), expected)
        assert torch.equal(module(u, v), similarity(u, v))
