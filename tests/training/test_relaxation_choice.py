"""Relaxations are offered where they can change something, and chosen where they gain."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal

import isolatent as iso
from isolatent.contrast import LinearDynamics, NetworkPotential, Pairing
from isolatent.pairs import SeriesPairs, WorldPairs
from isolatent.theory import RELAXATIONS, Beliefs
from isolatent.training import relaxation_choice
from isolatent.training.recipe import Schedule
from isolatent.training.relaxation_choice import EARLY, RelaxationChoice, candidates_for
from isolatent.training.relaxations import Gain

WORLD = iso.World(iso.Sphere(3), iso.Uniform(), iso.VonMisesFisher(10.0), iso.Linear(), seed=0)
PAIRS = WorldPairs(WORLD)
SPHERE, BOX, FREE = Beliefs("sphere"), Beliefs("box"), Beliefs("euclidean")
SEVERAL_LAGS = SeriesPairs(torch.randn(50, 3), lag=3)


def potentials():
    return {name: NetworkPotential(3) for name in ("potential", "potential_pos")}


@pytest.mark.parametrize(
    ("loss", "beliefs", "source", "excluded"),
    [
        (iso.InfoNCE(iso.Dot()), SPHERE, PAIRS, set()),
        (iso.NCE(iso.Lp()), BOX, PAIRS, set()),
        (iso.InfoNCE(iso.Dot()), SPHERE, SEVERAL_LAGS, {"dynamics"}),
        (iso.InfoNCE(iso.Dot(), **potentials()), SPHERE, PAIRS, {"marginal"}),
        (iso.InfoNCE(iso.Dot(), potential=NetworkPotential(3)), SPHERE, PAIRS, set()),
        (iso.InfoNCE(iso.Lp(), **potentials()), FREE, PAIRS, {"marginal", "factor_scale"}),
        (iso.AnInfoNCE(3), SPHERE, PAIRS, {"factor_scale"}),
        (iso.InfoNCE(iso.Dot(), pairing=Pairing()), SPHERE, PAIRS, {"pairing"}),
        (iso.InfoNCE(iso.Dot(), dynamics=LinearDynamics(3)), SPHERE, PAIRS, {"dynamics"}),
        (iso.AlignUniform(), BOX, PAIRS, set(RELAXATIONS)),
    ],
)
def test_candidates_are_those_that_can_change_something(loss, beliefs, source, excluded):
    expected = tuple(name for name in RELAXATIONS if name not in excluded)
    assert candidates_for(loss, beliefs, source) == expected


def test_a_source_without_the_attribute_is_ordered():
    source = SimpleNamespace(sample=None)
    assert "dynamics" in candidates_for(iso.InfoNCE(iso.Dot()), SPHERE, source)


@pytest.mark.parametrize("loss", [torch.nn.MSELoss(), iso.Ensemble([iso.InfoNCE(iso.Dot())])])
def test_other_losses_have_no_choice(loss):
    name = type(loss).__name__
    with pytest.raises(ValueError, match=rf"relax must be \(\) for the loss {name}, got 'auto'"):
        candidates_for(loss, SPHERE, PAIRS)


@given(
    max_steps=st.integers(1, 5000),
    share=st.floats(0, 1),
    cooldown=st.floats(0, 0.99),
    losses=st.lists(st.floats(-10, 10), max_size=40),
)
def test_a_restarted_schedule_never_exceeds_the_steps_allowed(max_steps, share, cooldown, losses):
    """And it goes on from the step at which it restarted, with rates that are not negative."""
    recipe = iso.Recipe(max_steps=max_steps, cooldown=cooldown)
    schedule = Schedule(recipe)
    step = max(1, round(share * max_steps))
    schedule.restart(step)
    assert step <= schedule.cooling_from <= schedule.total <= min(2 * step, max_steps)
    for k, loss in enumerate(losses):
        measured = step + 1 + k * max(1, (schedule.total - step) // 40)
        if measured > schedule.total:
            break
        schedule.measured(measured, loss)
        assert schedule.total <= max_steps
        assert 0 <= schedule.rate(measured) <= recipe.learning_rate


# The choice itself, with gains that are given.


class FakeTraining:
    """As much of a run as a choice needs."""

    def __init__(self, max_steps=1000, warmup=20):
        self.recipe = iso.Recipe(max_steps=max_steps, warmup=warmup, batch_size=8)
        self.schedule = Schedule(self.recipe)
        self.network = self.measured_network = torch.nn.Linear(3, 3)
        self.modules = {"loss": iso.InfoNCE(iso.Dot())}
        self.saturated_at, self.best = None, object()
        self.relaxed, self.dropped, self.anew, self.started_at = [], [], 0, 0

    def encode(self, network, x):
        return torch.nn.functional.normalize(network(x)).detach()

    def relax(self, names, n):
        self.relaxed += names

    def tighten(self, name, h):
        self.dropped.append(name)

    def start_anew(self):
        self.anew += 1
        self.schedule.restart()


@pytest.fixture
def run(monkeypatch):
    """A function that lets a run of 1000 steps consider relaxations with given gains."""

    def run(
        gains,
        candidates=RELAXATIONS,
        on_sphere=True,
        head=None,
        early=(),
        provisional=(),
        steps=range(10, 1001, 10),
    ):
        training = FakeTraining()
        choice = RelaxationChoice(
            candidates,
            PAIRS,
            training.network,
            training.modules["loss"],
            3,
            head=head or ("sphere" if on_sphere else "free"),
            may_lose_factors=on_sphere,
            provisional=provisional,
        )
        compared = []

        def compare(loss, names, codes, held_out, head, provisional, steps):
            at = early_gains if len(compared) == 0 else gains
            compared.append((step, tuple(names)))
            losses = dict.fromkeys(names, training.modules["loss"])
            return {n: Gain(at.get(n, 0.0), 0.001) for n in (*names, *provisional)}, losses

        early_gains = dict(early)
        monkeypatch.setattr(relaxation_choice, "compare_relaxations", compare)
        held_out = iso.pairs.Batch.of(PAIRS.sample(32, torch.Generator().manual_seed(0)))
        for step in steps:
            choice.consider(training, held_out, step)
        return choice, training, compared

    return run


def test_without_a_gain_nothing_is_chosen(run):
    choice, training, compared = run({})
    assert choice.relaxed == ()
    assert not choice.is_open
    assert training.relaxed == []
    assert training.best is not None
    assert [step for step, *_ in compared] == [40, 400]
    assert set(choice.gains) == set(RELAXATIONS)
    assert training.schedule.to_dict() == Schedule(training.recipe).to_dict()


def test_the_best_is_chosen_step_by_step_until_none_gains(run):
    choice, training, compared = run({"pairing": 0.2, "marginal": 0.5})
    assert choice.relaxed == ("marginal", "pairing")
    assert training.relaxed == ["marginal", "pairing"]
    assert training.anew == 0
    assert training.schedule.total <= training.recipe.max_steps
    assert "marginal" not in compared[2][1]
    assert choice.gains["marginal"].mean == 0.5


def test_no_more_than_three_are_chosen(run):
    choice, *_ = run(dict.fromkeys(RELAXATIONS, 0.5))
    assert len(choice.relaxed) == 3
    assert not choice.is_open


def test_dynamics_are_compared_early_and_start_anew(run):
    choice, training, compared = run({}, early={"dynamics": 0.5, "pairing": 0.8})
    assert compared[0] == (40, EARLY)
    assert choice.relaxed == ("dynamics",)
    assert training.anew == 1


@pytest.mark.parametrize(("gain", "anew"), [(0.5, 1), (0.05, 0)])
def test_a_scale_that_gains_much_starts_anew_in_a_box(run, gain, anew):
    choice, training, _ = run({"anchor_scale": gain}, head="box")
    assert (choice.relaxed, training.anew) == (("anchor_scale",), anew)


def test_small_gains_of_dynamics_wait(run):
    choice, training, compared = run({}, early={"dynamics": 0.05})
    assert compared[0] == (40, EARLY)
    assert (choice.relaxed, training.anew) == ((), 0)


def test_pairing_is_added_early_where_it_is_obvious(run):
    """Not where it may stand for a scale of the anchors, nor where its gain is small."""
    choice, training, compared = run({}, early={"pairing": 0.5, "anchor_scale": 0.2})
    assert choice.relaxed == ("pairing",)
    assert (training.relaxed, training.anew) == (["pairing"], 0)
    assert [names for step, names in compared if step == 40] == [EARLY]
    for early in ({"pairing": 0.5, "anchor_scale": 0.3}, {"pairing": 0.05}):
        assert run({}, early=early)[0].relaxed == ()
    assert run({}, early={"anchor_scale": 0.5})[0].relaxed == ()


@pytest.mark.parametrize("gains", [{}, {"pairing": 0.5}])
def test_a_provisional_relaxation_is_dropped_at_the_end_unless_it_gains(run, gains):
    choice, training, _ = run(gains, on_sphere=False, provisional=["anchor_scale"])
    assert training.relaxed == ["anchor_scale", *gains]
    assert (choice.relaxed, training.dropped) == (tuple(gains), ["anchor_scale"])
    choice, training, _ = run(
        {**gains, "anchor_scale": 0.5}, on_sphere=False, provisional=["anchor_scale"]
    )
    assert (choice.relaxed, training.dropped) == (("anchor_scale", *gains), [])


@pytest.mark.parametrize("head", ["sphere", "box", "free"])
def test_a_saturated_loss_ends_the_choice(head):
    """It waits for dynamics, and weights the codes of a box, since it cannot compare any more."""
    training = FakeTraining()
    loss = training.modules["loss"]
    choice = RelaxationChoice(
        RELAXATIONS, PAIRS, training.network, loss, 3, head=head, may_lose_factors=True
    )
    assert choice.delays_saturation()
    choice.compared_early = True
    assert not choice.delays_saturation()
    choice.saturate(training)
    assert (choice.is_open, choice.gains) == (False, {})
    assert choice.relaxed == (("factor_scale",) if head == "box" else ())


def test_a_choice_without_candidates_is_over(run):
    choice, _, compared = run({}, candidates=())
    assert (choice.is_open, compared) == (False, [])


def test_the_state_is_restored(run):
    choice, training, _ = run({"pairing": 0.2})
    loss = training.modules["loss"]
    other = RelaxationChoice(
        RELAXATIONS, PAIRS, training.network, loss, 3, head="sphere", may_lose_factors=True
    )
    assert other.state() != choice.state()
    other.set_state(choice.state())
    assert other.state() == choice.state()
    assert (other.relaxed, other.gains) == (choice.relaxed, choice.gains)


# Factors that a network without dynamics loses, where there are fewer codes than factors.


def slow_and_oscillating(oscillators, seed, rows=4000):
    """Return a mixed recording of seven factors, and those that oscillate."""
    rng = np.random.default_rng(seed)
    poles = [0.99 * np.exp(0.8j)] * oscillators
    z = [signal.lfilter([1], [1, -p], rng.normal(size=(rows, 2)) @ [1, 1j]) for p in poles]
    relaxing = range(7 - 2 * oscillators)
    slow = [signal.lfilter([1], [1, -0.95], rng.normal(size=rows)) for _ in relaxing]
    factors = np.stack([*(part for y in z for part in (y.real, y.imag)), *slow], 1)
    factors /= factors.std(0)
    return factors @ rng.normal(size=(7, 7)), factors[:, : 2 * oscillators]


@pytest.mark.filterwarnings("ignore:InfoNCE with learned potentials")
@pytest.mark.parametrize("oscillators", [0, 1])
def test_an_oscillator_is_not_lost_to_slower_factors(oscillators):
    """The codes of a network without dynamics hold slow factors alone, so nothing gains on them."""
    x, oscillating = slow_and_oscillating(oscillators, seed=0)
    recipe = iso.Recipe(max_steps=400, batch_size=256, warmup=30)
    model = iso.ContrastiveICA(4, recipe=recipe, random_state=0).fit(x)
    assert ("dynamics" in model.relaxed_) == bool(oscillators)
    if oscillators:
        assert iso.linear_r2(oscillating, model.transform(x)) > 0.95
        assert model.dynamics_.periods[0] == pytest.approx(2 * np.pi / 0.8, rel=0.01)
