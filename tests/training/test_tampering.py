"""Models whose files were changed, with checksums that fit, load as they are or are named."""

import json
import random
import resource
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.files import DamagedFileError
from isolatent.training.checkpoints import read_pair, write_pair

X, X_POS = np.random.default_rng(0).normal(size=(2, 120, 3))
X_POS = X + 0.2 * X_POS
RECIPE = iso.Recipe(max_steps=6, batch_size=32, warmup=2)
VALUES = [None, True, -1, 0, 3.5, 10**9, 1e300, "", "x", [], [1], {}, {"a": 1}, [[[]]], "é" * 300]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model with all that a record can hold, relaxations and axes among it."""
    model = iso.ContrastiveICA(2, recipe=RECIPE, relax=("marginal",), axes="ica", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsolatentWarning)
        model.fit(X, X_POS)
    directory = tmp_path_factory.mktemp("saved")
    model.save(directory / "free")
    sphere = iso.ContrastiveICA(2, space="sphere", recipe=RECIPE, random_state=0).fit(X, X_POS)
    sphere.save(directory / "sphere")
    return directory


def places(data, path=()):
    """Yield the path of every value in nested data."""
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))
        else:
            yield (*path, key)


def changed(data, path, value, remove=False):
    """Return data with the value at a path replaced, or removed."""
    if not path:
        return value
    copied = dict(data) if isinstance(data, dict) else list(data)
    if len(path) == 1 and remove:
        del copied[path[0]]
    else:
        copied[path[0]] = changed(copied[path[0]], path[1:], value, remove)
    return copied


def load(directory):
    """Load and use a model; the only errors are those that name a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = iso.ContrastiveICA.load(directory)
        codes = model.transform(X[:5])
        str(model.guarantee_)
    assert np.isfinite(codes).all()


def tampered(saved, directory, count, seed=0):
    """Count the outcomes of changing one value of the record, at random."""
    tensors, record = read_pair(saved / "model")
    every, rng = list(places(record))[1:], random.Random(seed)
    outcomes = {"loaded": 0, "named": 0}
    for number in range(count):
        path = every[number % len(every)] if count >= len(every) else rng.choice(every)
        new = changed(record, path, rng.choice(VALUES), remove=rng.random() < 0.2)
        write_pair(directory / "model", tensors, new)
        try:
            load(directory)
        except DamagedFileError as error:
            assert "model." in str(error)  # noqa: PT017
            outcomes["named"] += 1
        except ValueError as error:  # of another estimator, or with a module of the user's own
            assert "directory must hold" in str(error) or "must be given" in str(error)  # noqa: PT017
            outcomes["named"] += 1
        else:
            outcomes["loaded"] += 1
    return outcomes


@pytest.mark.parametrize("name", ["free", "sphere"])
def test_a_changed_record_is_named_or_harmless(saved, tmp_path, name):
    outcomes = tampered(saved / name, tmp_path, 40)
    assert outcomes["named"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["free", "sphere"])
def test_many_changed_records_are_named_or_harmless(saved, tmp_path, name):
    outcomes = tampered(saved / name, tmp_path, 3000)
    assert sum(outcomes.values()) == 3000


HARMS = {
    "nan": lambda t: t.flatten().index_fill(0, torch.tensor([0]), torch.nan).view(t.shape),
    "infinity": lambda t: torch.full_like(t, torch.inf),
    "half": lambda t: t.half(),
    "double": lambda t: t.double(),
    "integer": lambda t: t.to(torch.int64),
    "row": lambda t: torch.cat([t, t[:1]]) if t.ndim else t[None],
    "empty": lambda t: t[..., :0] if t.ndim else t.new_empty(0),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", ["free", "sphere"])
def test_changed_tensors_are_refused(saved, tmp_path, name, harm):
    """Each tensor in turn, but the table of steps, which may have gaps."""
    tensors, record = read_pair(saved / name / "model")
    tried = 0
    for key, tensor in tensors.items():
        if key == "history" or not tensor.is_floating_point():
            continue
        write_pair(tmp_path / "model", tensors | {key: HARMS[harm](tensor)}, record)
        with pytest.raises(DamagedFileError, match=r"model\.(safetensors|json) is damaged"):
            load(tmp_path)
        tried += 1
    assert tried >= 6


@pytest.mark.parametrize("name", ["free", "sphere"])
def test_missing_and_further_tensors_are_refused(saved, tmp_path, name):
    tensors, record = read_pair(saved / name / "model")
    for key in tensors:
        rest = {k: v for k, v in tensors.items() if k != key}
        write_pair(tmp_path / "model", rest, record)
        with pytest.raises(DamagedFileError):
            load(tmp_path)
    for key in ("encoder.more", "loss.more", "more"):
        write_pair(tmp_path / "model", tensors | {key: torch.zeros(1)}, record)
        with pytest.raises(DamagedFileError):
            load(tmp_path)


SIZES = [
    (("shape",), [60_000]),
    (("shape",), [2**31 - 1]),
    (("parameters", "n_components"), 10**9),
    (("parameters", "window"), 10**9 + 1),
    (("parameters", "encoder"), "paper"),
    (("capacity",), [10**9, 0.0, 0.0]),
]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
@pytest.mark.parametrize(("path", "value"), SIZES)
def test_sizes_are_compared_before_memory_is_taken(saved, tmp_path, path, value):
    """While this process may have 2 GB more than it has."""
    tensors, record = read_pair(saved / "sphere" / "model")
    write_pair(tmp_path / "model", tensors, changed(record, path, value))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + 2 * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        with pytest.raises(DamagedFileError):
            load(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_nested_and_large_json_is_refused(saved, tmp_path, monkeypatch):
    shutil.copytree(saved / "sphere", tmp_path / "m")
    path = tmp_path / "m" / "model.json"
    intact = path.read_text()
    for text in (
        "[" * 200_000,
        '{"a":' * 200_000,
        "[" * 500 + "]" * 500,
        intact.replace("null", "NaN", 1),
        intact.replace("null", "1" * 5000, 1),
        intact.replace('"estimator"', '"estimator\\ud800"', 1),
    ):
        path.write_text(text)
        with pytest.raises(DamagedFileError, match=r"model\.json is damaged"):
            load(tmp_path / "m")
    path.write_text(intact + " " * 1000)
    load(tmp_path / "m")
    monkeypatch.setattr("isolatent.files.LARGEST_JSON", len(intact))
    with pytest.raises(DamagedFileError, match="it is larger than"):
        load(tmp_path / "m")


def test_buffers_of_a_module_of_the_user_may_be_infinite(tmp_path):
    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)
            self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

        def forward(self, x):
            return self.layer(x)

    model = iso.ContrastiveICA(2, space="sphere", encoder=Masked(), recipe=RECIPE, random_state=0)
    model.fit(X, X_POS).save(tmp_path)
    loaded = iso.ContrastiveICA.load(tmp_path, encoder=Masked())
    assert np.array_equal(loaded.transform(X), model.transform(X))


def test_records_that_are_no_json_are_named(saved, tmp_path):
    """Bytes of both files changed at random: intact, or named."""
    shutil.copytree(saved / "sphere", tmp_path / "m")
    rng = random.Random(0)
    for name in ("model.json", "model.safetensors"):
        path = tmp_path / "m" / name
        intact = path.read_bytes()
        for _ in range(40):
            data = bytearray(intact)
            for _ in range(rng.randint(1, 8)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            path.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
            try:
                load(tmp_path / "m")
            except DamagedFileError as error:
                assert "model." in str(error)  # noqa: PT017
        path.write_bytes(intact)
    assert json.loads((tmp_path / "m" / "model.json").read_text())
