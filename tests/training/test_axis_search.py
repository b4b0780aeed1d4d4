"""Axes of trained codes: what is found, what is said, and what is refused before training."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.encoders import Axes
from isolatent.pairs import SeriesPairs
from isolatent.theory.code_axes import axis_rows
from isolatent.training.axis_search import AxesError, _turn, find_axes

RECIPE = iso.Recipe(max_steps=3, batch_size=32)
MIXING = np.array([[1.0, 0.4, -0.3], [-0.5, 1.0, 0.2], [0.3, 0.1, 1.0]])


def relaxing(moduli, rows=4000, seed=0, laplace=False):
    """Return autoregressive factors of the first order with unit variance."""
    rng = np.random.default_rng(seed)
    shape = (rows, len(moduli))
    z, noise = np.zeros(shape), rng.laplace(size=shape) if laplace else rng.normal(size=shape)
    for t in range(1, rows):
        z[t] = np.array(moduli) * z[t - 1] + noise[t]
    return z / z.std(0)


def fit(n, x, *args, **options):
    options = {"recipe": RECIPE, "relax": (), "random_state": 0} | options
    return iso.ContrastiveICA(n, **options).fit(x, *args)


def search(z, axes="auto", lag=1):
    return find_axes(axes, nn.Module(), SeriesPairs(z, lag=lag), lambda x: x)


class Unordered(iso.ArrayPairs):
    ordered = False


DIFFERENT = relaxing((0.97, 0.85, 0.4)) @ MIXING
X = np.random.default_rng(0).normal(size=(200, 3))
X_POS = X + 0.1 * np.random.default_rng(1).normal(size=X.shape)


def test_the_method_that_tells_the_most_codes_apart_is_taken():
    axes = search(DIFFERENT)
    assert (axes.method, len(axes.blocks)) == ("dynamics", 3)
    assert axes.choice.startswith("found by dynamics, which tells 3 blocks of codes apart (")
    assert "by the independence of codes" in axes.choice
    uniform = np.random.default_rng(0).uniform(size=(4000, 3)) @ MIXING
    axes = search(uniform)
    assert (axes.method, axes.complete) == ("ica", True)
    assert "1 by dynamics" in axes.choice


def test_two_views_have_no_time_scales_unless_asked_for():
    """Correlated normal factors, seen twice: their principal axes relax at different rates."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4000, 3)) @ np.array([[1.0, 0.7, 0.0], [0.0, 0.7, 0.0], [0.0, 0.0, 1.0]])
    views = iso.ArrayPairs(*(z + 0.5 * rng.normal(size=z.shape) for _ in range(2)))
    axes = find_axes("auto", nn.Module(), views, lambda x: x)
    assert (axes.separates, axes.dynamics) == (False, None)
    assert find_axes("dynamics", nn.Module(), views, lambda x: x).dynamics is not None


def test_a_method_that_was_asked_for_has_no_rival():
    assert "the only method" in search(DIFFERENT, "dynamics").choice
    assert search(DIFFERENT, "dynamics").choice.startswith("found by dynamics")


def test_nothing_told_apart_is_said():
    normal = np.random.default_rng(0).normal(size=(3000, 3))
    axes = search(normal, "ica")
    assert not axes.separates
    assert axes.choice == (
        "no codes told apart by the independence of codes or the independence of innovations"
    )


def test_eigenvalues_belong_to_the_codes_that_relax_so():
    """Independent axes come in another order than the slowest first of dynamic ones."""
    z = relaxing((0.4, 0.97, 0.85), laplace=True)
    dynamic = search(z, "dynamics")
    single = ((0,), (1,), (2,))
    independent = Axes("ica", torch.eye(3).double(), torch.zeros(3), single, (1.0,) * 3, "")
    dynamics = _turn(dynamic.dynamics, dynamic, independent)
    assert np.argsort(dynamics.moduli).tolist() == [0, 2, 1]
    np.testing.assert_allclose(dynamics.moduli, np.diag(dynamics.matrix), atol=0.02)
    for modulus, (low, high) in zip(dynamics.moduli, dynamics.moduli_intervals, strict=True):
        assert low < modulus < high
    assert sorted(dynamics.moduli, reverse=True) == list(dynamic.dynamics.moduli)


def test_rounding_errors_of_deterministic_dynamics_are_not_innovations():
    """A noiseless rotation leaves errors of float32, which are independent and uniform."""
    angle = 0.3 * np.arange(5000)
    z = np.stack([np.cos(angle), np.sin(angle)], 1) @ MIXING[:2, :2]
    axes = search(z.astype(np.float32))
    assert not axes.separates
    assert "innovations" not in axes.choice


DEGENERATE = {
    "constant": (lambda z: z * [1, 0, 1] + 5, "code 1 is constant"),
    "two constant": (lambda z: z * [0, 0, 1], "codes 0, 1 are constant"),
    "constant but for rounding": (lambda z: z * [1, 1e-8, 1] + 5, "code 1 is constant"),
    "dependent": (lambda z: z[:, [0, 1, 0]], "linearly dependent"),
    "not finite": (lambda z: np.where(z > 3, np.inf, z), "not finite"),
}


@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_codes_are_named(kind):
    change, message = DEGENERATE[kind]
    source = SeriesPairs(DIFFERENT)
    for axes in ("auto", "ica", "dynamics"):
        with pytest.raises(AxesError, match=message):
            find_axes(axes, nn.Module(), source, lambda x: torch.from_numpy(change(x.numpy())))


def test_few_rows_are_not_called_degenerate():
    axes = search(DIFFERENT[:5])
    assert not axes.separates
    assert "5 rows are too few" in axes.reason


class Collapsed(nn.Module):
    """An encoder with one code that does not depend on its input."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x) * torch.tensor([1.0, 0.0, 1.0])


@pytest.mark.filterwarnings("ignore:pairs were found to share only")
@pytest.mark.parametrize("axes", ["default", "ica"])
def test_collapsed_codes_are_on_the_card_and_warned_of(axes):
    with pytest.warns(IsolatentWarning, match="axes were not found: .* code 1 is constant"):
        model = fit(
            3, X.astype(np.float32), X_POS.astype(np.float32), encoder=Collapsed(), axes=axes
        )
    assert model.axes_ is None
    card = str(model.guarantee_)
    assert "axes        not found: codes are degenerate: code 1 is constant" in card
    assert "doubtful, see the warning" in card


@pytest.mark.filterwarnings("ignore:pairs were found to share only")
def test_axes_that_were_asked_for_and_not_found_are_on_the_card():
    model = fit(3, X, X_POS, axes="ica")
    assert not model.axes_.separates
    assert model.guarantee_.withdrawn == "affine map"  # after three steps
    assert (
        "axes        ica: no codes told apart, 0 of 3 codes identified, not told apart: {0, 1, 2}"
        in str(model.guarantee_)
    )
    assert {axis.block for axis in model.guarantee_.code_axes} == {(0, 1, 2)}


def test_one_code_is_one_axis_with_its_time_scale():
    z = relaxing((0.9,), rows=1000)
    model = fit(1, np.hstack([z, z**3]))
    assert model.axes_.complete
    assert model.axes_.choice == "one code is one axis"
    (axis,) = model.guarantee_.code_axes
    low, high = axis.time_scale_interval
    assert 0 < low < axis.time_scale < high < 100
    assert "MCC counts too" in str(model.guarantee_)
    assert model.transform(np.hstack([z, z**3])).shape == (1000, 1)


def test_axes_and_their_times_survive_saving(tmp_path):
    model = fit(3, DIFFERENT)
    assert model.axes_.separates
    model.save(tmp_path)
    record = json.loads((tmp_path / "model.json").read_text(), parse_constant=pytest.fail)["record"]
    stored = record["axes"]["dynamics"]
    assert stored["time_scales"] == list(model.dynamics_.time_scales)
    assert stored["time_scales_intervals"] == [*map(list, model.dynamics_.time_scales_intervals)]
    assert stored["periods"] == [None] * 3  # infinite
    assert record["axes"]["stability"] == list(model.axes_.stability)
    loaded = iso.ContrastiveICA.load(tmp_path)
    assert loaded.guarantee_ == model.guarantee_
    assert loaded.axes_.to_dict() == model.axes_.to_dict()
    assert loaded.dynamics_.periods == (math.inf,) * 3
    assert np.array_equal(loaded.transform(DIFFERENT), model.transform(DIFFERENT))


HOURS = np.arange(len(DIFFERENT)).astype("datetime64[h]")


@pytest.mark.parametrize(
    ("times", "unit", "spacing"),
    [
        (0.5 * np.arange(len(DIFFERENT)), "units of time", 0.5),
        (HOURS, "hours", 1.0),
        (HOURS.astype("datetime64[ns]"), "hours", 1.0),
        (np.arange(len(DIFFERENT)).astype("datetime64[ms]"), "seconds", 0.001),
    ],
)
def test_time_scales_and_periods_are_in_the_unit_of_the_time_stamps(times, unit, spacing):
    """Eigenvalues are those of rows; times are theirs, multiplied by the interval between rows."""
    in_rows = search(DIFFERENT).dynamics
    source = SeriesPairs(DIFFERENT, lag=1, times=times)
    axes = find_axes("auto", nn.Module(), source, lambda x: x)
    found = axes.dynamics
    assert (in_rows.unit, found.unit) == ("rows", unit)
    assert found.moduli == in_rows.moduli
    assert found.time_scales == pytest.approx([spacing * scale for scale in in_rows.time_scales])
    for bounds, rows in zip(
        found.time_scales_intervals, in_rows.time_scales_intervals, strict=True
    ):
        assert bounds == pytest.approx([spacing * bound for bound in rows])
    assert f" {unit}" in axes.reason
    assert "rows;" not in axes.reason


def test_the_card_and_a_saved_model_have_the_unit_of_the_time_stamps(tmp_path):
    model = fit(3, DIFFERENT)
    timed = iso.ContrastiveICA(3, recipe=RECIPE, relax=(), random_state=0)
    timed.fit(DIFFERENT, times=0.5 * np.arange(len(DIFFERENT)))
    timed.save(tmp_path)
    for one in (timed, iso.ContrastiveICA.load(tmp_path)):
        for axis, in_rows in zip(one.guarantee_.code_axes, model.guarantee_.code_axes, strict=True):
            assert (in_rows.unit, axis.unit) == ("rows", "units of time")
            assert axis.time_scale == pytest.approx(0.5 * in_rows.time_scale, rel=0.05)
        assert "time scale [units of time]" in axis_rows(one.guarantee_.code_axes)[0]
        assert one.dynamics_.to_dict()["unit"] == "units of time"


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        ({"axes": "pca"}, (X, X_POS), "axes must be None or one of 'default', 'auto', .*got 'pca'"),
        ({"axes": ["ica"]}, (X, X_POS), "axes must be None or one of"),
        ({"axes": "ica", "space": "sphere"}, (X, X_POS), "'auto' for space='sphere', got 'ica'"),
        (
            {"axes": "dynamics"},
            (Unordered(X, X_POS),),
            "axes must be None, 'ica' or 'auto' for pairs without an order, got 'dynamics'",
        ),
        ({"n_components": 4}, (X, X_POS), "at most 3 for X with n_features=3, got 4"),
        ({"n_components": 4}, (X,), "n_components must be at most 3"),
        ({"n_components": 4, "space": "box"}, (X, X_POS), "n_components must be at most 3"),
        ({"n_components": 5, "space": "sphere"}, (X, X_POS), "n_components must be at most 4"),
        ({"n_components": 4}, (iso.ArrayPairs(X, X_POS),), "n_components must be at most 3"),
        ({"lag": (200, 200)}, (X,), "lag must be shorter .* is 200, the longest session has 200"),
    ],
)
def test_bad_input_is_refused_before_training(options, data, message):
    steps = []
    options = {"n_components": 3, "recipe": RECIPE, "relax": ()} | options
    model = iso.ContrastiveICA(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(*data, on_step=steps.append)
    assert steps == []


@pytest.mark.filterwarnings("ignore:pairs were found to share only")
def test_an_encoder_of_the_user_may_have_more_codes_than_columns():
    encoder = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    model = fit(4, X, X_POS, encoder=encoder)
    assert "4 factors cannot be mixed injectively into 3" in str(model.guarantee_)


@pytest.mark.filterwarnings("ignore:pairs were found to share only")
def test_pairs_without_an_order_have_independent_axes_alone():
    model = fit(3, Unordered(X, X_POS))
    assert model.axes_.method == "ica"
    assert model.dynamics_ is None
    assert "dynamics" not in model.axes_.choice


def test_a_recording_has_an_order_whatever_its_lags():
    model = fit(3, DIFFERENT, axes="dynamics", lag=(1, 3))
    assert model.dynamics_.lag == 1
    assert model.axes_.separates


def test_partial_fit_finds_no_axes():
    for axes in ("auto", "ica", "dynamics"):
        with pytest.raises(ValueError, match=f"axes must be None for partial_fit, got '{axes}'"):
            iso.ContrastiveICA(3, axes=axes, recipe=RECIPE).partial_fit(X, X_POS)
    model = iso.ContrastiveICA(3, recipe=RECIPE).partial_fit(X, X_POS)
    assert (model.axes_, model.guarantee_.axes, model.guarantee_.code_axes) == (None, "", ())


def test_modules_of_the_user_get_axes_and_survive_saving(tmp_path):
    torch.manual_seed(0)
    modules = {"encoder": nn.Linear(3, 3).double(), "loss": iso.InfoNCE(iso.Lp(p=2))}
    model = fit(3, DIFFERENT, axes="dynamics", **modules)
    assert model.axes_.separates
    model.save(tmp_path)
    loaded = iso.ContrastiveICA.load(tmp_path, **modules)
    assert np.array_equal(loaded.transform(DIFFERENT), model.transform(DIFFERENT))


class Distance(nn.Module):
    """A loss that no theorem covers."""

    def forward(self, h, h_pos):
        return ((h - h_pos) ** 2).mean() - 0.1 * h.var(0).log().sum()


def test_axes_under_a_loss_without_a_theorem_claim_nothing():
    model = fit(3, DIFFERENT, axes="dynamics", loss=Distance())
    assert model.axes_.separates
    assert model.guarantee_.equivalence is None
    assert len(model.guarantee_.code_axes) == 3


@pytest.mark.filterwarnings("ignore:pairs were found to share only")
def test_codes_on_a_sphere_get_no_axes():
    encoder = nn.Sequential(nn.Linear(3, 3), iso.encoders.SphereHead()).double()
    with pytest.warns(IsolatentWarning, match="axes were not looked for: free codes alone"):
        model = fit(3, X, X_POS, encoder=encoder, axes="ica")
    assert "not looked for" in model.guarantee_.axes
    assert not any("axes" in warning for warning in model.guarantee_.warnings)
    declared = fit(3, X, X_POS, space="sphere")
    assert declared.guarantee_.axes == ""
