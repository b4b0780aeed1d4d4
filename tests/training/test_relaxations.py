"""Relaxations are checked, attached at values that change nothing, and compared."""

import math

import pytest
import torch

import isolatent as iso
from isolatent.contrast import (
    AnchorScale,
    ConstantPotential,
    FactorScale,
    LinearDynamics,
    NetworkPotential,
    Pairing,
)
from isolatent.theory import NAMED_RELAXATIONS, RELAXATIONS
from isolatent.training import relaxations
from isolatent.training.relaxations import (
    Gain,
    attach,
    check_relax,
    check_relaxable,
    compare_relaxations,
    needs_potentials,
    relaxations_of,
)

ALL = tuple(RELAXATIONS)
SINGLE = [(name,) for name in ALL]


def unit_codes(rows=64, n=3, seed=0, noise=0.2):
    generator = torch.Generator().manual_seed(seed)
    h = torch.nn.functional.normalize(torch.randn(rows, n, generator=generator))
    step = noise * torch.randn(rows, n, generator=generator)
    return h, torch.nn.functional.normalize(h + step)


# Names


@pytest.mark.parametrize("names", [(), *SINGLE, ALL, tuple(reversed(ALL)), [*ALL], set(ALL)])
def test_names_are_put_in_their_usual_order(names):
    assert check_relax(names) == tuple(name for name in RELAXATIONS if name in names)


def test_auto_is_a_choice():
    assert check_relax("auto") is None


@pytest.mark.parametrize("name", NAMED_RELAXATIONS)
def test_one_name_is_a_tuple_of_one(name):
    assert check_relax(name) == check_relax((name,)) == (name,)


@pytest.mark.parametrize(
    ("relax", "message"),
    [
        ("pairs", r"relax must be 'auto' or names from 'pairing', .*, got 'pairs'"),
        ("pairing,marginal", "got 'pairing,marginal'"),
        (None, "relax must be 'auto', a name or a tuple of names from .*, got None"),
        (3, "got 3"),
        (["pairs"], "relax must be 'auto' or names from .*, got 'pairs'"),
        (("auto",), "got 'auto'"),
        (("pairing", None), "got None"),
        (("pairing", "marginal", "pairing"), "relax must not name a relaxation twice"),
    ],
)
def test_other_names_are_refused(relax, message):
    with pytest.raises(ValueError, match=message):
        check_relax(relax)


@pytest.mark.parametrize("names", SINGLE, ids=lambda names: names[0])
@pytest.mark.parametrize(
    "loss",
    [iso.AlignUniform(), iso.Ensemble([iso.InfoNCE(iso.Dot())]), torch.nn.MSELoss()],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_that_cannot_take_a_relaxation_are_refused(names, loss):
    with pytest.raises(ValueError, match=f"contain '{names[0]}': {type(loss).__name__} cannot"):
        check_relaxable(names, loss)


def test_a_loss_that_has_the_relaxation_is_refused():
    loss = iso.InfoNCE(iso.Dot(), pairing=Pairing())
    check_relaxable(["marginal", "dynamics"], loss)
    with pytest.raises(ValueError, match="contain 'pairing': the given loss already has it"):
        check_relaxable(["pairing"], loss)


# Attached modules


@pytest.mark.parametrize("names", [*SINGLE[1:], ALL[1:]], ids="-".join)
@pytest.mark.parametrize("similarity", [iso.Dot(4.0), iso.Lp(p=1), iso.Lp(p=2)], ids=repr)
def test_attached_relaxations_change_nothing_at_first(names, similarity):
    """Except for pairing, the first of them: its share of unrelated pairs is never zero."""
    plain, relaxed = (iso.InfoNCE(similarity) for _ in range(2))
    attach(relaxed, names, 3)
    assert relaxations_of(relaxed) or relaxed.potential is not None
    h, h_pos = unit_codes()
    torch.testing.assert_close(relaxed(h, h_pos), plain(h, h_pos), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("names", [(), *SINGLE, ALL], ids="-".join)
def test_the_relaxations_of_a_loss_are_those_attached(names):
    loss = iso.InfoNCE(iso.Dot())
    new = attach(loss, names, 3)
    assert relaxations_of(loss) == tuple(name for name in names if name != "marginal")
    kinds = {
        "pairing": Pairing,
        "anchor_scale": AnchorScale,
        "factor_scale": FactorScale,
        "dynamics": LinearDynamics,
    }
    for name in relaxations_of(loss):
        assert isinstance(getattr(loss, name), kinds[name])
    learned = [isinstance(m, NetworkPotential) for m in (loss.potential, loss.potential_pos)]
    assert learned == [needs_potentials(names)] * 2
    assert len(new) == len(relaxations_of(loss)) + sum(learned)


def test_learned_potentials_are_kept_and_constants_replaced():
    given = NetworkPotential(3)
    loss = iso.NCE(iso.Dot(), potential=given, potential_pos=ConstantPotential())
    (new,) = attach(loss, ["marginal"], 3)
    assert loss.potential is given
    assert loss.potential_pos is new


def test_attached_modules_have_the_precision_of_the_loss():
    loss = iso.InfoNCE(iso.Dot(learn_scale=True)).double()
    assert {p.dtype for module in attach(loss, ALL, 3) for p in module.parameters()} == {
        torch.float64
    }


# Comparison


def test_a_gain_must_be_large_and_certain():
    assert not Gain(1.0, math.nan).is_significant
    assert not Gain(1.0, math.inf).is_significant
    assert Gain(0.1, 0.01).is_significant
    assert not Gain(0.1, 0.03).is_significant  # fewer than four standard errors
    assert not Gain(0.01, 0.0).is_significant  # less than 0.02 nats


def without_relation(h, h_pos, share):
    """Exchange the positives of a share of the pairs, spread over all rows."""
    h_pos = h_pos.clone()
    rows = torch.arange(len(h_pos)) % 100 < 100 * share
    h_pos[rows] = h_pos[rows].roll(1, 0)
    return h, h_pos


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(relaxations, "PROBE_STEPS", 80)


LOSS = iso.InfoNCE(iso.Dot(20.0, learn_scale=True))


@pytest.mark.usefixtures("quick")
def test_only_the_assumption_that_is_broken_gains():
    codes, held_out = (unit_codes(2048, seed=seed) for seed in (0, 1))
    candidates = ("pairing", "factor_scale", "dynamics")
    gains, _ = compare_relaxations(LOSS, candidates, codes, held_out, "sphere")
    assert not any(gain.is_significant for gain in gains.values()), gains
    broken = [without_relation(*pairs, share=0.4) for pairs in (codes, held_out)]
    gains, _ = compare_relaxations(LOSS, candidates, *broken, "sphere")
    assert [name for name in candidates if gains[name].is_significant] == ["pairing"], gains
    turn = torch.linalg.matrix_exp(torch.tensor([[0.0, 1, 0], [-1, 0, 0.5], [0, -0.5, 0]]))
    turned = [(h, h_pos @ turn) for h, h_pos in (codes, held_out)]
    gains, losses = compare_relaxations(LOSS, candidates, *turned, "sphere")
    assert max(gains, key=lambda name: gains[name].mean) == "dynamics", gains
    assert gains["dynamics"].is_significant
    learned = losses["dynamics"].dynamics.matrix.detach()
    cosine = (learned * turn.mT).sum() / (learned.norm() * turn.norm())
    assert cosine > 0.9  # the identity has 0.62


@pytest.mark.usefixtures("quick")
def test_a_comparison_changes_neither_the_loss_nor_random_numbers():
    loss = iso.InfoNCE(iso.Dot(20.0, learn_scale=True))
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    state = torch.get_rng_state()
    pairs = unit_codes(512)
    first, second = (
        compare_relaxations(loss, ["anchor_scale"], pairs, pairs, "sphere") for _ in range(2)
    )
    assert first[0] == second[0]
    assert torch.equal(state, torch.get_rng_state())
    assert relaxations_of(loss) == ()
    assert all(torch.equal(value, before[name]) for name, value in loss.state_dict().items())


@pytest.mark.usefixtures("quick")
def test_the_order_of_held_out_pairs_hardly_matters():
    """A file may have its unrelated pairs at the end."""
    codes, held_out = (without_relation(*unit_codes(2048, seed=s), share=0.4) for s in (0, 1))
    last = (torch.arange(2048) % 100 < 40).long().argsort(stable=True)
    in_order = tuple(part[last] for part in held_out)
    found = [
        compare_relaxations(LOSS, ["pairing"], codes, pairs, "sphere")[0]["pairing"]
        for pairs in (held_out, in_order)
    ]
    assert found[0].mean == pytest.approx(found[1].mean, rel=0.05)
    assert found[1].error < 2 * found[0].error


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("rows", [10, 100, 3000])
def test_gains_have_an_error_from_several_batches(rows, monkeypatch):
    counted = []
    monkeypatch.setattr(relaxations, "_gain", lambda a, b: counted.append(len(a)) or Gain(0.0, 0.0))
    compare_relaxations(LOSS, ["pairing"], unit_codes(512), unit_codes(rows), "sphere")
    assert counted == [max(rows // 256, min(8, rows // 2))]
