"""The rehearsal: the same fit on a world whose factors are known."""

import numpy as np

import isolatent as iso
from isolatent.diagnosis.controls import Decoder
from isolatent.diagnosis.held_out import hold_pairs_out, source_of
from isolatent.diagnosis.rehearsal import Rehearsal, expected_score, rehearse

RECIPE = iso.Recipe(max_steps=300, batch_size=256, warmup=20)


def relaxing_factors(rows, rng):
    decay = np.array([0.98, 0.6])
    z = np.zeros((rows, 2))
    for t in range(1, rows):
        z[t] = decay * z[t - 1] + np.sqrt(1 - decay**2) * rng.normal(size=2)
    return z


def test_axes_by_dynamics_are_found_again_in_the_rehearsal_of_a_recording():
    rng = np.random.default_rng(0)
    z = relaxing_factors(3000, rng)
    x = np.tanh(0.3 * z @ rng.normal(size=(2, 6)))
    model = iso.ContrastiveICA(2, recipe=RECIPE, random_state=0).fit(x)
    assert model.axes_.method == "dynamics"
    true_score = iso.mcc(z, model.transform(x))
    pairs = hold_pairs_out(model, source_of(model, x, None), seed=0)
    decoder = Decoder.fit(model.encoder_, pairs, model.head_, 0)
    rehearsal = rehearse(model, pairs, decoder, seed=1)
    assert rehearsal.statistics is None  # its latents are codes, which are as they are
    expected = expected_score([rehearsal])
    assert expected.metric == "mcc"
    assert true_score > 0.97
    assert abs(expected.value - true_score) < 0.03


def test_a_model_of_counts_is_rehearsed_with_counts():
    """Observations that a decoder draws of counts are never negative, which a fit would refuse."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(1200, 2))
    parts = z, 0.9 * z + 0.43 * rng.normal(size=z.shape)
    weights = rng.normal(size=(2, 12))
    x, x_pos = (rng.poisson(np.exp(0.7 * part @ weights)).astype(float) for part in parts)
    recipe = iso.Recipe(max_steps=60, batch_size=128, warmup=10)
    options = {"space": "euclidean", "counts": True, "recipe": recipe, "random_state": 0}
    model = iso.ContrastiveICA(2, **options).fit(x, x_pos)
    pairs = hold_pairs_out(model, source_of(model, x, x_pos), seed=0)
    decoder = Decoder.fit(model.encoder_, pairs, model.head_, 0, counts=True)
    assert decoder.unexplained > 0.1  # so that noise is drawn, too
    assert 0 < rehearse(model, pairs, decoder, seed=1).score < 1


def test_several_rehearsals_show_their_spread():
    one, *others = (Rehearsal(score, "mcc", False, 0.0, None) for score in (0.99, 0.9, 0.99))
    alone, together = expected_score([one]), expected_score([one, *others])
    assert (alone.value, alone.low, alone.high) == (0.99, 0.98, 1.0)
    assert together.value == 0.96
    assert together.low < 0.9 < alone.low
