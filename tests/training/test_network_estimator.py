"""Laws of all estimators with a network: saved equals loaded, and all tensors on one device."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import isolatent as iso
from isolatent.baselines import SupervisedEncoder
from isolatent.pairs import Batch, WorldPairs
from isolatent.training import NetworkEstimator, network_estimator, train
from isolatent.training.batch_losses import encode_batch, encode_parts
from isolatent.training.devices import Processes
from resumable_runs import CASES, case

META = torch.device("meta")
NEED_VALUES = ("ensemble", "default")  # of tags, and of codes that relaxations are compared with


def subclasses(kind):
    """Return all concrete classes of the library that are derived from a class."""
    found = {sub for child in kind.__subclasses__() for sub in (child, *subclasses(child))}
    return {sub for sub in found if sub.__module__.startswith("isolatent.")}


def test_the_cases_cover_all_estimators():
    concrete = {kind for kind in subclasses(NetworkEstimator) if not kind.__abstractmethods__}
    private = {kind for kind in concrete if kind.__name__.startswith("_")}
    digits = {kind for kind in concrete if kind.__name__ == "DigitVAE"}  # a BetaVAE of one dataset
    assert {type(case(name)[0]) for name in CASES} == concrete - private - digits


def observations(data):
    (x, *_) = data
    if isinstance(x, iso.World):
        x = WorldPairs(x)
    if isinstance(x, WorldPairs):
        x = Batch.of(x.sample(50, torch.Generator().manual_seed(1))).x.numpy()
    return x


@pytest.mark.parametrize("name", CASES)
def test_saved_equals_loaded(name, tmp_path):
    model, data, options = case(name, steps=5)
    x = observations(data)
    codes = model.fit(*data, **options).transform(x)
    model.save(tmp_path)
    modules = {
        key: value
        for key, value in model.get_params(deep=False).items()
        if isinstance(value, torch.nn.Module)
    }
    loaded = type(model).load(tmp_path, **modules)
    assert np.array_equal(loaded.transform(x), codes)
    assert loaded.transform(x).dtype == codes.dtype
    assert loaded.history_ == model.history_
    assert loaded.get_params() == model.get_params()


class OneDevice(TorchDispatchMode):
    """Refuse operations that mix devices, other than copies between them."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        devices = {t.device for t in tensors if t.ndim > 0}  # scalars of the CPU go anywhere
        if len(devices) > 1 and func is not torch.ops.aten.copy_.default:
            raise AssertionError(f"{func} mixes the devices {devices}")
        return func(*args, **kwargs)


class TrainedError(Exception):
    """Raised after training: what follows needs values, which meta tensors do not have."""


@pytest.fixture
def meta_device(monkeypatch):
    """Train on the meta device, whose tensors have no values; numbers read from them are 1."""
    for name, value in (("__float__", 1.0), ("__bool__", True)):
        read = getattr(torch.Tensor, name)
        replacement = lambda t, read=read, value=value: value if t.is_meta else read(t)  # noqa: E731
        monkeypatch.setattr(torch.Tensor, name, replacement)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    for optimiser in (torch.optim.Adam, torch.optim.AdamW):
        monkeypatch.setattr(
            torch.optim, optimiser.__name__, lambda *a, kind=optimiser, **o: kind(*a, **o | UNFUSED)
        )

    def checked_train(training, *args, **options):
        with OneDevice():
            modules = train(training, *args, **options)
        assert {t.device for t in (*modules.parameters(), *modules.buffers())} == {META}
        raise TrainedError

    monkeypatch.setattr(network_estimator, "connect", lambda *_: Processes(device=META))
    monkeypatch.setattr(network_estimator, "train", checked_train)


UNFUSED = {"fused": False}  # there is no fused kernel for meta tensors


# An ensemble selects pairs by their tags, which needs their values: see the next test.
@pytest.mark.parametrize("name", [name for name in CASES if name not in NEED_VALUES])
def test_training_leaves_no_tensor_on_the_cpu(name, meta_device):
    """Every operation of every step, with the held-out losses and the averaged weights."""
    model, data, options = case(name, steps=12)
    steps = []
    with pytest.raises(TrainedError):
        model.fit(*data, **options, on_step=steps.append)
    assert len(steps) == 12
    if name == "saturated":  # the saturated loss has tensors of its own
        assert any(step.information is None for step in steps)


def test_all_parts_of_a_batch_are_moved_to_the_device():
    batch = Batch(torch.ones(4, 2), torch.ones(4, 2), torch.ones(4, 3, 2), torch.arange(4))
    shared = Processes(device=META).share(batch)
    codes = encode_batch(partial(encode_parts, torch.nn.Linear(2, 2, device=META)), batch)
    for moved in (shared, codes):
        parts = (moved.x, moved.x_pos, moved.negatives, moved.tags)
        assert {part.device for part in parts} == {META}


@pytest.mark.parametrize("name", CASES)
def test_models_of_single_precision_hold_no_double(name):
    model, data, options = case(name, steps=2)
    model.fit(*data, **options)
    modules = [value for value in vars(model).values() if isinstance(value, torch.nn.Module)]
    for module in modules:
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        assert {key for key, t in tensors.items() if t.dtype == torch.float64} == set()


@pytest.mark.parametrize("name", ["supervised", "slow_vae"])
def test_bfloat16_trains_networks_in_float32(name):
    """Losses are close to those in single precision, and codes are in single precision."""
    losses = {}
    for precision in ("32-true", "bf16-mixed"):
        model, data, options = case(name, steps=10)
        model.set_params(precision=precision, accelerator="cpu").fit(*data, **options)
        network = model.encoder_ if isinstance(model, SupervisedEncoder) else model.autoencoder_
        assert {p.dtype for p in network.parameters()} == {torch.float32}
        losses[precision] = [step.loss for step in model.history_]
        assert np.isfinite(model.transform(observations(data))).all()
    assert losses["bf16-mixed"] != losses["32-true"]
    np.testing.assert_allclose(losses["bf16-mixed"], losses["32-true"], rtol=0.1)


ROWS, POSITIVES = np.random.default_rng(0).normal(size=(2, 200, 3))
SPHERE = iso.World(iso.Sphere(3), iso.Uniform(), iso.AnisotropicNormal(20.0), iso.Identity())
SOURCES = {
    "tags": lambda: iso.ArrayPairs(ROWS, POSITIVES, tags=np.arange(200) % 2),
    "negatives": lambda: iso.WorldPairs(SPHERE, negatives=iso.AnisotropicNormal(5.0)),
    "conditionals": lambda: iso.WorldPairs(
        SPHERE, conditionals=[iso.AnisotropicNormal(5.0), iso.AnisotropicNormal(30.0)]
    ),
}
ESTIMATORS = [
    iso.ContrastiveICA(
        2,
        space="euclidean",
        loss=iso.InfoNCE(iso.Lp(2), symmetric=False),
        recipe=iso.Recipe(max_steps=2, batch_size=16),
    ),
    iso.baselines.SlowVAE(2, max_steps=2, batch_size=4, random_state=0),
    iso.baselines.BetaVAE(2, max_steps=2, batch_size=4, random_state=0),
    iso.baselines.LinearPCA(2),
    iso.baselines.LinearICA(2, random_state=0),
    iso.baselines.SlowFeatures(2),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda model: type(model).__name__)
def test_every_estimator_takes_batches_with_tags_and_negatives(source, estimator):
    assert clone(estimator).fit(SOURCES[source]()).transform(ROWS).shape == (200, 2)


def test_a_run_is_resumed_by_its_own_estimator_only(tmp_path):
    options = {"max_steps": 3, "batch_size": 4, "random_state": 0}
    iso.baselines.AdaMLVAE(2, **options).fit(ROWS, POSITIVES, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"same estimator, 'AdaGVAE'.*has 'AdaMLVAE'"):
        iso.baselines.AdaGVAE(2, **options).fit(ROWS, POSITIVES, resume=tmp_path)


def test_a_file_is_no_directory_for_checkpoints(tmp_path):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(NotADirectoryError, match="checkpoint must be a directory"):
        iso.baselines.SlowVAE(2, max_steps=1).fit(ROWS, POSITIVES, checkpoint=tmp_path / "file")
