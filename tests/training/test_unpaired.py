"""Observations without a partner, given to fit."""

import numpy as np
import pytest
import torch

import isolatent as iso
from isolatent.contrast import InfoNCE, Lp, SaturatedInfoNCE
from isolatent.encoders import Whitening
from isolatent.pairs import Batch
from isolatent.training.batch_losses import loss_of

SHORT = iso.Recipe(max_steps=3, batch_size=16, warmup=1)
WORLD = iso.World(iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(10.0), iso.Linear(), seed=0)
X, X_POS = (part.numpy() for part in WORLD.sample_pairs(200))
U = WORLD.sample_pairs(3000)[0].numpy()
pytestmark = pytest.mark.filterwarnings("ignore:pairs were found to share only")


def small(**options):
    defaults = {"n_components": 3, "space": "sphere", "recipe": SHORT, "random_state": 0}
    return iso.ContrastiveICA(**defaults | options)


@pytest.mark.parametrize("loss", ["infonce", "aninfonce", "nce", "scl", "nwj"])
def test_every_loss_takes_unpaired_observations(loss):
    model = small(loss=loss).fit(X, X_POS, unpaired=U)
    assert np.isfinite(model.transform(X)).all()
    other = small(loss=loss).fit(X, X_POS)
    assert not np.array_equal(model.transform(X), other.transform(X))


def test_unpaired_codes_are_negatives_of_anchors_and_of_positives():
    h, h_pos, unpaired = torch.randn(3, 5, 2)
    loss = InfoNCE(Lp(p=2), engine="dense")
    value = loss_of(loss, Batch(h, h_pos, unpaired=unpaired))
    scores = -torch.cdist(h, torch.cat([h_pos, unpaired])).square()
    reverse = -torch.cdist(h_pos, torch.cat([h, unpaired])).square()
    expected = sum(s.logsumexp(1).mean() - s.diagonal().mean() for s in (scores, reverse)) / 2
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("geometry", ["sphere", "box", "free"])
def test_a_saturated_loss_prefers_unpaired_codes_that_are_uniform(geometry):
    torch.manual_seed(0)
    z = torch.rand(512, 2)
    codes = torch.nn.functional.normalize(z - 0.5) if geometry == "sphere" else z
    loss = SaturatedInfoNCE(2, geometry=geometry, engine="dense")
    narrow = codes[:1] + 0.01 * torch.randn(256, 2)
    same = Batch(codes[:256], codes[:256] + 0.01, unpaired=codes[256:])
    assert loss_of(loss, same) < loss_of(loss, Batch(same.x, same.x_pos, unpaired=narrow))


def test_the_loss_of_blocks_is_the_mean_of_theirs():
    h, h_pos = torch.randn(2, 9, 2)
    blocks = torch.tensor([0, 1, 1, 0, 1, 0, 1, 1, 1])
    loss = InfoNCE(Lp(p=2), engine="dense")
    value = loss_of(loss, Batch(h, h_pos, blocks=blocks))
    parts = [loss(h[blocks == k], h_pos[blocks == k]) for k in (0, 1)]
    torch.testing.assert_close(value, (3 * parts[0] + 6 * parts[1]) / 9)


@pytest.mark.parametrize("n_components", [2, 3])
def test_the_whitening_is_that_of_all_observations(n_components):
    shifted = 10 + 2 * U
    model = small(n_components=n_components).fit(X, X_POS, unpaired=shifted)
    whitening = next(m for m in model.encoder_.modules() if isinstance(m, Whitening))
    assert (whitening.mean.numpy() > 8).all()


def test_other_unpaired_observations_are_another_run(tmp_path):
    small().fit(X, X_POS, unpaired=U, checkpoint=tmp_path)
    for other in (None, U[1:], U + 1):
        with pytest.raises(ValueError, match="resume must hold a run with the same data"):
            small().fit(X, X_POS, unpaired=other, resume=tmp_path)
    small().fit(X, X_POS, unpaired=U, resume=tmp_path)


def test_an_interrupted_run_with_unpaired_observations_is_resumed(tmp_path):
    def stop(step):
        if step.number == 2:
            raise KeyboardInterrupt

    expected = small().fit(X, X_POS, unpaired=U).transform(X)
    with pytest.raises(KeyboardInterrupt):
        small().fit(X, X_POS, unpaired=U, checkpoint=tmp_path, on_step=stop)
    model = small().fit(X, X_POS, unpaired=U, resume=tmp_path)
    np.testing.assert_array_equal(model.transform(X), expected)


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({}, lambda m: m.fit(X, unpaired=U), "unpaired must be None without X_pos"),
        ({}, lambda m: m.fit(WORLD, unpaired=U), "unpaired must be None without X_pos"),
        ({}, lambda m: m.fit([X, X], unpaired=U), "unpaired must be None without X_pos"),
        ({}, lambda m: m.fit(X, X_POS, unpaired=U[:, :2]), r"shape \(M, 3\), as X has, got \(3000"),
        ({}, lambda m: m.fit(X, X_POS, unpaired=U[0]), r"unpaired must have shape \(M, 3\)"),
        ({}, lambda m: m.fit(X, X_POS, unpaired=U * np.nan), "unpaired: Input X contains NaN"),
        (
            {"devices": 2},
            lambda m: m.fit(X, X_POS, unpaired=U),
            "unpaired must be None for several",
        ),
        (
            {"loss": InfoNCE(Lp(p=2), negatives_from="given")},
            lambda m: m.fit(X, X_POS, unpaired=U),
            "unpaired must be None for a loss whose negatives are not those of the batch",
        ),
        (
            {"loss": iso.Ensemble([InfoNCE(Lp(p=2))])},
            lambda m: m.fit(X, X_POS, unpaired=U),
            "unpaired must be None for a loss whose negatives are not",
        ),
    ],
)
def test_wrong_arguments(options, call, message):
    with pytest.raises(ValueError, match=message):
        call(small(**options))
