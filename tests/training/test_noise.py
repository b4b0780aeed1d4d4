"""Models of noisy observations: coverage where posteriors are known, and the interface."""

import warnings

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.contrast.vmf import spread_of
from isolatent.training.noise import check_noise, check_noise_share
from isolatent.worlds.sampling import propose_directions

SHORT = iso.Recipe(max_steps=30, batch_size=64, warmup=5)
LEVEL, BOUNDS = 0.9, (0.88, 0.92)
KAPPA = 30.0  # of the steps on the sphere
NEAR = 0.95  # correlation of factors within pairs of free ones
NOISE = 0.3


def draw_vmf(mode: Tensor, kappa: Tensor, generator: Generator) -> Tensor:
    drawn, left = torch.empty_like(mode), torch.arange(len(mode))
    while len(left):
        found, log_ratio = propose_directions(
            mode[left].double(), kappa[left, None].double(), generator
        )
        level = torch.rand(len(left), 1, generator=generator)
        accepted = (level.log() <= log_ratio).squeeze(1)
        drawn[left[accepted]] = found[accepted].to(drawn)
        left = left[~accepted]
    return drawn


def mix(x: Tensor, columns: int) -> Tensor:
    """Mix injectively; the posterior of the factors stays as it is."""
    matrix = torch.randn(x.shape[1], columns, generator=Generator().manual_seed(5))
    return x @ matrix + 0.3 * torch.tanh(x @ matrix)


def ambiguous_sphere(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Draw factors, pairs, and concentrations: x shows a mode and κ, drawn around the factors.

    The marginal is uniform, so the posterior of the factors is a vMF around the mode that is shown.
    """
    generator = Generator().manual_seed(seed)
    z = nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=1)
    z_pos = draw_vmf(z, torch.full((count,), KAPPA), generator)
    shown, kappas = [], []
    for factors in (z, z_pos):
        kappas.append(20 * 10 ** torch.rand(count, generator=generator))
        modes = draw_vmf(factors, kappas[-1], generator)
        level = kappas[-1].log()[:, None] / 2 - 2
        shown.append(mix(torch.cat([modes, level], 1), 6))
    return z, z_pos, shown[0], shown[1], kappas[0]


def noisy_plane(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw normal factors, and pairs of x = A z + noise, which a nonlinear map distorts."""
    generator = Generator().manual_seed(seed)
    matrix = torch.linalg.qr(torch.randn(6, 6, generator=Generator().manual_seed(9)))[0][:2]
    z = torch.randn(count, 2, generator=generator)
    z_pos = NEAR * z + (1 - NEAR**2) ** 0.5 * torch.randn(count, 2, generator=generator)
    shown = [q @ matrix + NOISE * torch.randn(count, 6, generator=generator) for q in (z, z_pos)]
    x, x_pos = (part + 0.3 * torch.tanh(2 * part) for part in shown)
    return z, x, x_pos


@pytest.mark.slow
def test_caps_cover_factors_of_ambiguous_observations() -> None:
    _, _, x, x_pos, kappas = ambiguous_sphere(40_000, 0)
    noise, step = 2 * spread_of(kappas.numpy(), 3).mean(), float(spread_of(KAPPA, 3))
    share = float(noise / (noise + step))
    model = iso.ContrastiveICA(
        3,
        space="sphere",
        relax=("noise",),
        noise_share=share,
        random_state=0,
    ).fit(x, x_pos)
    z, _, x, _, kappas = ambiguous_sphere(5000, 1)
    left, _, right = np.linalg.svd(z.numpy().T @ model.transform(x))
    regions = model.credible_regions(x, LEVEL)
    assert BOUNDS[0] <= regions.contains(z.numpy() @ left @ right).mean() <= BOUNDS[1]
    assert np.corrcoef(np.log(regions.spread), kappas.log().numpy())[0, 1] > 0.9
    assert float(model.loss_.step) == pytest.approx(step, rel=0.1)


@pytest.mark.slow
def test_ellipsoids_cover_factors_behind_additive_noise() -> None:
    _, x, x_pos = noisy_plane(40_000, 0)
    # Half of the marginal is divided out of the posterior: docs/theory.md.
    noise = 2 / (1 / NOISE**2 + 1 - NEAR / (1 + NEAR))
    share = noise / (noise + (1 - NEAR**2) / NEAR)
    model = iso.ContrastiveICA(
        2, space="euclidean", relax=("noise",), noise_share=share, random_state=0
    ).fit(x, x_pos)
    z, x, _ = noisy_plane(5000, 1)
    codes = np.column_stack([model.transform(x), np.ones(len(x))])
    fitted = np.linalg.lstsq(codes, z.numpy(), rcond=None)[0]
    mapped = (z.numpy() - fitted[-1]) @ np.linalg.inv(fitted[:-1])
    covered = model.credible_regions(x, LEVEL).contains(mapped).mean()
    assert BOUNDS[0] <= covered <= BOUNDS[1]


@pytest.fixture(scope="module")
def pairs() -> tuple[Tensor, Tensor]:
    return ambiguous_sphere(600, 0)[2:4]


def build(space: str | None = "sphere", **options) -> iso.ContrastiveICA:
    options = {"recipe": SHORT, "random_state": 0, "noise_share": 0.95} | options
    return iso.ContrastiveICA(3, space=space, **{"relax": ("noise",)} | options)


@pytest.mark.parametrize("space", ["sphere", "euclidean"])
def test_codes_have_a_standard_deviation(space: str, pairs, tmp_path) -> None:
    x, x_pos = pairs
    model = build(space).fit(x, x_pos)
    codes, std = model.transform(x, return_std=True)
    assert codes.shape == std.shape == (600, 3)
    assert (std > 0).all()
    np.testing.assert_array_equal(codes, model.transform(x))
    assert np.isfinite(model.score(x, x_pos))
    assert model.relaxed_ == ("noise",)
    assert any("uncertain by" in sentence for sentence in model.guarantee_.learned)
    assert "noise_share" in str(model.guarantee_)
    assert model.learned_["noise"]["median_std"] == pytest.approx(np.median(std), rel=0.2)

    model.save(tmp_path / "model")
    loaded = iso.ContrastiveICA.load(tmp_path / "model")
    for before, after in zip((codes, std), loaded.transform(x, return_std=True), strict=True):
        np.testing.assert_array_equal(before, after)
    assert loaded.guarantee_ == model.guarantee_
    assert loaded.score(x, x_pos) == model.score(x, x_pos)
    regions = [m.credible_regions(x, 0.8).contains(codes).all() for m in (model, loaded)]
    assert regions == [True, True]


def test_undeclared_world_is_free(pairs) -> None:
    model = build(None).fit(*pairs)
    assert model.head_ == "free"
    assert model.axes_ is None


def test_resumed_equals_uninterrupted(pairs, tmp_path) -> None:
    whole = build().fit(*pairs)

    def stop(step) -> None:
        if step.number == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build().fit(*pairs, checkpoint=tmp_path, on_step=stop)
    resumed = build().fit(*pairs, resume=tmp_path)
    found = [model.transform(pairs[0], return_std=True) for model in (whole, resumed)]
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_partial_fit_calibrates_each_time_from_what_was_trained(pairs) -> None:
    model = build()
    shares = [model.partial_fit(*pairs).learned_["noise"]["share"] for _ in range(3)]
    assert shares == pytest.approx([0.95] * 3, abs=0.02)
    assert model.transform(pairs[0], return_std=True)[1].shape == (600, 3)


def test_own_encoder_returns_a_number_for_the_uncertainty_as_well(pairs) -> None:
    x, x_pos = pairs
    codes, std = build(encoder=nn.Linear(6, 4)).fit(x, x_pos).transform(x, return_std=True)
    assert codes.shape == std.shape
    with pytest.raises(ValueError, match="3 codes and 1 for their uncertainty"):
        build(encoder=nn.Linear(6, 3)).fit(x, x_pos)


def test_recordings_with_missing_rows() -> None:
    steps = torch.randn(600, 3, generator=Generator().manual_seed(0))
    factors = [steps[0]]
    for step in steps[1:]:
        factors.append(0.9 * factors[-1] + 0.4 * step)
    recording = mix(torch.stack(factors), 6).numpy()
    recording[7] = np.nan
    with pytest.warns(IsolatentWarning, match="NaN"):
        model = build("euclidean").fit(recording)
    codes, std = model.transform(recording, return_std=True)
    assert np.isnan(std[7]).all()
    assert np.isfinite(np.delete(std, 7, 0)).all()
    assert not model.credible_regions(recording).contains(codes)[7]


def test_a_missing_share_is_warned_of(pairs) -> None:
    with pytest.warns(IsolatentWarning, match="noise_share was not given"):
        model = build(noise_share=None).fit(*pairs)
    assert model.learned_["noise"]["share"] == 1.0
    assert float(model.loss_.step) == pytest.approx(0.0, abs=1e-6)


def test_without_the_relaxation_there_is_no_uncertainty(pairs) -> None:
    model = build(relax=(), noise_share=None, n_init=1).fit(*pairs)
    with pytest.raises(ValueError, match=r"relax=\('noise',\)"):
        model.transform(pairs[0], return_std=True)
    with pytest.raises(ValueError, match=r"relax=\('noise',\)"):
        model.credible_regions(pairs[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"space": "box"}, "relax must not contain 'noise' unless"),
        ({"space": "euclidean", "conditional": "laplace"}, "relax must not contain 'noise' unless"),
        ({"relax": ("noise", "pairing")}, "relax must not contain 'pairing' besides"),
        ({"relax": ("noise", "dynamics")}, "relax must not contain 'dynamics' besides"),
        ({"loss": "nce"}, "loss must be 'infonce'"),
        ({"loss": iso.InfoNCE(iso.Dot())}, "loss must be 'infonce'"),
        ({"potentials": "learned"}, "potentials must be None"),
        ({"devices": 2}, "devices and num_nodes must be 1"),
        ({"space": None, "axes": "ica"}, "axes must be None with relax"),
        ({"noise_share": 1.5}, "noise_share must be at most 1"),
        ({"noise_share": -0.1}, "noise_share must be"),
        ({"relax": (), "noise_share": 0.5}, "noise_share must be None without"),
    ],
)
def test_what_is_not_covered_is_refused_before_training(options, message: str, pairs) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options).fit(*pairs)


def test_marginal_may_be_relaxed_with_noise(pairs) -> None:
    model = build(relax=("noise", "marginal")).fit(*pairs)
    assert model.relaxed_ == ("marginal", "noise")
    assert model.loss_.potential is not None
    assert model.guarantee_.equivalence == "orthogonal map"


def test_checks_pass_where_noise_is_not_relaxed() -> None:
    check_noise(("pairing",), iso.Beliefs("box"), "nce", None, 2)
    assert check_noise_share(None, ()) is None


def test_no_warning_with_a_share(pairs) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build(noise_share=1).fit(*pairs)
    assert not any("noise_share" in str(warning.message) for warning in caught)
