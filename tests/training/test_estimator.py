"""ContrastiveICA recovers factors, is reproducible, and refuses wrong arguments."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.utils._pytree import tree_leaves

import isolatent as iso
from isolatent.checks import IsolatentWarning
from isolatent.contrast import ConstantPotential
from isolatent.theory import RELAXATIONS, SPACES, Beliefs
from isolatent.training import Checkpoints
from isolatent.training.batch_losses import describe_loss

WORLD = iso.World(
    iso.Sphere(3),
    iso.Uniform(),
    iso.VonMisesFisher(20.0),
    iso.InvertibleMLP(2, condition_draws=200),
)
SHORT = iso.Recipe(max_steps=40, batch_size=128)


def test_factors_are_recovered_up_to_an_orthogonal_map():
    model = iso.ContrastiveICA(
        3, space="sphere", recipe=iso.Recipe(max_steps=500, batch_size=256), random_state=0
    )
    steps = []
    model.fit(WORLD, on_step=steps.append)
    z, _ = WORLD.sample_latents(4000)
    h = model.transform(WORLD.observe(z))
    assert iso.linear_r2(z, h) > 0.98
    assert iso.linear_r2(z, WORLD.observe(z)) < 0.97
    assert model.guarantee_.equivalence == "orthogonal map"
    # The map itself: singular values of the least-squares fit are near one.
    fit, *_ = np.linalg.lstsq(z.numpy(), h, rcond=None)
    assert np.abs(np.linalg.svd(fit, compute_uv=False) - 1).max() < 0.06
    # A learned scale measures the concentration.
    assert model.loss_.similarity.scale.item() == pytest.approx(20.0, rel=0.15)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert steps[-1].number == steps[-1].total <= 500
    assert steps == model.history_


def test_a_seed_determines_the_model():
    codes = [
        iso.ContrastiveICA(3, space="sphere", recipe=SHORT, random_state=5)
        .fit(WORLD)
        .transform(np.ones((2, 3), np.float32))
        for _ in range(2)
    ]
    assert np.array_equal(*codes)
    other = iso.ContrastiveICA(3, space="sphere", recipe=SHORT, random_state=6).fit(WORLD)
    assert not np.array_equal(codes[0], other.transform(np.ones((2, 3), np.float32)))


@pytest.mark.parametrize(
    "beliefs",
    [
        {"space": "box", "conditional": "laplace"},
        {"space": "box", "conditional": "normal"},
        {"space": "euclidean"},
        {"space": "euclidean", "marginal": "uniform"},
        {"space": "cubegrid"},
        {"space": "hollowball"},
        {"space": "sphere", "marginal": "unknown"},
        {"space": "sphere", "marginal": "unknown", "potentials": "none"},
        {"space": "sphere", "loss": iso.InfoNCE(iso.Dot(learn_scale=True))},
        {"space": "sphere", "encoder": nn.Linear(3, 3)},
    ],
)
def test_models_with_any_beliefs_are_fitted(beliefs):
    x, x_pos = WORLD.sample_pairs(300)
    model = iso.ContrastiveICA(3, recipe=SHORT, random_state=0, **beliefs).fit(x, x_pos)
    assert model.transform(x).shape == (300, 3)
    assert model.n_features_in_ == 3
    unproven = (
        beliefs.get("encoder") is not None  # its codes are free
        or beliefs.get("potentials") == "none"
        or beliefs == {"space": "euclidean", "marginal": "uniform"}  # there is no such marginal
        or beliefs.get("space") in ("cubegrid", "hollowball")  # not covered by the theorems
    )
    card = model.guarantee_
    assert (not (card.equivalence or card.withdrawn)) == unproven, card


@pytest.mark.parametrize("space", SPACES)
def test_marginal_and_conditional_follow_from_the_space(space):
    x, x_pos = WORLD.sample_pairs(300)
    recipe = iso.Recipe(max_steps=1, batch_size=8)
    model = iso.ContrastiveICA(3, space=space, recipe=recipe, random_state=0).fit(x, x_pos)
    assert (model.marginal, model.conditional) == (None, None)  # parameters stay as given
    assert model.beliefs_ == Beliefs(space)
    assert model.beliefs_.conditional == ("vmf" if space == "sphere" else "normal")
    assert model.beliefs_.marginal == ("normal" if space == "euclidean" else "uniform")
    learned = isinstance(model.loss_.potential, iso.contrast.NetworkPotential)
    assert learned == (space == "euclidean")


def test_modules_of_the_user_are_not_changed():
    """The same estimator fits the same model again; a float32 encoder takes float64 data."""
    x = np.random.default_rng(0).normal(size=(50, 3))
    encoder, loss = nn.Linear(3, 3), iso.InfoNCE(iso.Dot(learn_scale=True))
    before = [p.clone() for p in (*encoder.parameters(), *loss.parameters())]
    model = iso.ContrastiveICA(
        3, space="sphere", encoder=encoder, loss=loss, recipe=SHORT, random_state=0
    )
    first, second = (model.fit(x, x + 0.1).transform(x) for _ in range(2))
    assert np.array_equal(first, second)
    for now, then in zip((*encoder.parameters(), *loss.parameters()), before, strict=True):
        assert torch.equal(now, then)


def test_more_factors_than_features_have_no_guarantee():
    x = np.random.default_rng(0).normal(size=(50, 2))
    model = iso.ContrastiveICA(3, space="sphere", recipe=SHORT).fit(x, x + 0.1)
    assert "3 factors cannot be mixed injectively into 2" in str(model.guarantee_)


def test_it_is_a_scikit_learn_estimator():
    model = iso.ContrastiveICA(3, space="box", conditional="laplace", random_state=1)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        model.transform(np.ones((2, 3)))


def test_few_pairs_are_not_overfitted():
    """Training stops soon after the held-out loss is least, long before the last step."""
    world = iso.World(
        iso.Sphere(5),
        iso.Uniform(),
        iso.VonMisesFisher(10.0),
        iso.InvertibleMLP(3, condition_draws=200),
    )
    x, x_pos = world.sample_pairs(1000)
    model = iso.ContrastiveICA(
        5, space="sphere", recipe=iso.Recipe(max_steps=1000, batch_size=128), random_state=0
    )
    steps = []
    model.fit(x, x_pos, on_step=steps.append)
    assert len(steps) < 900
    losses = [step.held_out for step in steps if step.held_out is not None]
    assert losses.index(min(losses)) < len(losses) - 3
    z, _ = world.sample_latents(2000)
    observed = world.observe(z)
    assert iso.linear_r2(z, model.transform(observed)) > iso.linear_r2(z, observed) + 0.05


X = np.random.default_rng(0).normal(size=(30, 3))
SMALL = X[:, :1, None, None] > np.zeros((8, 8))  # booleans are numbers


@pytest.mark.parametrize(
    ("arguments", "fit", "message"),
    [
        ({}, (X, X[:-1]), "X and X_pos must have the same shape"),
        ({}, (X * np.nan, X), "Input X contains NaN"),
        ({}, (WORLD, X), "X_pos must be None when X is a world"),
        ({"n_components": 0}, (X, X), "n_components must be an integer >= 1"),
        ({"n_components": 1, "space": "sphere"}, (X, X), "must be at least 2 on a sphere"),
        ({"encoder": nn.Identity()}, (X, X), "encoder must have parameters to train"),
        ({"space": "cube"}, (X, X), "space must be one of"),
        ({"loss": "nll"}, (X, X), "loss must be one of"),
        ({"potentials": "some"}, (X, X), "potentials must be one of"),
        ({"potentials": "none", "loss": iso.NCE(iso.Dot())}, (X, X), "potentials must be None"),
        ({"encoder": "transformer"}, (X, X), "encoder must be one of"),
        ({"encoder": nn.Linear(3, 2).double()}, (X, X), "encoder must map 2 observations"),
        ({"recipe": 100}, (X, X), "recipe must be a Recipe"),
        (
            {},
            (iso.datasets.Sprites(),),
            r"pairs of them, such as FactorPairs\(world, .*, got Sprites",
        ),
        ({"encoder": "conv"}, (SMALL, SMALL), "images of at least 16 × 16 .*, got .N, 1, 8, 8"),
        ({"encoder": "pooled"}, (SMALL, SMALL), "X must have images of at least 16 × 16 .*'pooled"),
        ({"encoder": "residual"}, (SMALL, SMALL), "X must have images of at least 16 × 16"),
    ],
)
def test_wrong_arguments(arguments, fit, message):
    model = iso.ContrastiveICA(**({"n_components": 3, "recipe": SHORT} | arguments))
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(*fit)


@pytest.mark.parametrize(
    ("potentials", "kinds"),
    [
        ("none", (type(None), type(None))),
        ("constant", (type(None), iso.contrast.ConstantPotential)),
        ("learned", (iso.contrast.NetworkPotential, iso.contrast.NetworkPotential)),
    ],
)
def test_potentials_are_those_requested_also_after_loading(tmp_path, potentials, kinds):
    recipe = iso.Recipe(max_steps=2, batch_size=8)
    model = iso.ContrastiveICA(
        3, space="sphere", loss="nce", potentials=potentials, recipe=recipe
    ).fit(X, X + 0.1)
    model.save(tmp_path)
    for loss in (model.loss_, iso.ContrastiveICA.load(tmp_path).loss_):
        assert (type(loss.potential), type(loss.potential_pos)) == kinds


def test_transform_checks_its_input():
    model = iso.ContrastiveICA(3, space="sphere", recipe=iso.Recipe(max_steps=1, batch_size=8)).fit(
        X, X + 0.1
    )
    with pytest.raises(ValueError, match="X has 2 features, but ContrastiveICA is expecting 3"):
        model.transform(X[:, :2])
    with pytest.raises(ValueError, match="could not convert string to float: 'a'"):
        model.transform([["a", "b", "c"]])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.transform(np.where(np.arange(30)[:, None] == 4, np.nan, X))


def test_a_loss_that_is_not_finite_stops_training():
    class Exploding(nn.Module):
        def forward(self, h, h_pos):
            return (h * torch.inf).sum()

    with pytest.raises(FloatingPointError, match="at step 1; try a smaller learning_rate"):
        iso.ContrastiveICA(3, space="sphere", loss=Exploding(), recipe=SHORT).fit(X, X + 0.1)


# --- What was trained is what the card names.

NARROW = iso.World(iso.Box(10), iso.Uniform(), iso.Normal(0.01), iso.Linear(), seed=0)
QUICK = {"max_steps": 130, "batch_size": 128, "warmup": 10, "scale_rate": 10.0}
BOX = {"space": "box", "conditional": "normal", "random_state": 0}


@pytest.mark.parametrize(
    ("options", "objective"),
    [
        ({"marginal": "unknown"}, "InfoNCE with learned potentials"),
        ({"loss": iso.InfoNCE(iso.Lp(learn_weights=True))}, "InfoNCE"),
    ],
    ids=["unknown marginal", "own loss"],
)
def test_saturation_without_a_remedy_is_on_the_card(options, objective):
    model = iso.ContrastiveICA(10, **BOX, **options, recipe=iso.Recipe(**QUICK))
    with pytest.warns(IsolatentWarning, match=f"{objective} saturated at 4.* of at most 4.85 nats"):
        model.fit(NARROW)
    card = model.guarantee_
    assert (card.objective, card.calibration) == (objective, "")
    assert len(card.warnings) == 1
    assert f"warning     {objective} saturated" in str(card)
    assert "to reach the optimum: doubtful, see the warning" in str(card)
    assert model.guarantee_for(NARROW).warnings == card.warnings


def test_the_remedy_for_saturation_is_on_the_card():
    model = iso.ContrastiveICA(10, **BOX, recipe=iso.Recipe(**QUICK)).fit(NARROW)
    replaced = [step.number for step in model.history_ if step.information is None]
    card = model.guarantee_
    expected = f"InfoNCE, then alignment and entropy from step {replaced[0]} (saturated)"
    assert card.objective == expected
    assert "of their box's sides" in card.calibration
    assert card.calibration.endswith("scale estimated from differences within pairs")
    assert card.warnings == ()
    assert model.guarantee_for(NARROW).objective == expected


def test_a_loss_that_did_not_saturate_has_a_card_without_a_warning():
    """With this recipe nothing counts as saturated."""
    recipe = iso.Recipe(**QUICK | {"max_steps": 30}, saturation=0.0)
    model = iso.ContrastiveICA(10, **BOX, marginal="unknown", recipe=recipe).fit(NARROW)
    card = model.guarantee_
    assert (card.objective, card.warnings) == ("InfoNCE with learned potentials", ())
    assert "doubtful" not in str(card)


def test_overfitting_is_not_taken_for_saturation():
    """The loss of the training pairs falls towards zero, that of held-out pairs does not."""
    x, x_pos = torch.randn(2, 150, 10, generator=torch.Generator().manual_seed(0)).numpy()
    x_pos = 0.5 * x + x_pos
    recipe = iso.Recipe(**QUICK | {"max_steps": 300, "batch_size": 32})
    model = iso.ContrastiveICA(10, **BOX, marginal="unknown", recipe=recipe).fit(x, x_pos)
    assert min(step.loss for step in model.history_) < 0.15 * np.log(32)
    assert model.guarantee_.warnings == ()


def test_what_was_decided_about_the_axes_is_on_the_card():
    """The weights of this world are equal, so pairs do not distinguish axes."""
    model = iso.ContrastiveICA(
        3, space="sphere", conditional="anisotropic", recipe=SHORT, random_state=0
    )
    calibration = model.fit(WORLD).guarantee_.calibration
    assert calibration.startswith("axes not rotated")
    assert calibration.endswith("weights of the loss fitted to the codes")


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (iso.InfoNCE(iso.Dot()), "InfoNCE"),
        (iso.NCE(iso.Dot(), potential_pos=ConstantPotential()), "NCE with constant potentials"),
        (iso.InfoNCE(iso.Dot(), potential=nn.Linear(3, 1)), "InfoNCE with learned potentials"),
        (iso.Ensemble([iso.AnInfoNCE(3), iso.AnInfoNCE(3)]), "ensemble of AnInfoNCE"),
        (nn.MSELoss(), "MSELoss"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_losses_have_names(loss, name):
    assert describe_loss(loss) == name


# --- Relaxed assumptions: what is refused, what is learned, and that runs are reproduced.

RELAXABLE = {"space": "box", "conditional": "laplace", "random_state": 0}
RELAXING = iso.Recipe(max_steps=200, batch_size=128, warmup=10)


def box_pairs(share=0.0, rows=3000, width=0.03):
    """Return pairs of a small world, the last of them unrelated, and which are related."""
    world = iso.World(iso.Box(2), iso.Uniform(), iso.Laplace(width), iso.Linear(), seed=0)
    x, x_pos = world.sample_pairs(rows)
    related = rows - round(share * rows)
    x_pos[related:] = x_pos[related:].roll(1, 0)
    return x.numpy(), x_pos.numpy(), np.arange(rows) < related


def relaxing_model(relax, recipe=RELAXING, **changes):
    return iso.ContrastiveICA(2, recipe=recipe, relax=relax, **RELAXABLE | changes)


@pytest.fixture
def quick_comparison(monkeypatch):
    monkeypatch.setattr("isolatent.training.relaxations.PROBE_STEPS", 60)
    monkeypatch.setattr("isolatent.training.relaxations.PROBE_BATCH_SIZE", 128)


def stop_at(number):
    def on_step(step):
        if step.number == number:
            raise KeyboardInterrupt

    return on_step


class Unordered(iso.ArrayPairs):
    ordered = False


@pytest.mark.parametrize(
    ("arguments", "fit", "message"),
    [
        ({"relax": "pairs"}, (X, X), "relax must be 'auto' or names from .*, got 'pairs'"),
        ({"relax": None}, (X, X), "relax must be 'auto', a name or a tuple of names"),
        ({"relax": ("pairs",)}, (X, X), "relax must be 'auto' or names from .*, got 'pairs'"),
        ({"relax": ["pairing"] * 2}, (X, X), "relax must not name a relaxation twice"),
        (
            {"relax": ["pairing"], "loss": iso.AlignUniform()},
            (X, X),
            "relax must not contain 'pairing': AlignUniform cannot take it",
        ),
        (
            {"relax": ["marginal"], "loss": iso.AlignUniform()},
            (X, X),
            "relax must not contain 'marginal': AlignUniform cannot take it",
        ),
        (
            {"relax": ["dynamics"], "loss": iso.Ensemble([iso.InfoNCE(iso.Dot())])},
            (X, X),
            "relax must not contain 'dynamics': Ensemble cannot take it",
        ),
        ({"relax": ["pairing"], "loss": nn.MSELoss()}, (X, X), "MSELoss cannot take it"),
        ({"relax": "auto", "loss": nn.MSELoss()}, (X, -X), r"relax must be \(\) for the loss MSE"),
        (
            {"relax": ["anchor_scale"], "potentials": "none"},
            (X, X),
            r"potentials must be None or 'learned' with relax=\('anchor_scale',\), got 'none'",
        ),
        ({"relax": ["dynamics"], "lag": 3}, (X,), "relax must not contain 'dynamics': .*one lag"),
        ({"relax": ["dynamics"], "lag": (2, 3)}, (X,), "relax must not contain 'dynamics'"),
        ({"relax": ["dynamics"]}, (Unordered(X, -X),), "relax must not contain 'dynamics'"),
    ],
)
def test_relaxations_that_cannot_be_learned_are_refused_before_training(arguments, fit, message):
    steps = []
    model = iso.ContrastiveICA(3, recipe=SHORT, **arguments)
    with pytest.raises(ValueError, match=message):
        model.fit(*fit, on_step=steps.append)
    assert steps == []


@pytest.mark.parametrize("lag", [1, (2, 2)])
def test_dynamics_are_learned_at_one_lag(lag):
    recipe = iso.Recipe(max_steps=2, batch_size=8)
    model = iso.ContrastiveICA(3, space="sphere", recipe=recipe, relax=["dynamics"], lag=lag).fit(X)
    assert model.relaxed_ == ("dynamics",)


def test_partial_fit_takes_named_relaxations():
    x, x_pos, _ = box_pairs(0.4, rows=500)
    model = relaxing_model(["pairing"])
    for _ in range(2):
        model.partial_fit(x, x_pos)
    assert 0 < model.related_share_ < 1
    assert model.guarantee_.learned[0].endswith("%)")
    with pytest.raises(ValueError, match="relax must name relaxations for partial_fit, got 'auto'"):
        relaxing_model("auto").partial_fit(x, x_pos)
    with pytest.raises(ValueError, match="relax must not contain 'dynamics'"):
        relaxing_model(["dynamics"], lag=4).partial_fit(x)


def test_the_interval_of_the_related_share_is_that_of_the_pairs_there_are():
    """Not narrower than a binomial one of all pairs."""
    x, x_pos, _ = box_pairs(0.4, rows=400)
    model = relaxing_model(["pairing"], iso.Recipe(max_steps=60, batch_size=64)).fit(x, x_pos)
    low, high = model.related_share_interval_
    related = model.relatedness(x, x_pos)
    assert (high - low) / 2 >= 1.9 * related.std() / np.sqrt(400)


def test_without_held_out_pairs_nothing_is_chosen():
    x, x_pos, _ = box_pairs(0.4, rows=19)
    recipe = iso.Recipe(max_steps=200, batch_size=16, warmup=5)
    model = relaxing_model("auto", recipe).fit(x, x_pos)
    assert (model.relaxed_, model.gains_) == ((), {})
    assert "too few pairs to hold some out" in model.guarantee_.objective


def test_unrelated_pairs_are_warned_of_on_the_card():
    rng = np.random.default_rng(0)
    x, x_pos = rng.normal(size=(2, 2000, 3))
    recipe = iso.Recipe(max_steps=30, batch_size=64)
    with pytest.warns(IsolatentWarning, match="share only"):
        model = iso.ContrastiveICA(2, recipe=recipe, random_state=0).fit(x, x_pos)
    assert "share only" in str(model.guarantee_)
    assert "optimum: doubtful, see the warning" in str(model.guarantee_)


def test_weights_of_free_codes_are_refused():
    with pytest.raises(ValueError, match="relax must not contain 'factor_scale' for free codes"):
        iso.ContrastiveICA(2, relax=["factor_scale"]).fit(*box_pairs(rows=100)[:2])


def test_a_model_without_relaxations_is_the_declared_one():
    x, x_pos, _ = box_pairs()
    recipe = iso.Recipe(max_steps=20, batch_size=64)
    models = [
        iso.ContrastiveICA(2, recipe=recipe, **RELAXABLE).fit(x, x_pos),
        *(relaxing_model(relax, recipe).fit(x, x_pos) for relax in ((), [])),
    ]
    for model in models:
        assert np.array_equal(model.transform(x), models[0].transform(x))
        assert (model.relaxed_, model.gains_, model.learned_) == ((), {}, {})
        assert not hasattr(model, "related_share_")
        with pytest.raises(AttributeError, match="relatedness needs a model with pairing relaxed"):
            model.relatedness(x, x_pos)


@pytest.mark.usefixtures("quick_comparison")
def test_where_nothing_is_broken_the_choice_changes_nothing():
    x, x_pos, _ = box_pairs(rows=6000, width=0.1)
    recipe = iso.Recipe(max_steps=400, batch_size=128, warmup=50)
    plain, chosen = (relaxing_model(relax, recipe).fit(x, x_pos) for relax in ((), "auto"))
    assert chosen.relaxed_ == ()
    assert set(chosen.gains_) == set(RELAXATIONS)
    assert chosen.history_ == plain.history_
    assert np.array_equal(chosen.transform(x), plain.transform(x))
    assert chosen.guarantee_ == plain.guarantee_


@pytest.mark.parametrize("relax", [("pairing",), "auto"])
@pytest.mark.usefixtures("quick_comparison")
def test_unrelated_pairs_are_found_and_survive_saving(relax, tmp_path):
    """A share of 0.6 is related; the tolerance is 0.03."""
    x, x_pos, related = box_pairs(0.4)
    model = relaxing_model(relax).fit(x, x_pos)
    assert model.relaxed_ == ("pairing",)
    assert model.related_share_ == pytest.approx(0.6, abs=0.03)
    low, high = model.related_share_interval_
    assert 0 < low < model.related_share_ < high < 1
    probability = model.relatedness(x, x_pos)
    assert probability.shape == (len(x),)
    assert 0 <= probability.min() <= probability.max() <= 1
    assert probability[related].mean() > 0.9
    assert probability[~related].mean() < 0.15
    shuffled = model.relatedness(x[related], np.roll(x_pos[related], 1, axis=0))
    assert shuffled.mean() < 0.15
    with pytest.raises(ValueError, match="X and X_pos must have equally many rows, got 3 and 2"):
        model.relatedness(x[:3], x_pos[:2])
    assert (set(model.gains_) == set(RELAXATIONS)) == (relax == "auto")
    share = f"{100 * model.related_share_:.1f} % of the pairs are related"
    assert f"learned     {share}" in str(model.guarantee_)

    model.save(tmp_path)
    loaded = iso.ContrastiveICA.load(tmp_path)
    assert np.array_equal(loaded.transform(x), model.transform(x))
    assert np.array_equal(loaded.relatedness(x, x_pos), probability)
    for name in ("relaxed_", "gains_", "learned_", "related_share_", "related_share_interval_"):
        assert getattr(loaded, name) == getattr(model, name), name
    assert loaded.get_params() == model.get_params()
    assert loaded.guarantee_ == model.guarantee_


@pytest.mark.parametrize(
    ("relax", "number"),
    [(RELAXATIONS, 50), ("auto", 10), ("auto", 110)],
    ids=["named", "before the choice", "after the choice"],
)
@pytest.mark.usefixtures("quick_comparison")
def test_a_resumed_run_has_the_relaxations_of_the_uninterrupted_one(tmp_path, relax, number):
    x, x_pos, _ = box_pairs(0.4)
    model = relaxing_model(relax).fit(x, x_pos)
    if relax == "auto":
        assert model.relaxed_ == ("pairing",)
    with pytest.raises(KeyboardInterrupt):
        relaxing_model(relax).fit(x, x_pos, checkpoint=tmp_path, on_step=stop_at(number))
    saved = Checkpoints(tmp_path).latest().record["state"]["choice"]
    if relax == "auto":
        assert saved["relaxed"] == (["pairing"] if number > 80 else [])
    resumed = relaxing_model(relax).fit(x, x_pos, resume=tmp_path)
    assert resumed.history_ == model.history_
    assert np.array_equal(resumed.transform(x), model.transform(x))
    assert np.array_equal(resumed.relatedness(x, x_pos), model.relatedness(x, x_pos))
    for name in ("relaxed_", "gains_"):
        assert getattr(resumed, name) == getattr(model, name), name
    # LAPACK's rounding depends on where arrays lie in memory.
    assert tree_leaves(resumed.learned_) == pytest.approx(tree_leaves(model.learned_), rel=1e-9)


def test_a_run_with_other_relaxations_is_not_resumed(tmp_path):
    x, x_pos, _ = box_pairs(rows=300)
    with pytest.raises(KeyboardInterrupt):
        relaxing_model(["pairing"]).fit(x, x_pos, checkpoint=tmp_path, on_step=stop_at(3))
    with pytest.raises(ValueError, match="resume must hold a run with the same relax"):
        relaxing_model(["marginal"]).fit(x, x_pos, resume=tmp_path)


@pytest.mark.parametrize("relax", [(), ("marginal", "pairing"), ["pairing"], "auto"])
def test_relaxations_are_a_parameter_like_others(relax):
    """It is stored as given, and a copy has the same one."""
    model = iso.ContrastiveICA(3, space="sphere", relax=relax)
    assert model.get_params()["relax"] is relax
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(relax=["dynamics"]).relax == ["dynamics"]


def test_what_turns_is_recovered_with_its_angle():
    """A damped oscillator that turns by 1.2 rad from row to row; the tolerance is 0.05 rad."""
    rng = np.random.default_rng(0)
    angle, z = 1.2, np.zeros((3000, 2))
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    for t in range(1, len(z)):
        z[t] = 0.95 * z[t - 1] @ turn + 0.3 * rng.normal(size=2)
    x = np.tanh(0.8 * z @ rng.normal(size=(2, 4)))
    recipe = iso.Recipe(max_steps=300, batch_size=256, warmup=30)
    options = {"space": "euclidean", "recipe": recipe, "random_state": 0}
    plain = iso.ContrastiveICA(2, **options).fit(x)
    model = iso.ContrastiveICA(2, relax=["dynamics"], **options).fit(x)
    assert max(model.learned_["dynamics"]["angles"]) == pytest.approx(angle, abs=0.05)
    assert model.learned_["dynamics"]["moduli"] == pytest.approx([0.95, 0.95], abs=0.05)
    assert iso.linear_r2(z, model.transform(x)) > 0.98
    assert iso.linear_r2(z, plain.transform(x)) < 0.8
    assert model.guarantee_.equivalence == "affine map"
